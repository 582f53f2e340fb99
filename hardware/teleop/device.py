"""Interface of a teleoperation device (one action and some events at every control step, a screen) and of its config.

The loop that records calls `Device.sample` at the control rate and never waits for it. A device reads its hardware in
whatever way it must (a thread, an event queue), keeps the newest report, and stamps it with `time.monotonic()`. A
config is light to import, for the command line is made of them: the device's library, and `robots`, come when it is
built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robolearn.core.scene import Scene
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots import RobotSpec

Clock = Callable[[], float]  # steady seconds
WAITING = "waiting"  # `Status.state`: for START
RECORDING = "recording"


class EpisodeEvent(StrEnum):
    """Command of the operator to the recording."""

    START = "start"  # begin an episode
    SUCCESS = "success"  # end it: the task was solved
    FAILURE = "failure"  # end it: the task was not solved
    DISCARD = "discard"  # drop it and wait for START
    REDO = "redo"  # drop it and begin it anew
    QUIT = "quit"  # end the recording


@dataclass(frozen=True)
class Sample:
    """Output of a device at one control step.

    Attributes:
      action: (Da,) in [-1, 1], in the units of the interface's action; None: hold still.
      engaged: the operator holds the dead-man. A device without one: it is open and alive. A device that went silent
        or was unplugged is never engaged again until it is opened anew.
      events: what the operator asked since the last sample, in order.
      stamp: `time.monotonic()` of the newest report of the device [s].
      note: one line for the operator: why the device is not engaged, what it waits for; mostly empty.
      intervention: a person moves the arm in the place of a policy.
      released: whether the operator let go of the dead-man on purpose, and did not lose it by a silence; None where
        the device cannot tell.
      automatic: no hand but a policy asks for this action; it counts only while an episode runs.
      stopped: why that policy moves the arm no more; empty while it does.
      later: in place of `action`: its action for this control step, or None where it has not come yet; called until it
        has, and only while an episode runs.
    """

    action: NDArray[np.float32] | None
    engaged: bool
    events: tuple[EpisodeEvent, ...]
    stamp: float
    note: str = ""
    intervention: bool = False
    released: bool | None = None
    automatic: bool = False
    stopped: str = ""
    later: Callable[[], NDArray[np.float32] | None] | None = None


@dataclass(frozen=True)
class Status:
    """State of the recording, for the operator's screen.

    Attributes:
      state: `WAITING` for START, `RECORDING`, or another word while the recording is busy, as ``"resetting"``.
      message: one line for the operator.
      episode: number of the episode at hand, from 0.
      episodes: how many are to be recorded; 0: as many as it takes.
      step: control steps of the episode so far.
      seconds: time in the episode so far [s].
      joints: (n,) measured joint positions [rad], or None.
      opening: of the gripper, measured [m], of two arms (2,); NaN: not known.
      scene: what stands around the arm, from a simulation; None on a real one. For people's eyes alone.
      images: camera name → (H, W, 3) uint8.
    """

    state: str
    message: str
    episode: int
    episodes: int
    step: int
    seconds: float
    joints: NDArray[np.float64] | None = None
    opening: float | NDArray[np.float64] = float("nan")
    scene: Scene | None = None
    images: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)


@runtime_checkable
class Device(Protocol):
    """A teleoperation device, opened once, sampled at the control rate, closed once."""

    name: str

    def open(self) -> None:
        """Find the device and begin to listen.

        Raises:
          BadInput: it is not there, or its library is missing; the message has what was found and what to do.
        """

    def close(self) -> None:
        """Let go of the device; more than once is no fault."""

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """The operator's input of now; never blocks.

        Args:
          observation: feature → (…), without a world axis; None before the first one.
        """
        ...

    def prepared(self) -> None:
        """The arm was put in its place and armed: what the device has stored of it may not hold any more.

        Called before the first sample that moves it, in the same thread.
        """

    def show(self, status: Status) -> None:
        """Show it to the operator, on a screen, a page or nowhere."""


@dataclass(frozen=True)
class TeleopConfig:
    """One sort of device; its fields are options of the constructor, those made by `flag` flags of the commands.

    Attributes:
      name: on the command line.
      help: keys or buttons, in one line.
      has_deadman: the operator holds a switch while the arm moves; without one a clutch takes over (`Clutch`).
      is_person: a person is at the device, who can take over from a policy.
      shows_in_terminal: the state of the recording is a status line of the terminal; the device has no page.
      needs_terminal: keys come from a terminal, which launch files do not have.
      has_flags: the commands offer it; False where it needs what no flag can say.
      station: the contract of an arm that it commands.
      simulated: the arm that it commands is, so that a device may be less strict.
    """

    name: ClassVar[str]
    help: ClassVar[str] = ""
    has_deadman: ClassVar[bool] = False
    is_person: ClassVar[bool] = True
    shows_in_terminal: ClassVar[bool] = True
    needs_terminal: ClassVar[bool] = False
    has_flags: ClassVar[bool] = True
    station: ClassVar[str] = "sim"

    simulated: bool = field(default=False, kw_only=True)

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> Device:
        """The device, not yet opened; `parts` of its constructor: ``clock``, ``out``, and the like.

        Raises:
          BadInput: it cannot command this kind of action or arm, or an option is out of range.
        """
        raise NotImplementedError

    def for_arms(self, arms: tuple[str, ...]) -> tuple[TeleopConfig, ...]:
        """Configs of the devices that command `arms`: one for each, or one for all of them; none where it commands no
        more than one arm.

        Raises:
          BadInput: an option does not say what each arm's is.
        """
        return (self,) if len(arms) == 1 else ()

    @classmethod
    def flags(cls) -> dict[str, Field[Any]]:
        """Flag → the field behind it."""
        return {one.metadata["flag"]: one for one in fields(cls) if "flag" in one.metadata}


def flag(name: str, default: Any, help: str) -> Any:
    """A field that is the flag `name` of the commands; its `help` is one sentence, to which the devices are added."""
    return field(default=default, metadata={"flag": name, "help": help})


@dataclass(frozen=True)
class Flag:
    """A flag of the commands: type and default of its value, and its help with the devices that take it."""

    type: Any
    default: Any
    help: str
