"""How much help a policy still needs: an operator watches it, and the share of steps that they steer is counted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Env, Observation, Policy
from robolearn.hil.agent import Operator
from robolearn.rollout import Decision, Engine, Episodes


class WatchedAgent:
    """A `robolearn.rollout.Agent`: a policy in N worlds, step by step, and an operator who may take over in each.

    What an operator does voids the rest of the world's chunk, as in `robolearn.hil.agent`.
    """

    observes_every_step = False

    def __init__(self, policy: Policy, operator: Operator, num_envs: int) -> None:
        self._policy, self._operator = policy, operator
        self._cursor = np.full(num_envs, policy.execute_steps)
        self._chunks = np.zeros((num_envs, policy.execute_steps, policy.interface.action.size), np.float32)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self._policy.begin(worlds)
        self._operator.begin(worlds)
        self._cursor[worlds] = self._policy.execute_steps

    def observe(self, observation: Observation) -> None:
        """Every step is a decision."""

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        """One step; `aux` says where the operator steers."""
        steers, commanded = self._operator.command(observation)
        ask = ~steers & (self._cursor >= self._policy.execute_steps)
        if ask.any():
            self._chunks[ask] = self._policy.act(observation)[ask, : self._policy.execute_steps]
            self._cursor[ask] = 0
        self._cursor[steers] = self._policy.execute_steps
        rows = np.arange(len(steers))
        action = self._chunks[rows, np.minimum(self._cursor, self._policy.execute_steps - 1)]
        self._cursor[~steers] += 1
        executed = np.clip(np.where(steers[:, None], commanded, action), -1.0, 1.0).astype(np.float32)
        return Decision(executed[:, None], {"intervention": steers})


def watch(env: Env, policy: Policy, operator: Operator, seed: int) -> Mapping[str, float]:
    """One episode in each world of `env`: the share of control steps that the operator steered, `intervention_rate`,
    and of episodes without any, `unaided`."""
    env_worlds = env.num_envs
    engine, agent = Engine(env), WatchedAgent(policy, operator, env_worlds)
    engine.reset(seed)
    policy.reset(seed)
    steered, helped, steps = 0, np.zeros(env_worlds, np.bool_), 0
    for turn in engine.turns(agent, Episodes(np.ones(env_worlds, np.int64))):
        by_hand = turn.decision.aux["intervention"] & turn.worlds
        steered, steps, helped = steered + int(by_hand.sum()), steps + int(turn.worlds.sum()), helped | by_hand
    return {"intervention_rate": steered / steps, "unaided": float(1.0 - helped.mean())}
