"""Group-relative fine-tuning (after GRPO, Shao et al., 2024; RIFT's dual clip as an option): no critic.

Groups of worlds begin alike. Every world plays one episode, and each of its decisions is credited with how much better
the episode went than the others of its group:

    R_i = Σ_t γ^t r_t            A_i = R_i − mean_{j ∈ group(i)} R_j
    L   = −1/N Σ_i 1/n_i Σ_t min(r_it A_i, clip(r_it, 1 − ε, 1 + ε) A_i),   r as in `reinflow`

n_i is the number of decisions of episode i: episodes count alike, however long they last (with `--weigh decision` the
mean is over all decisions, and long episodes, mostly failed ones, weigh more).
A group whose episodes all went alike teaches nothing. γ < 1 makes a quick success better than a slow one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.policy import ChunkPolicy
from robolearn.rl.actors import ChainStats
from robolearn.rl.algorithms.on_policy import OnPolicy
from robolearn.rl.buffer import RolloutBatch
from robolearn.rl.returns import clipped_surrogate, group_advantage, standardise
from robolearn.rl.settings import GrpoConfig
from robolearn.rollout import Episodes

DECISIONS = 10  # an episode, for the size of minibatches


class Grpo(OnPolicy):
    """See the module's docstring."""

    def __init__(self, policy: ChunkPolicy, config: GrpoConfig, *, seed: int) -> None:
        self.config = config
        self.quota = Episodes(np.ones(config.num_envs, np.int64))
        self.group = np.arange(config.num_envs) // config.group
        super().__init__(policy, config, seed=seed)

    @property
    def decisions_per_rollout(self) -> int:
        """About: episodes differ in length."""
        return DECISIONS * self.num_envs

    def reset_options(self) -> dict[str, Any] | None:
        """Every rollout begins anew, the worlds of a group alike."""
        return {"start_ids": self.group}

    def update(self, batch: RolloutBatch, i: int, progress: float) -> dict[str, float]:
        returns, found = self.returns(batch)
        group, present = torch.from_numpy(self.group).to(returns.device), (batch.grid >= 0).any(0)
        advantage = torch.zeros_like(returns)  # of episodes that a reward model did not score there is nothing
        advantage[present] = group_advantage(returns[present], group[present], self.config.divide_by_std)
        credit = advantage
        if self.config.weigh == "episode":  # min(r w A, clip(r) w A) = w min(r A, clip(r) A)
            credit = advantage * len(batch) / (present.sum() * (batch.grid >= 0).sum(0))
        by_row = batch.from_grid(credit.expand(batch.grid.shape))
        metrics = {"return": returns[present].mean().item(), "groups_that_differ": _differing(advantage, group)} | found
        if bool(advantage.abs().max() > 0):
            metrics |= self._improve(batch, by_row, progress)
        return metrics | self._end_update()

    def returns(self, batch: RolloutBatch) -> tuple[Tensor, dict[str, float]]:
        """(N,) R of each episode, and metrics."""
        reward = batch.on_grid(batch.reward)  # (T, N)
        discount = self.config.gamma ** torch.arange(len(reward), device=reward.device)
        return (discount[:, None] * reward).sum(0), {}

    def surrogate(self, old: ChainStats, advantage: Tensor) -> Callable[[ChainStats, slice], Tensor]:
        """L of a minibatch. Advantages are scaled but not centred: they already are, group by group."""
        kind = self.config.exponent
        before, scaled = old.joint(kind), standardise(advantage, centre=False)
        return lambda now, part: clipped_surrogate(
            now.joint(kind) - before[part], scaled[part], self.config.clip, self.config.dual_clip
        )


def _differing(advantage: Tensor, group: Tensor) -> float:
    """Share of the groups in which an episode went otherwise than another."""
    spread = torch.zeros(int(group.max()) + 1, device=advantage.device).index_add_(0, group, advantage.abs())
    return (spread > 0).float().mean().item()
