"""Cal-QL: critics that are pessimistic about what was not done, but never below what was seen to be possible.

    L   = L_Q + α · 1/E Σ_e E_b [ log 1/C Σ_c exp Q̃_e(s, c) − Q_e(s, a) ]
    Q̃_e = max(Q_e(s, c), G) for c proposed by the policy,   Q_e(s, c) for c ~ U(−1, 1)
    G   = Σ_i γ^i r_i to the end of the episode
    V(s') = min_{e ∈ S} Q'_e(s', c*),  c* chosen by the critics among what the policy proposes

Nakamoto et al. 2023, after CQL (Kumar et al. 2020). Without the calibration by G values fall below all returns, and the
first steps online unlearn what was learned offline. Departures: the actor is no Gaussian that climbs Q, but the copy of
the base that imitates what succeeded, whose chunks the critics choose from (`policies.wrappers.best_of_n`); C is fixed,
and α is no multiplier that is learned; chunks have no importance weights, because a flow gives no densities; what is
proposed in s' is not among c. G of an episode that the clock cut is a bound where no reward is negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from policies.policy import ChunkPolicy
from robolearn.data.replay import ReplayBatch
from robolearn.rl.algorithms.student import Imitating
from robolearn.rl.student_settings import CalQlConfig


def conservatism(proposed: Tensor, random: Tensor, done: Tensor, to_go: Tensor) -> Tensor:
    """E [ log 1/C Σ_c exp Q̃ − Q(s, a) ]: values of proposals (E, B, M), of random chunks (E, B, R) and of what was done
    (E, B), and returns (B,)."""
    # Q̃ = max(Q, G) of proposals
    among = torch.cat((torch.maximum(proposed, to_go[:, None]), random), 2)
    return (torch.logsumexp(among, 2) - math.log(among.shape[2]) - done).mean()


class CalQl(Imitating):
    """See the module."""

    def __init__(self, base: ChunkPolicy, config: CalQlConfig, *, seed: int) -> None:
        super().__init__(base, config, seed=seed, initial_noise=config.initial_noise)
        self.settings = config

    def _proposed(self, observation: dict[str, Tensor], count: int) -> Tensor:
        """(B, M, D)."""
        worlds = len(next(iter(observation.values())))
        return self.policy.propose(observation, self.draw(worlds, count, *self.policy.noise.shape[1:]))

    def next_chunk(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | float]:
        features = self.policy.encode(observation)
        return features, self.policy.best(features, self._proposed(observation, self.settings.backup_proposals)), 0.0

    def penalty(self, features: Tensor, batch: ReplayBatch) -> Callable[[Tensor], Tensor]:
        config = self.settings
        with torch.no_grad():
            proposed = self._proposed(batch.observation, config.unseen)
            uniform = torch.rand(proposed.shape, generator=self.generator, device=self.device)
        values = self.critic.values(features, torch.cat((proposed, 2.0 * uniform - 1.0), 1))
        told, random = values.split(config.unseen, 2)
        return lambda done: config.conservatism * conservatism(told, random, done, batch.to_go)

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        worth = torch.nonzero(batch.merit).flatten()
        return {"imitation": self.student.imitate(batch, worth)} if len(worth) else {}
