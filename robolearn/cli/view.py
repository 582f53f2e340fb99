"""``--view``: worlds or an arm on a page, while a command works in them."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from hardware.teleop.device import Status
from robolearn.cli.station_command import shows_in_terminal
from robolearn.core import BadInput, ChunkEnv, Env

if TYPE_CHECKING:
    from hardware.teleop import Device
    from hardware.teleop.browser.viewer import Viewer
    from robolearn.rollout.watched_env import Clip
    from robots.pair import AnyRobot
    from sim.registry import WorldConfig

View = Literal["browser", "window", "none"]
TeleopView = Literal["auto", "browser", "window", "none"]
_WORK = (
    "View of the work: browser prints the address of a page, window opens it. Shown are whole episodes of the first "
    "world, at the arm's own speed; that changes no result (our tasks)."
)
WorkView = Annotated[View, tyro.conf.arg(help=_WORK)]


def chosen(view: TeleopView, teleop: str) -> View:
    """``auto`` resolved: a page where the operator sits at a terminal with a device that has none, if viser is here."""
    if view != "auto":
        return view
    shown = shows_in_terminal(teleop) and sys.stderr.isatty() and importlib.util.find_spec("viser") is not None
    return "browser" if shown else "none"


def check_view(view: str) -> None:
    """Raise `BadInput` where the window that is asked for cannot be opened."""
    if view == "window":
        from hardware.teleop.browser.viewer import check_window

        check_window()


def open_viewer(view: View, robot: AnyRobot, over: str, host: str = "127.0.0.1", port: int = 0) -> Viewer | None:
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
        from hardware.teleop.browser.viewer import open_window

        open_window(viewer.invitation())
    return viewer


def viewed(device: Device, own: Device, view: View, robot: AnyRobot, host: str, port: int) -> Device:
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
                from hardware.teleop.browser.viewer import open_window

                open_window(own.invitation())  # type: ignore[attr-defined]
            return device
        from hardware.teleop.wrapped import Viewed

        viewer = open_viewer(view, robot, "The recording is over.", host, port)
        return device if viewer is None else Viewed(device, viewer)
    except BaseException:
        device.close()
        raise


END_S = 1.0  # to see how an episode ended
WINDOW_S = 20.0  # for a window to be there: an evaluation may be over in seconds
IDLE_S = 0.05


class Player:
    """Plays clips on a page at the control rate, in a thread of its own.

    Args:
      page: open; closed with this.
      state: what is done, in a word, as ``"learning"``.
      hz: of the frames.
    """

    def __init__(self, page: Viewer, state: str, hz: float) -> None:
        self._page, self._state, self._hz = page, state, hz
        self._next: Clip | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._play, name="view-clips", daemon=True)
        self._thread.start()

    @property
    def wants(self) -> bool:
        """True while the page is open and no clip waits."""
        return self._next is None and self._page.watched

    def give(self, clip: Clip) -> None:
        """Play it next."""
        self._next = clip

    def close(self) -> None:
        """Close the page."""
        self._end.set()
        self._thread.join(timeout=5.0)
        self._page.close()

    def _play(self) -> None:
        while not self._end.wait(IDLE_S):
            if (clip := self._next) is None:
                continue
            self._next = None
            last = len(clip.frames) - 1
            for i, (joints, opening, scene) in enumerate(clip.frames):
                message = " · ".join(filter(None, (clip.outcome if i == last else "", clip.note)))
                self._page.show(
                    Status(self._state, message, clip.number, 0, i, i / self._hz, joints, opening=opening, scene=scene)
                )
                if self._end.wait(END_S if i == last else 1.0 / self._hz):
                    return


def check_watched(view: View, world: WorldConfig) -> None:
    """Raise `BadInput` where the worlds cannot be shown as is asked for."""
    if view != "none" and not world.family.has_scene:
        raise BadInput(
            "--view", got=f"task {world.task}", expected="a task of ours: its worlds report their bodies' poses"
        )
    if view != "none" and world.workers:
        raise BadInput(
            "--view", got=f"with --workers {world.workers}", expected="one of them: a page shows worlds here"
        )
    check_view(view)


def watched(env: Env, view: View, state: str, over: str) -> Env:
    """`env`, or with a page that shows its first world; closed with it. A window is waited for, up to `WINDOW_S`.

    Args:
      env: the worlds.
      view: where.
      state: what is done, in a word.
      over: what the page says at the end.
    """
    if view == "none":
        return env
    from robots import robot_named

    robot = robot_named(env.interface.embodiment)
    try:
        viewer = open_viewer(view, robot, over)
    except BaseException:
        env.close()
        raise
    assert viewer is not None
    end = time.monotonic() + WINDOW_S
    while view == "window" and not viewer.watched and time.monotonic() < end:
        time.sleep(IDLE_S)
    from robolearn.rollout.watched_env import WatchedEnv  # late: it brings torch, and `--help` does without

    found: Env = WatchedEnv(
        env, Player(viewer, state, env.interface.control_hz), [len(part.robot.joints) for part in robot.parts]
    )
    assert isinstance(found, ChunkEnv)
    return found


def noting(env: Env) -> Callable[[str], None]:
    """A function of a line about the work, which is shown beside the episodes to come."""

    from robolearn.rollout.watched_env import WatchedEnv

    def note(line: str) -> None:
        if isinstance(env, WatchedEnv):
            env.note = line

    return note
