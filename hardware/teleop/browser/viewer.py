"""A page to look at, in a thread of its own, and a window for it.

The window is an installed Chromium, Chrome or Edge without its bars, else the system's browser.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import webbrowser
from typing import TYPE_CHECKING

from hardware.teleop.browser.served_page import ServedPage, viser_needed
from hardware.teleop.device import Status
from robolearn.core.errors import BadInput
from robots import RobotSpec

if TYPE_CHECKING:
    from hardware.teleop.browser.guarded_viser import GuardedViser
    from hardware.teleop.browser.page import ViewPage

APPS = (
    "google-chrome",
    "google-chrome-stable",
    "chromium",
    "chromium-browser",
    "microsoft-edge",
    "microsoft-edge-stable",
    "brave-browser",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
TEXT = {"www-browser", "links", "elinks", "lynx", "w3m"}  # would take the terminal, and cannot draw


def check_window() -> None:
    """Raise `BadInput` where no window can be opened: there is no display, or no browser."""
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform not in ("darwin", "win32") and not any(os.environ.get(name) for name in displays):
        raise BadInput(
            "--view window",
            got=f"no display ({' and '.join(displays)} are not set)",
            expected="a desktop",
            hint="--view browser prints an address for a browser that you open yourself",
        )
    if _app() is None and _browser() is None:
        raise BadInput("--view window", got="no browser", available=APPS[:-1])


def open_window(url: str) -> None:
    """Open `url`, an invitation: what a program is started with can be read by every user of the machine.

    Raises:
      BadInput: see `check_window`.
    """
    check_window()
    app = _app()
    if app is not None:
        quiet = subprocess.DEVNULL
        # In a session of its own: Ctrl-C in the terminal must not close the window that shows what it did.
        subprocess.Popen([app, f"--app={url}"], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    elif (browser := _browser()) is not None:
        browser.open_new(url)


def _app() -> str | None:
    return next(filter(None, map(shutil.which, APPS)), None)


def _browser() -> webbrowser.BaseBrowser | None:
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return None
    return None if os.path.basename(getattr(found, "name", "")) in TEXT else found


log = logging.getLogger(__name__)

UPDATE_HZ = 10.0  # of what the page shows
PICTURE_EVERY = 2  # updates


class Viewer(ServedPage["ViewPage"]):
    """Serves the page from `open` to `close`; while no browser has it open it draws nothing.

    Args:
      robot: the arm to draw.
      over: what the page says at the end.
    """

    def __init__(self, robot: RobotSpec, over: str = "The recording is over.") -> None:
        super().__init__()
        self._robot, self._over = robot, over
        self._status: Status | None = None

    def open(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve the page; on any free port where `port` is taken.

        Raises:
          BadInput: viser is not installed, or the address cannot be listened on.
        """
        with viser_needed("view"):
            from hardware.teleop.browser.auth_proxy import overlay
            from hardware.teleop.browser.guarded_viser import Place
            from hardware.teleop.browser.page import ViewPage

        def serve(guarded: GuardedViser) -> None:
            overlays = [overlay("hardware.teleop.browser", "pictures.html")]
            risk = "Whoever has this address can see the arm and its cameras."
            try:
                guarded.serve(Place(host, port), overlays, {}, risk, self._over)
            except BadInput:
                if port == 0:
                    raise
                # A page that is only looked at must not end the work.
                guarded.serve(Place(host, 0), overlays, {}, risk, self._over)

        self._serve(ViewPage(self._robot), serve, self._refresh, "view-page")

    @property
    def watched(self) -> bool:
        """True while a browser has the page open."""
        return self._page is not None and self._page.watched

    def show(self, status: Status) -> None:
        """Hand over to the page's thread; never waits."""
        self._status = status

    # ---------------------------------------------------------------------------------------------------------

    def _refresh(self, page: ViewPage) -> None:
        updates = 0
        while not self._end.wait(1.0 / UPDATE_HZ):
            status = self._status
            try:
                if status is not None and page.watched:
                    page.update(status, pictures=updates % PICTURE_EVERY == 0)
                    updates += 1
            except Exception:  # a picture that cannot be drawn must not leave the page standing still
                log.exception("the page could not be updated")
                self._end.wait(1.0)
