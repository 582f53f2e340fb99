"""What acts in the worlds: a policy, a teleoperator, or an RL algorithm, seen alike by the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, NonFinite, Observation, Policy, Teleoperator


@dataclass(frozen=True)
class Decision:
    """What N worlds are to do next.

    Attributes:
      chunk: (N, Ta, Da) actions in [-1, 1]; rows of worlds that were not asked for are never executed.
      aux: name → (N, …) arrays or tensors that the update of an algorithm needs, e.g. the chain of a sampler.
    """

    chunk: NDArray[np.float32]
    aux: dict[str, Any] = field(default_factory=dict)


class Agent(Protocol):
    """Decides for N worlds.

    Attributes:
      observes_every_step: whether `observe` is to be called at the steps between two decisions.
    """

    observes_every_step: bool

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """New episodes begin in the worlds (N,) that are true."""
        ...

    def observe(self, observation: Observation) -> None:
        """The observation of a step at which nothing is decided."""
        ...

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        """A decision for the worlds (N,) that are true; `observation` holds all N.

        The arrays of `observation` may be written over by the next step: what is kept must be copied.
        """
        ...


class PolicyAgent:
    """A `Policy`, its chunks checked.

    Raises (from `decide`):
      BadInput: chunks of another shape than the policy's interface states.
      NonFinite: NaN or infinity in a world that is to be moved.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.observes_every_step = policy.observes_every_step

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self.policy.begin(worlds)

    def observe(self, observation: Observation) -> None:
        self.policy.observe(observation)

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        chunks = np.asarray(self.policy.act(observation), dtype=np.float32)
        n, ta, da = len(worlds), self.policy.execute_steps, self.policy.interface.action.size
        if chunks.ndim != 3 or chunks.shape[0] != n or chunks.shape[1] < ta or chunks.shape[2] != da:
            raise BadInput("policy: action chunk", got=chunks.shape, expected=f"({n}, Tp ≥ {ta}, {da})")
        chunks = np.ascontiguousarray(chunks[:, :ta])
        if not np.isfinite(chunks[worlds]).all():
            raise NonFinite("policy: its actions are NaN or infinite; is the checkpoint damaged?")
        return Decision(chunks)


class TeleoperatorAgent:
    """A `Teleoperator`: one action at a time, kept with the observation that it answers."""

    observes_every_step = False

    def __init__(self, teleoperator: Teleoperator) -> None:
        self.teleoperator = teleoperator

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self.teleoperator.reset(worlds)

    def observe(self, observation: Observation) -> None:
        """Every step is a decision."""

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        # A copy: the teleoperator may write its next command into the same array.
        return Decision(np.array(self.teleoperator.command(observation), dtype=np.float32)[:, None])
