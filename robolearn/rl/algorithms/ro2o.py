"""RO2O: an ensemble that is smooth around what was seen and doubts what was not, offline and from there online.

    ŝ   = s + ε u,  u ~ U(−1, 1)                             of normalised features, `perturbed` times for each s
    L   = L_Q + η_Q E max_ŝ l(Q_e(ŝ, a) − Q_e(s, a)) + η_ood E (Q_e(ŝ, â) − stop(Q̃_e))²
          Q̃_e = max(Q_e(ŝ, â) − λ std_e Q_e(ŝ, â), R_min)
          l(δ) = (1 − α) δ² where δ > 0, else α δ²,   â of the averaged policy in ŝ
    L_π = L_π of `robolearn.rl.algorithms.rebrac` + η_π E max_ŝ ‖a(ŝ) − a(s)‖² / |A|,   both from one noise
    y   = R + d · (max(P({Q'_e(s', a')}_e), R_min) − β₂ ‖a' − â'‖² / |A|)
          P = min_e offline;   P = mean over the pairs i < j of min(Q'_i, Q'_j) once there are own episodes

Wen et al. 2024, after RORL (Yang et al. 2022), whose smoothness and whose penalty of what is uncertain it has. That
pessimism is loosened online is E2O's (Zhao et al. 2023): the least of many critics forbids what exploring would find.
Departures: the actor and its two penalties are ReBRAC's, where the paper's is a Gaussian of SAC; the distance of two
policies is that of their chunks; λ is constant; features are perturbed, so of a picture its encoding; and doubt ends
at R_min, the least return that rewards of the batch allow, 0 where none is negative. Without that, each update lowers
what the critics differ about, they differ the more, and all values of `lift` went to −25 and its success to 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from robolearn.data.replay import ReplayBatch
from robolearn.rl.algorithms.rebrac import ReBrac
from robolearn.rl.student_settings import Ro2oConfig


def uneven_square(difference: Tensor, share: float) -> Tensor:
    """l(δ), elementwise: `share` is α, the weight of a value that is lower nearby."""
    return torch.where(difference > 0, 1.0 - share, share) * difference.square()


def mean_of_pair_minima(values: Tensor) -> Tensor:
    """(E, B) → (B,) the mean of min(Q_i, Q_j) over all pairs i < j."""
    members = len(values)
    # Of the values in rising order, the k-th (from 1) is the lesser one of E − k pairs.
    pairs = torch.arange(members - 1, -1, -1, device=values.device, dtype=values.dtype)
    return (values.sort(0).values * pairs[:, None]).sum(0) / pairs.sum()


def least_return(rewards: Tensor, gamma: float) -> float:
    """The least of `rewards` forever: 0 where none is negative, −∞ where one is and γ = 1."""
    least = float(rewards.min())
    if least >= 0.0:
        return 0.0
    return least / (1.0 - gamma) if gamma < 1.0 else -math.inf


class Ro2o(ReBrac):
    """See the module."""

    settings: Ro2oConfig
    least = -math.inf  # R_min of the batch that is learned from

    def update(self, batch: ReplayBatch) -> dict[str, Tensor]:
        self.least = least_return(batch.reward, self.settings.gamma)
        return super().update(batch)

    def next_value(self, observation: dict[str, Tensor]) -> Tensor:
        features, chunk, bonus = self.next_chunk(observation)
        values = self.critic.targets(features, chunk[:, None])[:, :, 0]
        return (mean_of_pair_minima(values) if self.online else values.amin(0)).clamp_min(self.least) + bonus

    def around(self, features: Tensor) -> Tensor:
        """(B, F) → (B, N, F) the perturbed ones."""
        shape = (len(features), self.settings.perturbed, features.shape[1])
        uniform = 2.0 * torch.rand(shape, generator=self.generator, device=self.device) - 1.0
        # ŝ = s + ε u
        return features[:, None] + self.settings.perturbation * uniform

    def penalty(self, features: Tensor, batch: ReplayBatch) -> Callable[[Tensor], Tensor]:
        config, near = self.settings, self.around(features)
        rows = near.flatten(0, 1)
        with torch.no_grad():
            net = self.policy.proposer.net
            acted = self.sampled(net, net.condition_of(rows), self.draw(len(rows), *net.noise_shape))
        done = batch.action.flatten(1).repeat_interleave(config.perturbed, 0)

        def added(now: Tensor) -> Tensor:
            values = self.critic.values(rows, torch.stack((done, acted), 1))
            moved, unseen = values[:, :, 0].unflatten(1, near.shape[:2]), values[:, :, 1]
            # max_ŝ l(Q_e(ŝ, a) − Q_e(s, a))
            rough = uneven_square(moved - now[:, :, None], config.asymmetry).amax(2)
            # (Q_e − stop(max(Q_e − λ std_e Q_e, R_min)))²
            doubted = (unseen - config.uncertainty * unseen.std(0, correction=0)).clamp_min(self.least).detach()
            return config.smooth_critic * rough.mean() + config.unseen * (unseen - doubted).square().mean()

        return added

    def actor_loss(self, features: Tensor, batch: ReplayBatch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().actor_loss(features, batch)
        net, near = self.student.net, self.around(features)
        noise = self.draw(len(features), *net.noise_shape)
        here = self.sampled(net, net.condition_of(features), noise)
        there = self.sampled(
            net, net.condition_of(near.flatten(0, 1)), noise.repeat_interleave(self.settings.perturbed, 0)
        )
        # max_ŝ ‖a(ŝ) − a(s)‖² / |A|
        rough = (there.unflatten(0, near.shape[:2]) - here[:, None]).square().mean(2).amax(1).mean()
        return loss + self.settings.smooth_actor * rough, metrics | {"actor_roughness": rough.detach()}
