"""A policy around another one, to which all that a wrapper does not change is passed on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ActionChunk, Interface, Observation, Policy


class PolicyWrapper:
    """Implements `robolearn.core.Policy`; a subclass overrides what it changes.

    Attributes:
      policy: the one inside.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.interface, self.execute_steps = policy.interface, policy.execute_steps
        self.observes_every_step = policy.observes_every_step

    def bind(self, offered: Interface) -> None:
        """See `Policy.bind`."""
        self.policy.bind(offered)

    def reset(self, seed: int) -> None:
        """See `Policy.reset`."""
        self.policy.reset(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """See `Policy.begin`."""
        self.policy.begin(worlds)

    def seen(self, observation: Observation) -> Observation:
        """The observation that the policy inside gets."""
        return observation

    def observe(self, observation: Observation) -> None:
        """See `Policy.observe`."""
        self.policy.observe(self.seen(observation))

    def act(self, observation: Observation) -> ActionChunk:
        """See `Policy.act`."""
        return self.policy.act(self.seen(observation))
