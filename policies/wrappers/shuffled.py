"""A policy that observes some features of another world: the drop in success measures its reliance on them.

    act(o)_w = π(o_w without k, o_{w+1 mod N}[k])       k the shuffled features, w of N worlds

Permutation importance (Breiman 2001), per decision: each feature still has a value that occurs, of another world.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from policies.wrappers.wrapper import PolicyWrapper
from robolearn.core import BadInput, Observation, Policy


class ShuffledPolicy(PolicyWrapper):
    """`policy`, for two worlds or more.

    Args:
      features: of its observation that come from the next world.

    Raises:
      BadInput: it does not observe one of them; and of `act`, a single world.
    """

    def __init__(self, policy: Policy, features: Collection[str]) -> None:
        for key in features:
            if key not in policy.interface.observation:
                raise BadInput("--shuffle", got=key, available=policy.interface.observation)
        super().__init__(policy)
        self._features = tuple(features)

    def seen(self, observation: Observation) -> Observation:
        if len(next(iter(observation.values()))) < 2:
            raise BadInput("--shuffle", got="1 world", expected="at least 2: features come from another world")
        return {**observation, **{key: np.roll(observation[key], -1, axis=0) for key in self._features}}
