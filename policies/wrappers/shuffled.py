"""A policy that is shown some features of another world: what success falls to says how much it relies on them.

    act(o)_w = π(o_w without k, o_{w+1 mod N}[k])       k the shuffled features, w of N worlds

Permutation importance (Breiman 2001), per decision: each feature is still one that occurs, only of somewhere else.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ActionChunk, BadInput, Interface, Observation, Policy


class ShuffledPolicy:
    """Implements `robolearn.core.Policy` around another one.

    Args:
      features: of its observation that come from the next world.

    Raises:
      BadInput: it does not see one of them.
    """

    def __init__(self, policy: Policy, features: Collection[str]) -> None:
        for key in features:
            if key not in policy.interface.observation:
                raise BadInput("--shuffle", got=key, available=policy.interface.observation)
        self._policy, self._features = policy, tuple(features)
        self.interface, self.execute_steps = policy.interface, policy.execute_steps
        self.observes_every_step = policy.observes_every_step

    def bind(self, offered: Interface) -> None:
        """See `Policy.bind`."""
        self._policy.bind(offered)

    def reset(self, seed: int) -> None:
        """See `Policy.reset`."""
        self._policy.reset(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """See `Policy.begin`."""
        self._policy.begin(worlds)

    def observe(self, observation: Observation) -> None:
        """See `Policy.observe`."""
        self._policy.observe(self._shuffled(observation))

    def act(self, observation: Observation) -> ActionChunk:
        """See `Policy.act`; raises `BadInput` with a single world, which has no other."""
        return self._policy.act(self._shuffled(observation))

    def _shuffled(self, observation: Observation) -> Observation:
        if len(next(iter(observation.values()))) < 2:
            raise BadInput("--shuffle", got="1 world", expected="at least 2: features come from another world")
        return {**observation, **{key: np.roll(observation[key], -1, axis=0) for key in self._features}}
