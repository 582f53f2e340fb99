"""A policy whose inference takes time: what is executed now was begun d control steps ago.

    chunk executed at t:  what o_{t−d} says of t … t + Ta − 1, continued from where the arm is by now
      (`policies.wrappers.delay_compensation`)

A prediction of Tp ≥ Ta + d steps says what to do now; of a shorter one its end is executed, too late. Where critics
choose among chunks (`policies.wrappers.best_of_n`), proposing is what takes time: they choose by what is seen now.
Before an episode the arm stands until there is something to do, so d counts from its first step on.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from policies.wrappers.best_of_n import ChosenPolicy
from policies.wrappers.delay_compensation import Recent, catch_up
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
        self._policy, self._recent = policy, Recent(steps, policy.interface)
        self.interface, self.execute_steps = policy.interface, policy.execute_steps

    def bind(self, offered: Interface) -> None:
        """See `Policy.bind`."""
        self._policy.bind(offered)

    def reset(self, seed: int) -> None:
        """Start the noise anew and forget all history."""
        self._policy.reset(seed)
        self._recent.forget()

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """What was seen before in those worlds belongs to another episode."""
        self._policy.begin(worlds)
        self._recent.begin(worlds)

    def observe(self, observation: Observation) -> None:
        """Remember it."""
        self._recent.see(observation)

    def act(self, observation: Observation) -> ActionChunk:
        """(N, Ta, Da)."""
        self._recent.see(observation)
        late = self._recent.late()
        if isinstance(self._policy, ChosenPolicy):
            chunk = self._policy.act_late(late, observation)
        else:
            paths = torch.from_numpy(np.asarray(self._policy.act(late.before), np.float32))[:, None]
            chunk = catch_up(paths, late, self.interface, steps=self.execute_steps, keep=1)[:, 0].numpy()
        self._recent.do(chunk)
        return chunk
