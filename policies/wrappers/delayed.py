"""A policy whose inference takes time: the chunk that is executed now was begun d control steps ago.

    chunk executed at t:  what o_{t−d} says of t … t + Ta − 1, continued from where the arm is by now
      (`robots.chunk_execution`)

A prediction of Tp ≥ Ta + d steps says what to do now; of a shorter one its end is executed, too late. Where critics
choose among chunks (`policies.wrappers.best_of_n`), proposing is what takes time: they choose by what is seen now.
Before an episode the arm stands until there is something to do, so d counts from its first step on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policies.wrappers.best_of_n import BestOfNPolicy
from policies.wrappers.wrapper import PolicyWrapper
from robolearn.core import ActionChunk, BadInput, Observation, Policy
from robots.chunk_execution import ExecutionHistory


class DelayedPolicy(PolicyWrapper):
    """`policy`, which keeps no history of its own.

    Args:
      steps: d [control steps].
    """

    def __init__(self, policy: Policy, steps: int) -> None:
        if steps < 0:
            raise BadInput("delay", got=steps, expected="at least 0 control steps")
        if policy.observes_every_step:
            raise BadInput("delay: policy", got="one that looks at several observations", expected="one without memory")
        super().__init__(policy)
        self.observes_every_step = True
        self._history = ExecutionHistory(steps, policy.interface)

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self._history.clear()

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        super().begin(worlds)
        self._history.begin(worlds)

    def observe(self, observation: Observation) -> None:
        self._history.observe(observation)

    def act(self, observation: Observation) -> ActionChunk:
        """(N, Ta, Da)."""
        self._history.observe(observation)
        delayed = self._history.delayed()
        if isinstance(self.policy, BestOfNPolicy):
            chunk = self.policy.act_delayed(delayed, observation)
        else:
            paths = np.asarray(self.policy.act(delayed.before), np.float32)[:, None]
            chunk = delayed.catch_up(paths, self.interface, steps=self.execute_steps)[:, 0]
        self._history.execute(chunk)
        return chunk
