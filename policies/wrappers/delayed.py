"""A policy whose inference takes time: what is executed now was begun d control steps ago.

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
from robolearn.core import ActionChunk, BadInput, Interface, Observation, Policy
from robots.chunk_execution import ExecutionHistory


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
        self._policy, self._history = policy, ExecutionHistory(steps, policy.interface)
        self.interface, self.execute_steps = policy.interface, policy.execute_steps

    def bind(self, offered: Interface) -> None:
        """See `Policy.bind`."""
        self._policy.bind(offered)

    def reset(self, seed: int) -> None:
        """Start the noise anew and forget all history."""
        self._policy.reset(seed)
        self._history.clear()

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """New episodes begin in those worlds."""
        self._policy.begin(worlds)
        self._history.begin(worlds)

    def observe(self, observation: Observation) -> None:
        """Remember it."""
        self._history.observe(observation)

    def act(self, observation: Observation) -> ActionChunk:
        """(N, Ta, Da)."""
        self._history.observe(observation)
        delayed = self._history.delayed()
        if isinstance(self._policy, BestOfNPolicy):
            chunk = self._policy.act_delayed(delayed, observation)
        else:
            paths = np.asarray(self._policy.act(delayed.before), np.float32)[:, None]
            chunk = delayed.catch_up(paths, self.interface, steps=self.execute_steps)[:, 0]
        self._history.execute(chunk)
        return chunk
