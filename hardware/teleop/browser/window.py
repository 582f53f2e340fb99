"""A page in a window of its own: an installed Chromium, Chrome or Edge without its bars, else the system's browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import webbrowser

from robolearn.core.errors import BadInput

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
