"""A page of viser, served, and refreshed by a thread of its own: what teleoperation, viewer and console share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from robolearn.core.errors import BadInput

if TYPE_CHECKING:
    from hardware.teleop.browser.guarded_viser import GuardedViser


class GuardedPage(Protocol):
    """Content of a page; `guarded` serves it."""

    guarded: GuardedViser

    def close(self) -> None: ...


P = TypeVar("P", bound=GuardedPage)


class ServedPage(Generic[P]):
    """Is there from `_serve` to `close`.

    Attributes:
      url: the address to open, with its token; empty before it is served.
      notice: what to print in a terminal then: addresses, fingerprint, QR code. Not for logs: has the token.
    """

    def __init__(self) -> None:
        self.url = self.notice = ""
        self._page: P | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def invitation(self) -> str:
        """See `GuardedViser.invitation`."""
        return "" if self._page is None else self._page.guarded.invitation()

    def close(self) -> None:
        """Take the page away; more than once is no fault."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        if self._page is not None:
            self._page.close()
        self._thread = self._page = None

    def _serve(self, page: P, serve: Callable[[GuardedViser], None], refresh: Callable[[P], None], name: str) -> None:
        """Let people in, and refresh the page until `_end` is set; closed where it cannot be served.

        Args:
          serve: calls `GuardedViser.serve`.
          refresh: the work of the thread.
          name: of the thread.
        """
        try:
            serve(page.guarded)
        except BaseException:
            page.close()
            raise
        self._page, self.url, self.notice = page, page.guarded.url, page.guarded.notice
        self._end.clear()
        self._thread = threading.Thread(target=refresh, args=(page,), name=name, daemon=True)
        self._thread.start()


@contextmanager
def viser_needed(what: str) -> Iterator[None]:
    """Within, what is imported may lack viser: then `BadInput` says how to get it."""
    try:
        yield
    except ImportError as error:
        raise BadInput(
            what, got=f"no {error.name}", expected="viser", hint="pip install 'robolearn[console]'"
        ) from error
