"""A page to look at, in a thread of its own: whoever shows something hands it over and goes on."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from hardware.teleop.device import Status
from robolearn.core.errors import BadInput
from robots import RobotSpec

if TYPE_CHECKING:
    from hardware.teleop.browser.guarded_viser import Place
    from hardware.teleop.browser.view_page import ViewPage

log = logging.getLogger(__name__)

UPDATE_HZ = 10.0  # of what the page shows
PICTURE_EVERY = 2  # updates


class Viewer:
    """Serves the page from `open` to `close`; while nobody has it open it draws nothing.

    Args:
      robot: the arm to draw.
      over: what the page says at the end.

    Attributes:
      url: the address to open, with its token; empty before `open`.
      notice: what to print in a terminal after `open`. Not for logs: it has the token.
    """

    def __init__(self, robot: RobotSpec, over: str = "The recording is over.") -> None:
        self._robot, self._over = robot, over
        self.url = self.notice = ""
        self._page: ViewPage | None = None
        self._status: Status | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve the page; on any free port where `port` is taken.

        Raises:
          BadInput: viser is not installed, or the address cannot be listened on.
        """
        try:
            from hardware.teleop.browser.auth_proxy import overlay
            from hardware.teleop.browser.guarded_viser import Place
            from hardware.teleop.browser.view_page import ViewPage
        except ImportError as error:
            raise BadInput(
                "view", got=f"no {error.name}", expected="viser", hint="pip install 'robolearn[console]'"
            ) from error
        page = ViewPage(self._robot)
        try:
            overlays = [overlay("hardware.teleop.browser", "pictures.html")]
            try:
                self._serve(page, Place(host, port), overlays)
            except BadInput:
                if port == 0:
                    raise
                self._serve(page, Place(host, 0), overlays)  # a page that is only looked at must not end the work
        except BaseException:
            page.close()
            raise
        self._page, self.url, self.notice = page, page.guarded.url, page.guarded.notice
        self._end.clear()
        self._thread = threading.Thread(target=self._refresh, name="view-page", daemon=True)
        self._thread.start()

    def invitation(self) -> str:
        """See `GuardedViser.invitation`."""
        return "" if self._page is None else self._page.guarded.invitation()

    @property
    def watched(self) -> bool:
        """Whether anybody has the page open."""
        return self._page is not None and self._page.watched

    def show(self, status: Status) -> None:
        """Hand over to the page's thread; never waits."""
        self._status = status

    def close(self) -> None:
        """Take the page away; more than once is no fault."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        if self._page is not None:
            self._page.close()
        self._thread = self._page = None

    # ---------------------------------------------------------------------------------------------------------

    def _serve(self, page: ViewPage, place: Place, overlays: list[str]) -> None:
        page.guarded.serve(place, overlays, {}, "Whoever has this address can see the arm and its cameras.", self._over)

    def _refresh(self) -> None:
        page, updates = self._page, 0
        assert page is not None
        while not self._end.wait(1.0 / UPDATE_HZ):
            status = self._status
            try:
                if status is not None and page.watched:
                    page.update(status, pictures=updates % PICTURE_EVERY == 0)
                    updates += 1
            except Exception:  # a picture that cannot be drawn must not leave the page standing still
                log.exception("the page could not be updated")
                self._end.wait(1.0)
