"""A policy whose inference takes time: what is executed now was begun d control steps ago.

    chunk executed at t:  steps k … k + Ta − 1 of what is predicted from o_{t−d},    k = min(d, Tp − Ta)

A prediction of Tp ≥ Ta + d steps says what to do now; of a shorter one its end is executed, too late. Where critics
choose among chunks (`policies.chosen`), proposing is what takes time: they choose by what is seen now. Before an
episode the arm stands until there is something to do, so d counts from its first step on.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from policies.chosen import ChosenPolicy
from robolearn.core import ActionChunk, BadInput, Interface, Observation, Policy


class DelayedPolicy:
    """Implements `robolearn.core.Policy` around another one that keeps no history of its own.

    Args:
      steps: d [control steps].
    """

    observes_every_step = True

    def __init__(self, policy: Policy, steps: int) -> None:
        if steps < 0:
            raise BadInput("delay", got=steps, expected="at least 0 control steps")
        if policy.observes_every_step:
            raise BadInput("delay: policy", got="one that looks at several observations", expected="one without memory")
        self._policy, self._steps = policy, steps
        self.interface, self.execute_steps = policy.interface, policy.execute_steps
        self._forget()

    def _forget(self) -> None:
        self._seen: deque[dict[str, NDArray]] = deque(maxlen=self._steps + 1)
        self._age = np.zeros(0, np.int64)  # (N,) observations of the running episode before the newest one, up to d
        self._fresh = np.zeros(0, np.bool_)

    def bind(self, offered: Interface) -> None:
        """See `Policy.bind`."""
        self._policy.bind(offered)

    def reset(self, seed: int) -> None:
        """Start the noise anew and forget all history."""
        self._policy.reset(seed)
        self._forget()

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """What was seen before in those worlds belongs to another episode."""
        self._policy.begin(worlds)
        self._fresh = worlds.copy() if len(self._fresh) != len(worlds) else self._fresh | worlds

    def observe(self, observation: Observation) -> None:
        """Remember it."""
        self._seen.append({key: np.array(observation[key]) for key in self.interface.observation})
        count = len(next(iter(self._seen[-1].values())))
        if len(self._age) != count:
            self._age, self._fresh = np.zeros(count, np.int64), np.zeros(count, np.bool_)
            return
        fresh = self._fresh if len(self._fresh) == count else np.zeros(count, np.bool_)
        self._age = np.where(fresh, 0, np.minimum(self._age + 1, self._steps))
        self._fresh = np.zeros(count, np.bool_)

    def act(self, observation: Observation) -> ActionChunk:
        """(N, Ta, Da)."""
        self.observe(observation)
        worlds = np.arange(len(self._age))
        before = {
            key: np.stack([self._seen[-1 - self._age[w]][key][w] for w in worlds]) for key in self.interface.observation
        }
        if isinstance(self._policy, ChosenPolicy):
            return self._policy.act_late(before, self._age, observation)
        chunk = self._policy.act(before)
        # k = min(d, Tp − Ta)
        begin = np.minimum(self._age, chunk.shape[1] - self.execute_steps)
        return chunk[worlds[:, None], begin[:, None] + np.arange(self.execute_steps)]
