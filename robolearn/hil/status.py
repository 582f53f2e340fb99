"""What a person is shown of the loop, and what they ask of it: the two words between loop and console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core.scene import Scene

NAN = float("nan")


class HilCommand(StrEnum):
    """What the person asks of the loop."""

    TAKE_OVER = "take_over"  # the person moves the arm
    HAND_BACK = "hand_back"  # the policy does
    STOP = "stop"  # the arm stands until RELEASE, whatever else is asked
    RELEASE = "release"  # the stop is over: the arm may be armed again
    SUCCESS = "success"  # end the episode: the task is solved
    FAILURE = "failure"  # end it: it is not
    RETURN = "return"  # end it without a label and put the arm back to its start


class InControl(StrEnum):
    """Who moves the arm."""

    POLICY = "policy"
    PERSON = "person"
    NOBODY = "nobody"  # it stands, or is being put back


@dataclass(frozen=True)
class HilMetrics:
    """One point of each curve; NaN: not known yet.

    Attributes:
      robot_minutes: time of the robot so far [min]: the curves' x.
      success: share of the last episodes without help, 0 … 1.
      intervention_rate: share of the last steps that the person made, 0 … 1.
      cycle_s: of a successful episode [s].
      q: mean value of the critics.
      utd: updates of the critics per transition, as it was kept.
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
    """How the loop is at one moment.

    Attributes:
      in_control: who moves the arm.
      episode: number of the episode at hand, from 0.
      seconds: time in it [s].
      robot_minutes: time of the robot so far [min].
      message: one line for the person; mostly empty.
      in_control_s: how long the one in control has been [s].
      stopped: why the arm was stopped, by whomever; empty: it was not.
      asks_help: the policy is unsure and asks the person to watch.
      metrics: the newest point of the curves, or None.
      joints: (n,) measured joint positions [rad], or None.
      opening: of the gripper, measured [m]; NaN: not known.
      images: camera name → (H, W, 3) uint8.
      scene: what stands around the arm, from a simulation; None on a real one.
    """

    in_control: InControl
    episode: int
    seconds: float
    robot_minutes: float
    message: str = ""
    in_control_s: float = 0.0
    stopped: str = ""
    asks_help: bool = False
    metrics: HilMetrics | None = None
    joints: NDArray[np.float64] | None = None
    opening: float = NAN
    images: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    scene: Scene | None = None


class Console(Protocol):
    """Where the loop shows itself and hears of the person; neither call ever waits."""

    def show(self, status: HilStatus) -> None:
        """Show it; as often as the loop likes, the newest counts."""
        ...

    def poll(self) -> tuple[HilCommand, ...]:
        """What was asked since the last call, in order. STOP comes again with every call until RELEASE."""
        ...
