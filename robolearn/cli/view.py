"""``--view``: what happens, on a page of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from robolearn.cli.teleop_flags import shows_in_terminal

if TYPE_CHECKING:
    from hardware.teleop import Device
    from hardware.teleop.browser.viewer import Viewer
    from robots import RobotSpec

View = Literal["browser", "window", "none"]
TeleopView = Literal["auto", "browser", "window", "none"]


def chosen(view: TeleopView, teleop: str) -> View:
    """What ``auto`` means: a page for people who sit at a terminal with a device that has none."""
    if view != "auto":
        return view
    return "browser" if shows_in_terminal(teleop) and sys.stderr.isatty() else "none"


def check_view(view: str) -> None:
    """Raise `BadInput` where the window that is asked for cannot be opened."""
    if view == "window":
        from hardware.teleop.browser.window import check_window

        check_window()


def open_viewer(view: View, robot: RobotSpec, over: str, host: str = "127.0.0.1", port: int = 0) -> Viewer | None:
    """The page of `view`, its address printed; None for ``none``.

    Args:
      robot: the arm to draw.
      over: what the page says at the end.
      host, port: where it listens; a port that is taken is no fault.
    """
    if view == "none":
        return None
    from hardware.teleop.browser.viewer import Viewer

    viewer = Viewer(robot, over)
    viewer.open(host, port)
    # Not for logs: it has the token.
    print(f"to watch: {viewer.notice[:1].lower()}{viewer.notice[1:]}", file=sys.stderr, flush=True)
    if view == "window":
        from hardware.teleop.browser.window import open_window

        open_window(viewer.invitation())
    return viewer


def viewed(device: Device, own: Device, view: View, robot: RobotSpec, host: str, port: int) -> Device:
    """`device` with a page that shows its recording; the browser's own page is opened where a window is asked for.

    Args:
      device: what is recorded from.
      own: the operator's device in it, that may have a page.
      view: see `open_viewer`, as the rest.

    Raises:
      BadInput: the page cannot be served; the device is closed.
    """
    if view == "none":
        return device
    try:
        if hasattr(own, "invitation"):
            if view == "window":
                from hardware.teleop.browser.window import open_window

                open_window(own.invitation())  # type: ignore[attr-defined]
            return device
        from hardware.teleop.wrapped import Viewed

        viewer = open_viewer(view, robot, "The recording is over.", host, port)
        return device if viewer is None else Viewed(device, viewer)
    except BaseException:
        device.close()
        raise
