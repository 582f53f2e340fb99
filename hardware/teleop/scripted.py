"""A script in the operator's place: it starts each episode, acts, and judges whether the task was solved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.device import RECORDING, WAITING, Clock, Device, EpisodeEvent, Sample, Status, TeleopConfig
from robolearn.core.errors import BadInput
from robolearn.core.protocols import Teleoperator
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots import RobotSpec

ASK_AGAIN_S = 2.0  # a START that was not received


@dataclass(frozen=True)
class ScriptedConfig(TeleopConfig):
    """A script, on the simulated arm by itself.

    Attributes:
      teleoperator: the script, for one world.
      succeeded: whether the task is solved now; called at every step of an episode.
      max_steps: steps after which an episode has failed.
    """

    name: ClassVar[str] = "scripted"
    is_person: ClassVar[bool] = False
    shows_in_terminal: ClassVar[bool] = False

    teleoperator: Teleoperator | None = None
    succeeded: Callable[[], bool] | None = None
    max_steps: int = 400

    def for_arms(self, arms: tuple[str, ...]) -> tuple[TeleopConfig, ...]:
        """This one, for all arms."""
        return (self,)

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> Scripted:
        return Scripted(interface, self, **parts)


class Scripted(Device):
    """A `Device` of a `robolearn.core.Teleoperator` for one world.

    Where the recording shows its state, the script acts while it records and asks for the next episode while it waits.
    Where nothing is shown, START opens the first episode and each end is followed by a START.
    """

    name = "scripted"

    def __init__(self, interface: Interface, config: ScriptedConfig, clock: Clock = time.monotonic) -> None:
        if config.teleoperator is None or config.succeeded is None:
            raise BadInput("scripted", got="no script", expected="a teleoperator, and a test of success")
        if config.max_steps < 1:
            raise BadInput("scripted: max_steps", got=config.max_steps, expected="at least 1")
        self._teleoperator, self._succeeded, self._max_steps = config.teleoperator, config.succeeded, config.max_steps
        self._interface, self._clock = interface, clock
        self._state: str | None = None  # what the recording showed; None: nothing
        self._open, self._running, self._steps = False, False, 0
        self._asked = -np.inf  # when START was

    def open(self) -> None:
        self._open, self._running, self._state, self._asked = True, False, None, -np.inf

    def close(self) -> None:
        self._open = False

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        now = self._clock()
        if not self._open:
            return Sample(None, False, (), now, "scripted: closed")
        if observation is None:
            return Sample(None, True, (), now)
        if not self._running:
            if self._state is not None and self._state != RECORDING:
                asks = self._state == WAITING and now - self._asked >= ASK_AGAIN_S
                self._asked = now if asks else self._asked
                return Sample(None, True, (EpisodeEvent.START,) if asks else (), now)
            self._teleoperator.reset(np.ones(1, dtype=bool))
            self._running, self._steps = True, 0
            if self._state is None:
                return Sample(self._act(observation), True, (EpisodeEvent.START,), now)
        if self._succeeded():
            return Sample(None, True, self._end(EpisodeEvent.SUCCESS), now)
        if self._steps >= self._max_steps:
            return Sample(None, True, self._end(EpisodeEvent.FAILURE), now)
        return Sample(self._act(observation), True, (), now)

    def show(self, status: Status) -> None:
        if status.state != self._state:
            self._running = False  # begun anew, or ended from elsewhere
            self._asked = -np.inf
        self._state = status.state

    def _end(self, event: EpisodeEvent) -> tuple[EpisodeEvent, ...]:
        self._running = False
        if self._state == RECORDING:
            self._state = ""  # until the recording shows what it does next
        return (event,)

    def _act(self, observation: Mapping[str, NDArray]) -> NDArray[np.float32]:
        self._steps += 1
        specs = self._interface.observation
        one_world = {
            key: value[None] if key in specs and np.ndim(value) <= len(specs[key].shape) else np.asarray(value)
            for key, value in observation.items()
        }
        return np.asarray(self._teleoperator.command(one_world), dtype=np.float32)[0]
