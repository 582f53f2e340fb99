"""Pages of viser: the device `browser` (the 3-D arm, a target to drag, buttons), and what it shares with viewer and
console."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from hardware.teleop.device import TeleopConfig, flag
from robolearn.core.errors import BadInput
from robolearn.core.installation import install_command
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from hardware.teleop.browser.device import Browser
    from hardware.teleop.browser.page import ArmPage
    from robots import RobotSpec

log = logging.getLogger(__name__)

SIMULATED_S = 1.0  # of silence: a busy machine must not cost an episode where no arm can hurt anybody


@dataclass(frozen=True)
class Place:
    """Address and certificate of a served page.

    Attributes:
      host: loopback, or an address of this machine (``0.0.0.0``: all), then with TLS and a token.
      port: 0 takes any that is free.
      certificate, key: files to be used for TLS in place of a certificate of our own.
      folder: where our own is kept; by default ``~/.config/robolearn``.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    folder: Path | None = None

    def check(self, what: str) -> None:
        """Raise `BadInput` about `what` unless this can be a place."""
        if not 0 <= self.port < 1 << 16:
            raise BadInput(f"{what}: port", got=self.port, expected="0 to 65535")
        if self.key is not None and self.certificate is None:
            raise BadInput(f"{what}: certificate", got="a key alone", expected="its certificate too")


@dataclass(frozen=True)
class BrowserConfig(TeleopConfig, Place):
    """A web page, on this machine or on a phone beside it.

    Attributes:
      heartbeat_s: a page silent for longer has let go of the dead-man [s]; `SIMULATED_S` where the arm is simulated.
    """

    name: ClassVar[str] = "browser"
    help: ClassVar[str] = "open the page at the address below"
    has_deadman: ClassVar[bool] = True
    shows_in_terminal: ClassVar[bool] = False

    host: str = flag("host", "127.0.0.1", "Address of its page; 0.0.0.0: phones too, with TLS and a token")
    port: int = flag("port", 8070, "Port of its page; 0 takes a free one")
    heartbeat_s: float = 0.3

    @property
    def silence_s(self) -> float:
        """The longest silence of a page that keeps the dead-man on [s]."""
        return max(self.heartbeat_s, SIMULATED_S) if self.simulated else self.heartbeat_s

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> Browser:
        from hardware.teleop.browser.device import Browser

        return Browser(interface, robot, self)


P = TypeVar("P", bound="ArmPage")


class ServedPage(Generic[P]):
    """Is there from `_open` to `close`.

    Attributes:
      what: its name in messages.
      update_hz: how often what it shows is refreshed [Hz]; at once where `_wake` is set.
      url: the address to open, with its token; empty before it is served.
      notice: what to print in a terminal then: addresses, fingerprint, QR code. Not for logs: has the token.
    """

    what: ClassVar[str]
    update_hz: ClassVar[float]

    def __init__(self) -> None:
        self.url = self.notice = ""
        self.page: P | None = None
        self._end, self._wake = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def _make(self) -> tuple[P, Callable[[Place], None]]:
        """The page, with the rest of `GuardedViser.serve`; here viser may be missing."""
        raise NotImplementedError

    def _update(self, page: P) -> None:
        """Refresh the page; called by one thread."""
        raise NotImplementedError

    def invitation(self) -> str:
        """See `GuardedViser.invitation`."""
        return "" if self.page is None else self.page.guarded.invitation()

    def close(self) -> None:
        """Take the page away; more than once is no fault."""
        self._end.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        if self.page is not None:
            self.page.guarded.close()
        self._thread = self.page = None

    def _open(self, place: Place) -> None:
        """Serve the page.

        Raises:
          BadInput: viser is not installed, or the address cannot be listened on.
        """
        if self.page is not None:
            return
        try:
            page, serve = self._make()
        except ImportError as error:
            hint = install_command("console")
            raise BadInput(self.what, got=f"no {error.name}", expected="viser", hint=hint) from error
        try:
            serve(place)
        except BaseException:
            page.guarded.close()
            raise
        self.page, self.url, self.notice = page, page.guarded.url, page.guarded.notice
        self._end.clear()
        self._thread = threading.Thread(target=self._refresh, args=(page,), name=f"{self.what}-page", daemon=True)
        self._thread.start()

    def _refresh(self, page: P) -> None:
        while True:
            self._wake.wait(1.0 / self.update_hz)
            self._wake.clear()
            if self._end.is_set():
                return
            try:
                self._update(page)
            except Exception:  # a picture that cannot be drawn must not leave the page standing still
                log.exception("the page could not be updated")
                self._end.wait(1.0)
