"""DPPO: diffusion policy policy optimisation (Ren et al., "Diffusion Policy Policy Optimization", ICLR 2025).

PPO over environment steps × denoising steps: every noised denoising step k = 0 … M − 1 is an action of its own, with a
ratio of its own, and the later ones, which are nearer to the action, count more:

    r_k = exp( (log π_θ(x_{k+1} | x_k, o) − log π_old(x_{k+1} | x_k, o)) / √D )
    A_k = γ_d^{M − 1 − k} A
    ε_k = ε_first + (ε − ε_first) (e^{3t} − 1) / (e³ − 1),   t = k / (M − 1)
    L   = −E_k[ min(r_k A_k, clip(r_k, 1 − ε_k, 1 + ε_k) A_k) ]

Advantages of the environment steps come from a critic of observations, by GAE, as in `reinflow`.

D = Ta·Da, the components that are executed. Departures from the paper: the ratio's exponent is divided by √D where the
paper takes the mean over D (`--exponent mean`), with ε to match; the noise has a learned, calibrated size instead of a
fixed floor of 0.1; the step size follows the divergence; the last denoising step alone is noised by default
(`--noise-steps all` is the paper's).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from robolearn.rl.actors import ChainStats
from robolearn.rl.algorithms.on_policy import ActorCritic
from robolearn.rl.returns import clipped_surrogate, standardise
from robolearn.rl.settings import DppoConfig

RATE = 3.0  # at which ε grows over the denoising steps


class Dppo(ActorCritic):
    """See the module's docstring."""

    config: DppoConfig

    def surrogate(self, old: ChainStats, advantage: Tensor) -> Callable[[ChainStats, slice], Tensor]:
        """L of a minibatch, its advantages standardised."""
        M, D = old.mean.shape[1:]
        first, last = self.config.clip_first, self.config.clip
        left = torch.arange(M - 1, -1, -1, device=advantage.device)  # M − 1 − k
        weighted = standardise(advantage)[:, None] * self.config.gamma_denoising**left
        t = 1.0 - left / max(M - 1, 1)
        clip = first + (last - first) * torch.expm1(RATE * t) / math.expm1(RATE)
        before = self._exponent(old.log_prob, D)
        return lambda now, part: clipped_surrogate(self._exponent(now.log_prob, D) - before[part], weighted[part], clip)

    def _exponent(self, log_prob: Tensor, D: int) -> Tensor:
        """(B, M) sums over D components → what stands in the exponents of ratios."""
        return (log_prob / D).clamp(-5.0, 2.0) if self.config.exponent == "mean" else log_prob / math.sqrt(D)
