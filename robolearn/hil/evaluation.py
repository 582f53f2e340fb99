"""Evaluation of a policy beside an operator: how much help it needs, and whether its uncertainty predicts failures.

Each decision is a case, positive where its episode failed at most `within` control steps later. The AUROC is the chance
that the uncertainty of a positive case is above that of a negative one (Mann and Whitney 1947; ties have their mean
rank):

    AUROC = (Σ_{i positive} rank_i − n₊ (n₊ + 1) / 2) / (n₊ n₋)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from policies.wrappers.best_of_n import BestOfNPolicy
from robolearn.core import Env, Observation, Policy
from robolearn.hil.agent import Operator
from robolearn.rollout import Decision, Engine, Episodes
from robots.chunk_execution import SteppedChunks

SPECIFICITY = 0.95  # share of the negative decisions that are below the threshold


@dataclass(frozen=True)
class FailurePrediction:
    """Quality of one measure of uncertainty as a predictor of failure.

    Attributes:
      auroc: None without cases of both kinds.
      threshold: exceeded by 5% of the negative decisions.
      recall: share of the positive decisions above the threshold; None without any.
    """

    auroc: float | None
    threshold: float
    recall: float | None


def auroc(uncertainty: ArrayLike, positive: ArrayLike) -> float | None:
    """See the module; None without cases of both kinds."""
    uncertainty, positive = np.asarray(uncertainty, np.float64), np.asarray(positive, np.bool_)
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return None
    ranks = rankdata(uncertainty)[positive]
    return float((ranks.sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def failure_prediction(uncertainty: ArrayLike, positive: ArrayLike) -> FailurePrediction:
    """One measure of uncertainty over all cases (N,)."""
    uncertainty, positive = np.asarray(uncertainty, np.float64), np.asarray(positive, np.bool_)
    negative = uncertainty[~positive] if not positive.all() else uncertainty
    threshold = float(np.quantile(negative, SPECIFICITY))
    recall = float((uncertainty[positive] > threshold).mean()) if positive.any() else None
    return FailurePrediction(auroc(uncertainty, positive), threshold, recall)


class UncertaintyAgent:
    """A `robolearn.rollout.Agent`: a policy whose measures of uncertainty are kept with its chunks."""

    observes_every_step = False

    def __init__(self, policy: BestOfNPolicy, seed: int) -> None:
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
        measures = policy.uncertainty(seen, policy.propose(seen, noise))
        return Decision(policy.act(observation), {key: value.cpu().numpy() for key, value in measures.items()})


def predict_failures(
    env: Env, policy: BestOfNPolicy, seed: int, *, within: int
) -> tuple[dict[str, FailurePrediction], int]:
    """One unaided episode in each world of `env`: (measure of uncertainty → its quality, number of failed episodes)."""
    engine, agent = Engine(env), UncertaintyAgent(policy, seed)
    engine.reset(seed)
    policy.reset(seed)
    at: list[list[int]] = [[] for _ in range(env.num_envs)]  # step of each decision
    measured: list[list[dict[str, float]]] = [[] for _ in range(env.num_envs)]
    length, failed = np.zeros(env.num_envs, np.int64), np.zeros(env.num_envs, np.bool_)
    for turn in engine.turns(agent, Episodes(np.ones(env.num_envs, np.int64))):
        for w in np.flatnonzero(turn.worlds):
            at[w].append(int(turn.elapsed[w]))
            measured[w].append({key: float(value[w]) for key, value in turn.decision.aux.items()})
        over = turn.worlds & turn.ended
        length[over], failed[over] = (turn.elapsed + turn.steps)[over], ~turn.solved[over]
    positive = np.concatenate([failed[w] & (length[w] - np.array(steps) <= within) for w, steps in enumerate(at)])
    rows = [row for rows in measured for row in rows]
    predictions = {key: failure_prediction([row[key] for row in rows], positive) for key in rows[0]}
    return predictions, int(failed.sum())


class HelpedAgent:
    """A `robolearn.rollout.Agent`: a policy in N worlds, step by step, and an operator who may take over in each.

    A take-over voids the rest of the world's chunk, as in `robolearn.hil.agent`.
    """

    observes_every_step = False

    def __init__(self, policy: Policy, operator: Operator, num_envs: int) -> None:
        self._policy, self._operator = policy, operator
        self._chunks = SteppedChunks(self._predict, policy.interface, num_envs)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        self._policy.begin(worlds)
        self._operator.begin(worlds)
        self._chunks.drop(worlds)

    def observe(self, observation: Observation) -> None:
        """Every step is a decision."""

    def decide(self, observation: Observation, worlds: NDArray[np.bool_]) -> Decision:
        """One step; `aux` has ``intervention`` (N,), true where the operator steers."""
        steers, commanded = self._operator.command(observation)
        self._chunks.drop(steers)
        action = self._chunks.step(observation, ~steers)
        executed = np.clip(np.where(steers[:, None], commanded, action), -1.0, 1.0).astype(np.float32)
        return Decision(executed[:, None], {"intervention": steers})

    def _predict(self, observation: Observation) -> NDArray[np.float32]:
        return np.asarray(self._policy.act(observation))[:, : self._policy.execute_steps]


def measure_help(env: Env, policy: Policy, operator: Operator, seed: int) -> Mapping[str, float]:
    """One episode in each world of `env`: ``intervention_rate``, the share of control steps that the operator steered,
    and ``unaided``, the share of episodes without any."""
    engine, agent = Engine(env), HelpedAgent(policy, operator, env.num_envs)
    engine.reset(seed)
    policy.reset(seed)
    steered, helped, steps = 0, np.zeros(env.num_envs, np.bool_), 0
    for turn in engine.turns(agent, Episodes(np.ones(env.num_envs, np.int64))):
        by_hand = turn.decision.aux["intervention"] & turn.worlds
        steered, steps, helped = steered + int(by_hand.sum()), steps + int(turn.worlds.sum()), helped | by_hand
    return {"intervention_rate": steered / steps, "unaided": float(1.0 - helped.mean())}
