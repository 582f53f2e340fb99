"""H2O: real logs and an imperfect simulator teach the same critics; what the simulator gets wrong counts less.

    D_sas, D_sa   logits that (s, a, s'), that (s, a) is real: cross-entropy on real and simulated windows
    g    = D_sas(s, a, s') − D_sa(s, a)                log P_real(s' | s, a) / P_sim(s' | s, a), by Bayes' rule
    w    = min(e^g, 1) of simulated windows, 1 of real ones
    L_Q  = 1/E Σ_e mean_b w_b (Q_e(s, a) − y)²
    ω    = u / Σ u,   u = clip(−g, ε, 10)              over the simulated windows of a batch
    L    = L_Q + β · 1/E Σ_e [ log Σ_sim ω exp Q_e(s, a) − mean_real Q_e(s, a) ]
    y    = R + d · min_{e ∈ S} Q'_e(s', c*),           c* chosen by the critics among what the policy proposes

Niu et al. 2022, after DARC (Eysenbach et al. 2021) and CQL. An action is a chunk, s' what it led to. Departures: the
actor is the copy of the base that imitates what succeeded, by w, in the place of a Gaussian that climbs Q; u is of the
one s' that the simulator returned, in the place of ten that are drawn around it; Σ_e has a target of no entropy.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from policies.networks.ensemble import EnsembleMlp
from policies.policy import ChunkPolicy
from robolearn.data.replay import ReplayBatch
from robolearn.rl.algorithms.student import Imitating
from robolearn.rl.h2o_settings import H2oConfig

LEAST_U, MOST_U = 1e-6, 10.0


def weights(gap: Tensor, real: Tensor) -> Tensor:
    """(B,) w of windows with log ratios (B,), of which some are `real`."""
    return torch.where(real, 1.0, gap.exp().clamp(max=1.0))


def gap_penalty(done: Tensor, gap: Tensor, real: Tensor) -> Tensor:
    """1/E Σ_e [ log Σ_sim ω exp Q − mean_real Q ] of values (E, B) of what was done."""
    u = (-gap[~real]).clamp(LEAST_U, MOST_U)
    omega = u / u.sum()
    return (torch.logsumexp(done[:, ~real] + omega.log(), 1) - done[:, real].mean(1)).mean()


class Discriminators:
    """D_sas and D_sa, and their optimiser.

    Args:
      features, size: numbers of features of an observation, and of a chunk.
    """

    def __init__(self, features: int, size: int, config: H2oConfig, device: torch.device) -> None:
        def judge(inputs: int) -> EnsembleMlp:
            return EnsembleMlp(1, inputs, 1, width=config.width, depth=config.depth)

        self.net = nn.ModuleDict({"sas": judge(2 * features + size), "sa": judge(features + size)}).to(device)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=config.lr, fused=True)

    def logits(self, s: Tensor, a: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) of D_sas and of D_sa."""
        return self.net["sas"](torch.cat((s, a, after), 1))[0, :, 0], self.net["sa"](torch.cat((s, a), 1))[0, :, 0]

    @torch.no_grad()
    def gap(self, s: Tensor, a: Tensor, after: Tensor) -> Tensor:
        """(B,) g."""
        whole, part = self.logits(s, a, after)
        return whole - part

    def fit(self, s: Tensor, a: Tensor, after: Tensor, real: Tensor, noise: Callable[[Tensor], Tensor]) -> Tensor:
        """One gradient step on windows of which some are `real`; `noise` is added to what they see. The loss."""
        found = self.logits(noise(s), noise(a), noise(after))
        # As many of either kind count, whatever their shares of the batch.
        share = real.float().mean()
        balance = torch.where(real, 0.5 / share, 0.5 / (1.0 - share))
        loss = sum(binary_cross_entropy_with_logits(one, real.float(), balance) for one in found)
        assert isinstance(loss, Tensor)
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        self.adam.step()
        return loss.detach()


class H2o(Imitating):
    """See the module."""

    def __init__(self, base: ChunkPolicy, config: H2oConfig, *, seed: int) -> None:
        super().__init__(base, config, seed=seed, initial_noise=config.initial_noise)
        self.settings = config
        self.judges = Discriminators(self.policy.feature_size, self.size, config, self.device)
        self.critic.error = lambda off: self._weight * off.square()
        self._weight, self._gap = torch.ones(()), torch.zeros(0)

    def real(self, count: int) -> Tensor:
        """(B,) the windows of a batch that are real: its last ones are of stored episodes, by their share."""
        stored = round(self.settings.demo_share * count) if self.online else count
        return torch.arange(count, device=self.device) >= count - stored

    def update(self, batch: ReplayBatch) -> dict[str, Tensor]:
        self._real = real = self.real(len(batch))
        self._weight, self._gap = torch.ones(len(batch), device=self.device), torch.zeros(0)
        metrics = {}
        if real.any() and not real.all():
            with torch.no_grad():
                s, after = self.policy.encode(batch.observation), self.policy.encode(batch.next_observation)
            a = batch.action.flatten(1)
            metrics["gap_loss"] = self.judges.fit(s, a, after, real, self._noised)
            self._gap = self.judges.gap(s, a, after)
            self._weight = weights(self._gap, real)
            metrics["simulated_weight"] = self._weight[~real].mean()
        return metrics | super().update(batch)

    def _noised(self, x: Tensor) -> Tensor:
        return x + self.settings.gap_noise * self.draw(*x.shape)

    def next_chunk(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | float]:
        features = self.policy.encode(observation)
        drawn = self.draw(len(features), self.settings.backup_proposals, *self.policy.noise.shape[1:])
        return features, self.policy.best(features, self.policy.propose(observation, drawn)), 0.0

    def penalty(self, features: Tensor, batch: ReplayBatch) -> Callable[[Tensor], Tensor] | None:
        if not len(self._gap):
            return None
        return lambda done: self.settings.gap_penalty * gap_penalty(done, self._gap, self._real)

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        worth = torch.nonzero(batch.merit).flatten()
        return {"imitation": self.student.imitate(batch, worth, self._weight[worth])} if len(worth) else {}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return super().optimizers() | {"judges": self.judges.adam}

    def modules(self) -> dict[str, nn.Module]:
        return super().modules() | {"judges": self.judges.net}
