"""``--view``: worlds or an arm on a page, while a command works in them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.cli.teleop_flags import shows_in_terminal
from robolearn.core import BadInput, ChunkEnv, Env, Interface, Observation
from robolearn.core.protocols import StepResult
from robolearn.core.scene import Scene

if TYPE_CHECKING:
    from hardware.teleop import Device
    from hardware.teleop.browser.viewer import Viewer
    from hardware.teleop.device import Status
    from robots import RobotSpec
    from sim.registry import WorldConfig

View = Literal["browser", "window", "none"]
TeleopView = Literal["auto", "browser", "window", "none"]


def chosen(view: TeleopView, teleop: str) -> View:
    """``auto`` resolved: a page where the operator sits at a terminal with a device that has none."""
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


END_S = 1.0  # to see how an episode ended
WINDOW_S = 20.0  # for a window to be there: an evaluation may be over in seconds
IDLE_S = 0.05


class ViewerPage(Protocol):
    """The page that shows a clip; `hardware.teleop.browser.viewer.Viewer`."""

    @property
    def watched(self) -> bool: ...

    def show(self, status: Status) -> None: ...

    def close(self) -> None: ...


@dataclass
class Clip:
    """One episode of the first world.

    Attributes:
      number: the how-many-th of that world, from 0.
      frames: before each control step: (n,) joints [rad], opening of the gripper [m], what stands around.
      outcome: in a word, once it has ended.
      note: what was known of the work when it ended.
    """

    number: int
    frames: list[tuple[NDArray[np.float64], float, Scene]] = field(default_factory=list)
    outcome: str = ""
    note: str = ""


class Player:
    """Plays clips on a page at the control rate, in a thread of its own.

    Args:
      page: open; closed with this.
      state: what is done, in a word, as ``"learning"``.
      hz: of the frames.
    """

    def __init__(self, page: ViewerPage, state: str, hz: float) -> None:
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
        from hardware.teleop.device import Status

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


class WatchedEnv:
    """A `ChunkEnv`: `env`, whose first world is shown on a page.

    Args:
      env: embedded worlds.
      player: plays what is noted.
      joints: of the arm, n; `proprio` begins with their positions, then comes the opening of the gripper.
    """

    def __init__(self, env: Any, player: Player, joints: int) -> None:
        self._env, self._player, self._n = env, player, joints
        self.num_envs: int = env.num_envs
        self.interface: Interface = env.interface
        self.task: str = env.task
        self.prompt: str = env.prompt
        self.max_episode_steps: int = env.max_episode_steps
        self.reports_success: bool = env.reports_success
        self.continuing: bool = env.continuing
        self.steps_together: bool = env.steps_together
        self.note = ""
        self._observation: Observation = {}
        self._number = -1
        self._clip: Clip | None = None  # of the running episode, where it is noted from its beginning

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        """See `Env.reset`."""
        self._observation, infos = self._env.reset(seed=seed, options=options)
        self._begin()
        return self._observation, infos

    def step(self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """See `Env.step`."""
        if active is None or active[0]:
            self._note(self._observation)
        result = self._env.step(actions, active)
        self._observation, _, terminated, truncated, infos = result
        if (active is None or active[0]) and (terminated[0] or truncated[0]):
            self._ended(infos.get("success"))
        return result

    def step_chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """See `ChunkEnv.step_chunk`."""
        if self._clip is None:
            result = self._env.step_chunk(chunks, active)
        else:
            result = self._noted_chunk(chunks, np.ones(self.num_envs, np.bool_) if active is None else active)
        self._observation, _, terminated, truncated, infos = result
        if (active is None or active[0]) and (terminated[0] or truncated[0]):
            self._ended(infos.get("success"))
        return result

    def snapshot(self) -> dict[str, NDArray] | None:
        """See `Env.snapshot`."""
        return self._env.snapshot()

    def restore(self, snapshot: dict[str, NDArray]) -> Observation:
        """See `Env.restore`; the running episode is not shown."""
        self._observation, self._clip = self._env.restore(snapshot), None
        return self._observation

    def frame(self, world: int = 0) -> NDArray[np.uint8] | None:
        """See `Env.frame`."""
        return self._env.frame(world)

    def close(self, **kwargs: Any) -> None:
        """Close the page and the worlds."""
        self._player.close()
        self._env.close(**kwargs)

    # ---------------------------------------------------------------------------------------------------------

    def _noted_chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_]) -> StepResult:
        def before(a: int, observation: Observation, going: NDArray[np.bool_]) -> None:
            if going[0]:
                self._note(observation)

        from robolearn.rollout.chunks import execute  # late: it brings torch, and `--help` does without

        out = execute(self._env, chunks, active, self._observation, before)
        ended = out.terminated | out.truncated
        infos: dict[str, Any] = {"steps": out.steps, "step_rewards": out.rewards, "_final_obs": ended}
        if out.success is not None:
            infos["success"] = out.success
        if ended.any():
            infos["final_obs"] = out.final
        return out.observation, out.rewards.sum(axis=1), out.terminated, out.truncated, infos

    def _begin(self) -> None:
        self._number += 1
        self._clip = Clip(self._number) if self._player.wants else None

    def _note(self, observation: Observation) -> None:
        if self._clip is not None:
            proprio = observation["proprio"][0]
            joints, opening = proprio[: self._n].astype(np.float64), float(proprio[self._n])
            self._clip.frames.append((joints, opening, self._env.scene(0)))

    def _ended(self, success: NDArray[np.bool_] | None) -> None:
        if self._clip is not None:
            self._clip.outcome = "" if success is None else "solved" if success[0] else "not solved"
            self._clip.note = self.note
            self._player.give(self._clip)
        self._begin()


def check_watched(view: View, world: WorldConfig) -> None:
    """Raise `BadInput` where the worlds cannot be shown as is asked for."""
    if view != "none" and not world.family.has_scene:
        raise BadInput(
            "--view", got=f"task {world.task}", expected="a task of ours: its worlds say where their bodies are"
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
    from robots import ROBOTS

    robot = ROBOTS[env.interface.embodiment]
    try:
        viewer = open_viewer(view, robot, over)
    except BaseException:
        env.close()
        raise
    assert viewer is not None
    end = time.monotonic() + WINDOW_S
    while view == "window" and not viewer.watched and time.monotonic() < end:
        time.sleep(IDLE_S)
    found: Env = WatchedEnv(env, Player(viewer, state, env.interface.control_hz), len(robot.joints))
    assert isinstance(found, ChunkEnv)
    return found


def noting(env: Env) -> Callable[[str], None]:
    """A function of a line about the work, which is shown beside the episodes to come."""

    def note(line: str) -> None:
        if isinstance(env, WatchedEnv):
            env.note = line

    return note
