"""A page to look at, in a thread of its own, and a window for it.

The window is an installed Chromium, Chrome or Edge without its bars, else the system's browser.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hardware.teleop.browser import Place, ServedPage
from hardware.teleop.device import Status
from robolearn.core.errors import BadInput
from robots.pair import AnyRobot

if TYPE_CHECKING:
    from hardware.teleop.browser.page import ViewPage

APPS = (
    "google-chrome", "google-chrome-stable", "chromium", "chromium-browser", "microsoft-edge", "microsoft-edge-stable",
    "brave-browser", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)  # fmt: skip
TEXT = {"www-browser", "links", "elinks", "lynx", "w3m"}  # would take the terminal, and cannot draw


def check_window() -> Callable[[str], object]:
    """The function that opens an address in a window; raises `BadInput` where there is no display, or no browser."""
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform not in ("darwin", "win32") and not any(os.environ.get(name) for name in displays):
        got = f"no display ({' and '.join(displays)} are not set)"
        hint = "--view browser prints an address for a browser that you open yourself"
        raise BadInput("--view window", got=got, expected="a desktop", hint=hint)
    if (app := next(filter(None, map(shutil.which, APPS)), None)) is not None:
        # In a session of its own: Ctrl-C in the terminal must not close the window that shows what it did.
        options: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        return lambda url: subprocess.Popen([app, f"--app={url}"], start_new_session=True, **options)
    with contextlib.suppress(webbrowser.Error):
        browser = webbrowser.get()
        if os.path.basename(getattr(browser, "name", "")) not in TEXT:
            return browser.open_new
    raise BadInput("--view window", got="no browser", available=APPS[:-1])


def open_window(url: str) -> None:
    """Open `url`, an invitation: what a program is started with can be read by every user of the machine.

    Raises:
      BadInput: see `check_window`.
    """
    check_window()(url)


PICTURE_EVERY = 2  # updates


class Viewer(ServedPage["ViewPage"]):
    """A page to look at, from `open` to `close`; it draws nothing while no browser has it open, and says `over`."""

    what, update_hz = "view", 10.0

    def __init__(self, robot: AnyRobot, over: str = "The recording is over.") -> None:
        super().__init__()
        self._robot, self._over = robot, over
        self.status: Status | None = None
        self._updates = 0

    def open(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve the page; on any free port where `port` is taken.

        Raises:
          BadInput: viser is not installed, or the address cannot be listened on.
        """
        try:
            self._open(Place(host, port))
        except BadInput:
            if port == 0:
                raise
            self._open(Place(host))  # a page that is only looked at must not end the work

    @property
    def watched(self) -> bool:
        """True while a browser has the page open."""
        return self.page is not None and self.page.watched

    def show(self, status: Status) -> None:
        """Hand over to the page's thread; never waits."""
        self.status = status

    def _make(self) -> tuple[ViewPage, Callable[[Place], None]]:
        from hardware.teleop.browser.page import ViewPage

        page, risk = ViewPage(self._robot), "Whoever has this address can see the arm and its cameras."
        return page, partial(page.guarded.serve, risk=risk, over=self._over)

    def _update(self, page: ViewPage) -> None:
        status = self.status
        if status is not None and page.watched:
            page.update(status, pictures=self._updates % PICTURE_EVERY == 0)
            self._updates += 1
