"""Does a policy know when it is about to fail? Its doubts against what came of them.

Each decision is a case. It is positive where the episode failed at most `within` control steps later. How well a doubt
tells the two apart is the area under its ROC curve: the chance that a positive case has more of it than a negative one,
by the sum of ranks (Mann and Whitney 1947; ties have their mean rank):

    AUROC = (Σ_{i positive} rank_i − n₊ (n₊ + 1) / 2) / (n₊ n₋)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from policies.wrappers.best_of_n import ChosenPolicy
from robolearn.core import Env, Observation
from robolearn.rollout import Decision, Engine, Episodes

SURE = 0.95  # share of the decisions that no failure follows which do not ask for help at the threshold


@dataclass(frozen=True)
class Doubt:
    """What one doubt is worth.

    Attributes:
      auroc: for failure; None where there is no failure, or nothing else.
      threshold: more of it than this have only 5% of the decisions that no failure follows.
      recall: share of those before a failure that have more than that.
    """

    auroc: float | None
    threshold: float
    recall: float | None


def auroc(doubt: ArrayLike, positive: ArrayLike) -> float | None:
    """See the module; None without cases of both kinds."""
    doubt, positive = np.asarray(doubt, np.float64), np.asarray(positive, np.bool_)
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if not n_positive or not n_negative:
        return None
    _, which, count = np.unique(doubt, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2.0  # of each value, from 1 on; ties share theirs
    return float((rank[which][positive].sum() - n_positive * (n_positive + 1) / 2.0) / (n_positive * n_negative))


def judge(doubt: ArrayLike, positive: ArrayLike) -> Doubt:
    """One doubt over all cases."""
    doubt, positive = np.asarray(doubt, np.float64), np.asarray(positive, np.bool_)
    calm = doubt[~positive] if not positive.all() else doubt
    threshold = float(np.quantile(calm, SURE))
    recall = float((doubt[positive] > threshold).mean()) if positive.any() else None
    return Doubt(auroc(doubt, positive), threshold, recall)


class DoubtingAgent:
    """A `robolearn.rollout.Agent`: a policy whose doubts are kept with its chunks."""

    observes_every_step = False

    def __init__(self, policy: ChosenPolicy, seed: int) -> None:
        self._policy, self._generator = policy, torch.Generator(policy.device).manual_seed(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self._policy.begin(worlds)

    def observe(self, observation: Observation) -> None:
        """Nothing is decided."""

    @torch.inference_mode()
    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        policy = self._policy
        seen = {key: torch.tensor(observation[key], device=policy.device) for key in policy.interface.observation}
        noise = torch.randn(len(worlds), *policy.noise.shape, generator=self._generator, device=policy.device)
        doubts = policy.doubts(seen, policy.propose(seen, noise))
        return Decision(policy.act(observation), {key: value.cpu().numpy() for key, value in doubts.items()})


def doubts_of(env: Env, policy: ChosenPolicy, seed: int, *, within: int) -> tuple[dict[str, Doubt], int]:
    """One episode in each world of `env`, which nobody helps: (doubt → what it is worth, failed episodes)."""
    engine, agent = Engine(env), DoubtingAgent(policy, seed)
    engine.reset(seed)
    policy.reset(seed)
    at: list[list[int]] = [[] for _ in range(env.num_envs)]  # step of each decision
    told: list[list[dict[str, float]]] = [[] for _ in range(env.num_envs)]
    length, failed = np.zeros(env.num_envs, np.int64), np.zeros(env.num_envs, np.bool_)
    for turn in engine.turns(agent, Episodes(np.ones(env.num_envs, np.int64))):
        for w in np.flatnonzero(turn.worlds):
            at[w].append(int(turn.elapsed[w]))
            told[w].append({key: float(value[w]) for key, value in turn.decision.aux.items()})
        over = turn.worlds & turn.ended
        length[over], failed[over] = (turn.elapsed + turn.steps)[over], ~turn.solved[over]
    positive = np.concatenate([failed[w] & (length[w] - np.array(steps) <= within) for w, steps in enumerate(at)])
    rows = [row for rows in told for row in rows]
    return {key: judge([row[key] for row in rows], positive) for key in rows[0]}, int(failed.sum())
