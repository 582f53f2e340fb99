"""DSRL: soft actor-critic on the initial noise of a frozen flow or diffusion policy (Wagenmaker et al. 2025).

    x_0 ~ M · ρ(· | s),  a = π(s, x_0)
    V(s')   = min_{e ∈ S} Q'_e(s', π(s', x_0')),                    x_0' ~ M · ρ(· | s')
    L_noise = mean_b (Q^w(s, w) − mean_e Q_e(s, π(s, w)))²,          w uniform within ±M
    ρ       maximises mean Q^w by `SoftActor`

The critics judge what is executed, so demonstrations and interventions teach them; Q^w passes their judgement on to
noise without a gradient through the denoising.

With λ > 0 (`steer_weight`) a person teaches the actor, too: UniSteer (arXiv 2605.10821) inverts what was done to the
noise that makes it, and supervises the actor with it.

    w*  = argmin_{|w| ≤ 1} ‖π(s, M w) − a‖                             `invert`
    m   = 1 of a person's windows with √(1/n ‖π(s, M w*) − a‖²) ≤ `steer_error`, else 0
    L_π = L_π of `SoftActor` + λ · Σ_b m_b 1/|w| ‖tanh μ(s_b) − w*_b‖² / Σ_b m_b

    x_k ← x_k + x_{k+1} − μ_k(x_k),   k = K − 1 … 0         `ROUNDS` times each, from x_K = a: μ_k(x_k) = x_{k+1} where
                                                            it settles, which is an Euler step of the flow backwards
    x_0 ← clip(x_0 − η ∇ e²(x_0), ±M)                       `DESCENT` steps of Adam
    e²(x_0) = 1/n Σ_i m_i (μ_{K−1} ∘ … ∘ μ_0(x_0) − a)_i²   over the n = Σ m components that count

w* is the nearest x_0 / M on the way. A flow contracts towards what was demonstrated: a chunk far from all
demonstrations is made of no noise within ±M, which is why m looks at what w* gives.

Departures, the paper being known to us by its abstract alone: the distance is of the mode, because the likelihood of a
squashed Gaussian has no bound where w* lies at ±1; only the steps that are executed have to be met; an episode is
inverted once, when it comes into the replay, which then holds w* and the error of each frame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from policies.kinds.gaussian import NoiseSteeredConfig, NoiseSteeredPolicy
from policies.networks.ensemble import EnsembleMlp, evaluate
from policies.policy import ChunkPolicy
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data.replay import PlayedEpisode, ReplayBatch
from robolearn.rl.algorithms.off_policy import OffPolicy, SoftActor, make_critics
from robolearn.rl.off_policy_settings import DsrlConfig

ROUNDS = 3
DESCENT = 60
STEP = 0.1  # η of the first step of descent; it falls to 0


def sampled(net: Any, x0: Tensor, cond: Tensor) -> Tensor:
    """μ_{K−1} ∘ … ∘ μ_0: noise (B, Tp, Da) → chunks that are not cut to ±1, so that a gradient goes through all."""
    x = x0
    for k in range(net.config.steps):
        x = net.denoise(x, k, cond)
    return x


@torch.no_grad()
def backwards(net: Any, chunk: Tensor, cond: Tensor) -> Tensor:
    """Chunks (B, Tp, Da) → noise, by the sampler's steps from the last to the first."""
    after = chunk
    for k in reversed(range(net.config.steps)):
        x = after
        for _ in range(ROUNDS):
            # x_k ← x_k + x_{k+1} − μ_k(x_k)
            x = x + after - net.denoise(x, k, cond)
        after = x
    return after


def invert(net: Any, chunk: Tensor, counts: Tensor, cond: Tensor, bound: float) -> Tensor:
    """The noise (B, Tp, Da) within ±`bound` whose chunk is the nearest that was found.

    Args:
      net: a flow or diffusion policy's network; its weights stay as they are.
      chunk: (B, Tp, Da) normalised.
      counts: (B, Tp) the steps of it that shall be met; the others are a start alone.
      cond: (B, C) from `encode`.
      bound: M.
    """
    share = (counts / counts.sum(1, keepdim=True).clamp_min(1))[..., None] / chunk.shape[2]
    x0 = backwards(net, chunk, cond).clamp_(-bound, bound).requires_grad_()
    adam = torch.optim.Adam([x0], lr=STEP)
    best, least = x0.detach().clone(), torch.full((len(chunk),), torch.inf, device=chunk.device)
    for i in range(DESCENT + 1):
        with torch.enable_grad():
            # e² = 1/n Σ m (μ ∘ … ∘ μ_0(x_0) − a)²
            error = ((sampled(net, x0, cond) - chunk).square() * share).sum((1, 2))
            adam.zero_grad(set_to_none=True)
            error.sum().backward(inputs=[x0])
        nearer = error.detach() < least
        best[nearer], least[nearer] = x0.detach()[nearer], error.detach()[nearer]
        adam.param_groups[0]["lr"] = STEP * (1.0 - i / DESCENT)
        adam.step()
        with torch.no_grad():
            x0.clamp_(-bound, bound)
    return best


NOISE, ERROR = "steer/noise", "steer/error"  # what a replay holds of each frame: w*, and how far its chunk is


class Dsrl(OffPolicy):
    """See the module."""

    policy: NoiseSteeredPolicy

    def __init__(self, base: ChunkPolicy, config: DsrlConfig, *, seed: int) -> None:
        if config.steer_weight and not base.config.learns:
            expected = "0: the noise of LeRobot's sampler is not inverted"
            raise BadInput("--steer-weight", got=config.steer_weight, expected=expected)
        torch.manual_seed(seed)
        width, depth = config.width, config.depth
        actor = NoiseSteeredConfig(execute=base.execute_steps, magnitude=config.magnitude, width=width, depth=depth)
        policy = NoiseSteeredPolicy(base, actor)
        critics = make_critics(config, policy.feature_size + policy.size)
        super().__init__(base, policy.to(base.device), critics, config, seed=seed)
        self.settings, self.soft = config, SoftActor(policy.actor, config, policy.latent)
        critics = EnsembleMlp(2, policy.feature_size + policy.latent, 1, width=width, depth=depth)
        self.noise_critics = critics.to(self.device)
        self.noise_adam = torch.optim.Adam(self.noise_critics.parameters(), lr=config.lr, fused=True)

    def explore(self, observation: dict[str, Tensor]) -> Tensor:
        return self._chunk(observation, self.policy.encode(observation))

    def next_chunk(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | float]:
        features = self.policy.encode(observation)
        return features, self._chunk(observation, features), 0.0

    def _chunk(self, observation: dict[str, Tensor], features: Tensor) -> Tensor:
        latent = self.policy.actor.sample(features, self.generator)[0]
        return self.policy.chunk(observation, self.settings.magnitude * latent)

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        for _ in range(self.settings.noise_steps):
            loss = self._distil(features, batch)

        apart, metrics = self._steer(features, batch) if self.settings.steer_weight else (0.0, {})

        def value(latent: Tensor) -> Tensor:
            # Q^w − λ L_steer, of which the mean is climbed
            return evaluate(self.noise_critics, features, latent[:, None]).mean(0).squeeze(1) - apart

        return self.soft.improve(features, value, self.generator) | {"noise_loss": loss} | metrics

    def _steer(self, features: Tensor, batch: ReplayBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """λ · Σ_b m_b 1/|w| ‖tanh μ(s_b) − w*_b‖² / Σ_b m_b."""
        error = batch.observation[ERROR][:, 0]
        taught = batch.intervention & (error <= self.settings.steer_error)
        apart = (self.policy.actor.mode(features) - batch.observation[NOISE]).square().mean(1)
        loss = (apart * taught).sum() / taught.sum().clamp_min(1)
        shown = batch.intervention.sum().clamp_min(1)
        metrics = {
            "steer": loss.detach(),
            "steer_error": (error * batch.intervention).sum() / shown,
            "steer_left_out": (batch.intervention & ~taught).sum() / shown,
        }
        return self.settings.steer_weight * loss, metrics

    @property
    def kept(self) -> Interface:
        found = super().kept
        if not self.settings.steer_weight:
            return found
        more = {NOISE: ArraySpec((self.policy.latent,)), ERROR: ArraySpec((1,))}
        return replace(found, observation=dict(found.observation) | more)

    def keep(self, episode: PlayedEpisode) -> PlayedEpisode:
        kept = super().keep(episode)
        return kept if not self.settings.steer_weight else replace(kept, observation=self._inverted(kept))

    def _inverted(self, episode: PlayedEpisode) -> dict[str, np.ndarray]:
        """The observation of `episode` with w* and the error of each frame; 0 where no person acted."""
        frames = len(next(iter(episode.observation.values())))
        noise, error = np.zeros((frames, self.policy.latent), np.float32), np.zeros((frames, 1), np.float32)
        rows = np.flatnonzero(episode.intervention)
        if len(rows):
            seen = {key: torch.tensor(value[rows], device=self.device) for key, value in episode.observation.items()}
            action, known = (torch.from_numpy(value).to(self.device) for value in plans(episode, rows, self.plan))
            w, apart = self.inverted(seen, action, known)
            noise[rows], error[rows, 0] = w.cpu().numpy(), apart.cpu().numpy()
        return dict(episode.observation) | {NOISE: noise, ERROR: error}

    @torch.no_grad()
    def inverted(self, observation: dict[str, Tensor], action: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """Actions (B, Tp, Da) in the world's units, of which the `known` (B, Tp) were commanded → w* (B, Tp · Da), and
        the root mean square (B,) by which its chunk misses those that are executed."""
        net, normalizer = self.policy.proposer.net, self.policy.proposer.normalizer
        cond = net.encode(normalizer.observation(observation))
        # Beyond what was commanded stands what the policy itself would do from the middle of its noise.
        own = net.sample(cond, torch.zeros(len(cond), *net.noise_shape, device=self.device))
        chunk = torch.where(known[..., None], normalizer.action(action).clamp(-1.0, 1.0), own)
        counts = known & (torch.arange(self.plan, device=self.device) < self.chunk)
        x0 = invert(net, chunk, counts, cond, self.settings.magnitude).flatten(1)
        made = self.policy.chunk(observation, x0).view(-1, self.chunk, self.components)
        met = counts[:, : self.chunk, None]
        missed = ((made - action[:, : self.chunk]).square() * met).sum((1, 2))
        return x0 / self.settings.magnitude, (missed / (met.sum((1, 2)) * self.components)).sqrt()

    def _distil(self, features: Tensor, batch: ReplayBatch) -> Tensor:
        # w within ±1; the flow starts at M w
        w = 2.0 * torch.rand(len(features), self.policy.latent, generator=self.generator, device=self.device) - 1.0
        with torch.no_grad():
            chunk = self.policy.chunk(batch.observation, self.settings.magnitude * w)
            wanted = self.critic.values(features, chunk[:, None]).mean(0)
        loss = (evaluate(self.noise_critics, features, w[:, None]) - wanted).square().mean()
        self.noise_adam.zero_grad(set_to_none=True)
        loss.backward()
        self.noise_adam.step()
        return loss.detach()

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return super().optimizers() | self.soft.optimizers() | {"noise": self.noise_adam}

    def modules(self) -> dict[str, nn.Module]:
        return super().modules() | self.soft.modules() | {"noise_critics": self.noise_critics}


def plans(episode: PlayedEpisode, rows: np.ndarray, ahead: int) -> tuple[np.ndarray, np.ndarray]:
    """(actions (B, Tp, Da), known (B, Tp)) of the `ahead` = Tp steps from each of `rows` on, up to where their author
    changes or the episode is over; 0 beyond."""
    steps = len(episode)
    turns = np.flatnonzero(np.diff(episode.intervention)) + 1
    edge = np.append(turns, steps)[np.searchsorted(turns, rows, side="right")]
    at = rows[:, None] + np.arange(ahead)
    known = at < edge[:, None]
    return np.where(known[..., None], episode.action[np.minimum(at, steps - 1)], 0.0).astype(np.float32), known
