"""The operator's console as an actor uses it: the state of the loop out, the operator's commands in.

An actor calls an `OperatorConsole` with an `ActorStatus` at each control step. `PageConsole` is the one whose view is a
page (`robolearn.hil.console.WebConsole`, or any other `StatusPage`), which shows a `HilStatus`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Interface, Observation
from robolearn.core.scene import Scene
from robolearn.hil.wire.messages import LearnerProgress, Period

NAN = float("nan")
CURVES_S = 1.0  # between two points of the curves
POLL_S = 0.02
IMAGES, WIDTH = "images.", "gripper_width"


class OperatorCommand(StrEnum):
    """A request of the operator to the loop."""

    TAKE_OVER = "take_over"  # the operator's device commands from the next step on
    HAND_BACK = "hand_back"  # the policy does
    SUCCESS = "success"  # end the episode: the task is solved
    FAILURE = "failure"  # end it: it is not
    RETURN = "return"  # end it without a label and put the arm back to its start
    QUIT = "quit"  # end the episode and the actor
    STOP = "stop"  # the arm stands until RELEASE, whatever else is asked
    RELEASE = "release"  # the stop is over: the arm may be armed again


class InControl(StrEnum):
    """The party that moves the arm."""

    POLICY = "policy"
    PERSON = "person"
    NOBODY = "nobody"  # it stands, or is being put back


@dataclass(frozen=True)
class ActorStatus:
    """One control step, as a console shows it.

    Attributes:
      episode, step: numbers, from 0.
      observation: feature → (1, …), before the step; all that the world shows.
      operator: the operator commands, not the policy; None: neither does.
      version: of the weights in use.
      period: of the control steps so far.
      linked: the learner answers.
      unsent: records that the learner has not acknowledged.
      progress: of the learner.
      executed: (Da,) the action of the step before; None at an episode's first.
      asks_help: the policy is uncertain of its running chunk.
      question: to the person who labels the episode that has ended; mostly empty.
    """

    episode: int
    step: int
    observation: Observation
    operator: bool | None
    version: int
    period: Period
    linked: bool
    unsent: int
    progress: LearnerProgress
    executed: NDArray[np.float32] | None = None
    asks_help: bool = False
    question: str = ""


class OperatorConsole(Protocol):
    """Source of the operator's commands. Both methods are called once before each control step, `show` first, and
    return at once, unless the operator holds a simulated world."""

    def poll(self) -> Sequence[OperatorCommand]:
        """Commands since the last call, oldest first."""
        ...

    def show(self, status: ActorStatus) -> None:
        """Keep the newest status for display."""
        ...


@dataclass(frozen=True)
class HilMetrics:
    """One point of each curve; NaN: unknown.

    Attributes:
      robot_minutes: time of the robot so far [min]: the curves' x.
      success: share of the last episodes without help, 0 … 1.
      intervention_rate: share of the last steps that the operator commanded, 0 … 1.
      cycle_s: of a successful episode [s].
      q: mean value of the critics.
      utd: updates of the critics per transition.
      latency_ms: from observation to command, 99th percentile [ms].
    """

    robot_minutes: float
    success: float = NAN
    intervention_rate: float = NAN
    cycle_s: float = NAN
    q: float = NAN
    utd: float = NAN
    latency_ms: float = NAN


CURVES = tuple(f.name for f in fields(HilMetrics) if f.name != "robot_minutes")


@dataclass(frozen=True, eq=False)
class HilStatus:
    """State of the loop at one moment.

    Attributes:
      episode: number of the running episode, from 0.
      seconds: time in it [s].
      robot_minutes: time of the robot so far [min].
      message: one line for the operator; mostly empty.
      in_control_s: time since control changed [s].
      stopped: reason of a stop; empty: there is none.
      asks_help: the policy is uncertain and asks the operator to watch.
      asks_label: the episode that has ended is to be labelled.
      metrics: the newest point of the curves, or None.
      joints: (n,) measured joint positions [rad], or None.
      opening: of the gripper, measured [m]; NaN: unknown.
      images: camera name → (H, W, 3) uint8.
      scene: bodies around the arm, from a simulation; None on a real one.
    """

    in_control: InControl
    episode: int
    seconds: float
    robot_minutes: float
    message: str = ""
    in_control_s: float = 0.0
    stopped: str = ""
    asks_help: bool = False
    asks_label: bool = False
    metrics: HilMetrics | None = None
    joints: NDArray[np.float64] | None = None
    opening: float = NAN
    images: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    scene: Scene | None = None


class StatusPage(Protocol):
    """A view of the loop with buttons; neither call ever waits."""

    def show(self, status: HilStatus) -> None:
        """Show `status`; the newest counts."""
        ...

    def poll(self) -> Sequence[OperatorCommand]:
        """Commands since the last call, in order. STOP comes again with every call until RELEASE."""
        ...


class PageConsole:
    """An `OperatorConsole` with a `StatusPage`.

    STOP holds a simulated world, in `poll`, until it is released. On an arm it is passed on, as long as it lasts.

    Args:
      interface: of the world; joints and the gripper's width are looked up by their names in ``proprio``.
      joints: names of the arm's.
      scene: returns the bodies around the arm, as they are now.
      ending: true once the actor is to end; nothing is held then.
      holds: the world's clock waits; false on an arm.
    """

    def __init__(
        self,
        page: StatusPage,
        interface: Interface,
        joints: Sequence[str],
        scene: Callable[[], Scene] | None = None,
        ending: Callable[[], bool] = lambda: False,
        holds: bool = True,
    ) -> None:
        self._page, self._hz, self._scene, self._ending, self._holds = page, interface.control_hz, scene, ending, holds
        names = interface.observation["proprio"].names if "proprio" in interface.observation else ()
        self._joints = [names.index(joint) for joint in joints] if set(joints) <= set(names) else []
        self._width = names.index(WIDTH) if WIDTH in names else None
        self._steps = self._since = 0
        self._in_control = InControl.POLICY
        self._drawn_s = -CURVES_S

    def show(self, status: ActorStatus) -> None:
        in_control = {True: InControl.PERSON, False: InControl.POLICY, None: InControl.NOBODY}[status.operator]
        self._since = self._since + 1 if in_control is self._in_control else 0
        self._in_control = in_control
        self._steps += status.operator is not None
        proprio = status.observation.get("proprio")
        unlinked = "The learner does not answer: transitions are kept here until it does."
        self._page.show(
            HilStatus(
                in_control=in_control,
                episode=status.episode,
                seconds=status.step / self._hz,
                robot_minutes=self._steps / self._hz / 60.0,
                message=status.question if status.linked else unlinked,
                asks_label=bool(status.question),
                in_control_s=self._since / self._hz,
                asks_help=status.asks_help,
                metrics=self._metrics(status),
                joints=None if proprio is None or not self._joints else proprio[0, self._joints].astype(float),
                opening=NAN if proprio is None or self._width is None else float(proprio[0, self._width]),
                images={
                    key.removeprefix(IMAGES): value[0]
                    for key, value in status.observation.items()
                    if key.startswith(IMAGES)
                },
                scene=None if self._scene is None else self._scene(),
            )
        )

    def poll(self) -> Sequence[OperatorCommand]:
        stop, release = OperatorCommand.STOP, OperatorCommand.RELEASE
        commands = self._page.poll()
        if not self._holds:
            return commands
        while stop in commands and release not in commands and not self._ending():
            time.sleep(POLL_S)
            commands = self._page.poll()
        return [command for command in commands if command not in (stop, release)]

    def _metrics(self, status: ActorStatus) -> HilMetrics | None:
        if time.monotonic() - self._drawn_s < CURVES_S:
            return None
        self._drawn_s, learner = time.monotonic(), status.progress
        return HilMetrics(
            robot_minutes=self._steps / self._hz / 60.0,
            success=learner.success,
            intervention_rate=learner.intervention_rate,
            q=learner.q,
            utd=learner.updates / learner.env_steps if learner.env_steps else NAN,
            latency_ms=status.period.p99 if status.period.count else NAN,
        )
