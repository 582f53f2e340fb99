"""Policies around another one: the base, which passes everything on, two that measure what a policy relies on, and one
at another tempo."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ActionChunk, BadInput, Interface, Observation, Policy, check_choice
from robolearn.core.protocols import familiarity, warm
from robots.chunk_execution import ActionParts, ExecutionHistory


class PolicyWrapper:
    """Implements `robolearn.core.Policy`; a subclass overrides what it changes."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.interface, self.execute_steps = policy.interface, policy.execute_steps
        self.observes_every_step = policy.observes_every_step

    def bind(self, offered: Interface) -> None:
        self.policy.bind(offered)

    def unfamiliar(self, observation: Observation) -> tuple[str, str]:
        """Of the policy inside, see `policies.normalize.unfamiliar`."""
        return familiarity(self.policy, self.seen(observation))

    def reset(self, seed: int) -> None:
        self.policy.reset(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self.policy.begin(worlds)

    def seen(self, observation: Observation) -> Observation:
        """The observation that the policy inside gets."""
        return observation

    def observe(self, observation: Observation) -> None:
        self.policy.observe(self.seen(observation))

    def act(self, observation: Observation) -> ActionChunk:
        return self.policy.act(self.seen(observation))

    def warm(self) -> None:
        warm(self.policy)


class ShuffledPolicy(PolicyWrapper):
    """Features of another world for `policy`: the drop in success measures its reliance on them.

        act(o)_w = π(o_w without k, o_{w+1 mod N}[k])       k the shuffled features, w of N worlds

    Permutation importance (Breiman 2001), per decision: each feature still has a value that occurs, of another world.
    `features`: of its observation that come from the next world. Raises `BadInput`: it does not observe one of them;
    and of `act`, a single world.
    """

    def __init__(self, policy: Policy, features: Collection[str]) -> None:
        for key in features:
            check_choice("--shuffle", key, policy.interface.observation)
        super().__init__(policy)
        self._features = tuple(features)

    def seen(self, observation: Observation) -> Observation:
        if len(next(iter(observation.values()))) < 2:
            raise BadInput("--shuffle", got="1 world", expected="at least 2: features come from another world")
        return {**observation, **{key: np.roll(observation[key], -1, axis=0) for key in self._features}}


class DelayedPolicy(PolicyWrapper):
    """Inference that takes time, of a `policy` that keeps no history of its own.

        chunk executed at t:  the prediction from o_{t−d} for t … t + Ta − 1, continued from where the arm is by now
          (`robots.chunk_execution`)

    A prediction of Tp ≥ Ta + d steps covers the present; of a shorter one its end is executed, too late. Where critics
    choose among chunks (`policies.wrappers.best_of_n`), proposing is what takes time: they choose by the newest
    observation. Before an episode the arm stands until there is something to do, so d counts from its first step on.
    `steps`: d [control steps].
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
        if act_delayed := getattr(self.policy, "act_delayed", None):  # of a `BestOfNPolicy`
            chunk = act_delayed(delayed, observation)
        else:
            paths = np.asarray(self.policy.act(delayed.before), np.float32)[:, None]
            chunk = delayed.catch_up(paths, self.interface, steps=self.execute_steps)[:, 0]
        self._history.execute(chunk)
        return chunk


class TempoPolicy(PolicyWrapper):
    """`policy` at another tempo: its displacements times a constant `factor`.

        a ← clip(f · a, −1, 1) in the components that are displacements; the gripper's stay

    Nothing is learned by it. What fine-tuning gains in cycle time is judged beside it: a constant is cheaper than
    critics. Raises `BadInput`: a factor outside (0, 4], or actions that are no displacements.
    """

    def __init__(self, policy: Policy, factor: float) -> None:
        if not 0.0 < factor <= 4.0:
            raise BadInput("--tempo", got=factor, expected="more than 0, at most 4")
        kind = policy.interface.action_kind
        if kind != "tcp_delta":
            raise BadInput("--tempo", got=f"a policy whose actions are {kind}", expected="displacements (tcp_delta)")
        super().__init__(policy)
        self.factor, self._displaced = factor, ActionParts.of(policy.interface).displaced

    def act(self, observation: Observation) -> ActionChunk:
        chunk = np.asarray(super().act(observation))
        return np.where(self._displaced, np.clip(self.factor * chunk, -1.0, 1.0), chunk).astype(np.float32)


def at_tempo(policy: Policy, factor: float) -> Policy:
    """`policy` at the tempo `factor`; itself at 1."""
    return policy if factor == 1.0 else TempoPolicy(policy, factor)
