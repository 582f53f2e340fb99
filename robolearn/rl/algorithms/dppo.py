"""DPPO: diffusion policy policy optimisation (Ren et al., "Diffusion Policy Policy Optimization", ICLR 2025).

PPO over environment steps × denoising steps: every noised denoising step k = 0 … M − 1 is an action of its own, with a
ratio of its own, and the later ones, which are nearer to the action, count more:

    r_k = exp( (log π_θ(x_{k+1} | x_k, o) − log π_old(x_{k+1} | x_k, o)) / √D )
    A_k = γ_d^{M − 1 − k} A
    ε_k = ε_first (ε / ε_first)^{k / (M − 1)}
    L   = −E_k[ min(r_k A_k, clip(r_k, 1 − ε_k, 1 + ε_k) A_k) ]

Advantages of the environment steps come from a critic of observations, by GAE, as in `reinflow`.

Departures from the paper: the ratio's exponent is divided by √D where the paper takes the mean over D, with ε to
match; the noise has a learned, calibrated size instead of a fixed floor of 0.1; the step size follows the divergence;
the last denoising step alone is noised by default (`--noise-steps all` is the paper's).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from robolearn.rl.actors import ChainStats
from robolearn.rl.algorithms.on_policy import ActorCritic
from robolearn.rl.losses import clipped_surrogate, standardise
from robolearn.rl.settings import DppoConfig


class Dppo(ActorCritic):
    """See the module's docstring."""

    config: DppoConfig

    def surrogate(self, old: ChainStats, advantage: Tensor) -> Callable[[ChainStats, slice], Tensor]:
        """L of a minibatch, its advantages standardised."""
        M, D = old.mean.shape[1:]
        left = torch.arange(M - 1, -1, -1, device=advantage.device)  # M − 1 − k
        weighted = standardise(advantage)[:, None] * self.config.gamma_denoising**left
        clip = self.config.clip * (self.config.clip_first / self.config.clip) ** (left / max(M - 1, 1))

        def loss(now: ChainStats, part: slice) -> Tensor:
            log_ratio = (now.log_prob - old.log_prob[part]) / math.sqrt(D)
            return clipped_surrogate(log_ratio, weighted[part], clip)

        return loss
