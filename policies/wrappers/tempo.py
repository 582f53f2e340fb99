"""A policy at another tempo: its displacements times a constant.

    a ← clip(f · a, −1, 1) in the components that are displacements; the gripper's stay

Nothing is learned by it. What fine-tuning gains in cycle time is judged beside it: a constant is cheaper than critics.
"""

from __future__ import annotations

import numpy as np

from policies.wrappers.wrapper import PolicyWrapper
from robolearn.core import ActionChunk, BadInput, Observation, Policy
from robots.chunk_execution import ActionParts


class TempoPolicy(PolicyWrapper):
    """`policy`, whose displacements are `factor` times as large. Raises `BadInput`: a factor outside (0, 4], or actions
    that are no displacements."""

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
