"""Chains of Gaussian steps, their likelihood, and distances between two policies.

Of a chunk of Tp actions the first Ta are executed, and only their D = Ta · Da components are counted, in likelihood,
entropy and divergences. Of the last denoising step that is exact: the other components never reach the world, and
would add their variance to the gradient and nothing else. Of earlier steps, where they are noised too, it is an
approximation, as in DPPO (`reward_horizon`): their other components reach what is executed through later means alone.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class ChainStats(NamedTuple):
    """The likelihood of B chains by its parts; M noised steps of D = Ta · Da components."""

    log_prob: Tensor  # (B, M) log N(x_{k+1}; μ_k, σ_k), summed over the components
    start: Tensor  # (B,) log N(x_0; 0, 1), summed over the components
    entropy: Tensor  # (B,) mean over noised steps and components of log σ + ½ log 2πe
    mean: Tensor  # (B, M, D) μ of the noised steps
    log_sigma: Tensor  # (B, M, D)

    def rows(self, index: Tensor | slice) -> ChainStats:
        """Those of the chains `index`."""
        return ChainStats(*(column[index] for column in self))

    def joint(self, exponent: Literal["root", "mean"] = "root") -> Tensor:
        """(B,) log-likelihood of the whole chain, as it stands in the exponent of a ratio.

        Args:
          exponent: "root" divides by √(M · D), which keeps the spread of a ratio the same for any number of steps and
            any size of chunk, so that one clip range serves all: a sum's standard deviation grows with the square root
            of its number of terms. "mean" is ReinFlow's: the mean over x_0 and the noised steps and over the
            components, cut to ±1.
        """
        total, terms = self.log_prob.sum(1), self.mean[0].numel()
        if exponent == "mean":
            return ((self.start + total) / (terms + self.mean.shape[2])).clamp(-1.0, 1.0)
        return total / math.sqrt(terms)


def gaussian_stats(chain: Tensor, mean: Tensor, log_sigma: Tensor, executed: int | None = None) -> ChainStats:
    """Of chains (B, M + 1, Tp·Da), whose first element is given, under N(mean, exp(log_sigma)²), each (B, M, Tp·Da).
    `executed`: Ta·Da, the components that count; by default all."""
    chain, mean, log_sigma = (each[:, :, :executed] for each in (chain, mean, log_sigma))
    z = (chain[:, 1:] - mean) * (-log_sigma).exp()
    terms = -0.5 * z.square() - log_sigma - LOG_SQRT_2PI
    start = (-0.5 * chain[:, 0].square() - LOG_SQRT_2PI).sum(1)
    return ChainStats(terms.sum(2), start, (log_sigma + LOG_SQRT_2PI + 0.5).mean((1, 2)), mean, log_sigma)


def noised_steps(steps: int, which: str) -> range:
    """The denoising steps k of `steps` that are noised: the "last" one, or "all"."""
    return range(steps) if which == "all" else range(steps - 1, steps)


def kl_nats(old: ChainStats, new: ChainStats) -> Tensor:
    """(B,) KL(π_old ‖ π) of the chains' noised steps, in nats, in closed form at the states of the chain, of what is
    executed:

    Σ log σ/σ_old + (σ_old² + (μ_old − μ)²) / 2σ² − ½
    """
    shift = new.log_sigma - old.log_sigma
    spread = (-2 * shift).exp() + (old.mean - new.mean).square() * (-2 * new.log_sigma).exp()
    return (shift + 0.5 * spread - 0.5).sum((1, 2))


def kl_to_reference(stats: ChainStats, reference_mean: Tensor) -> Tensor:
    """E[ KL(π ‖ π_reference) ] / (M · D): Σ ‖μ − μ_ref‖² / 2σ², both with the same noise."""
    return (0.5 * (stats.mean - reference_mean).square() * (-2 * stats.log_sigma.detach()).exp()).mean()


def w2_to_reference(net: nn.Module, reference: nn.Module, observation: dict[str, Tensor], x0: Tensor) -> Tensor:
    """E‖a(x_0) − a_ref(x_0)‖²/D of the executed actions: the squared 2-Wasserstein distance is at most this (one
    coupling). `x0`: (B, Tp·Da), where the paths of both begin."""
    execute: int = net.config.execute  # type: ignore[union-attr, assignment]
    with torch.no_grad():
        target = reference.sample(reference.encode(observation), x0.reshape(-1, *reference.noise_shape))  # type: ignore
    action = net.sample(net.encode(observation), x0.reshape(-1, *net.noise_shape))  # type: ignore[operator, misc]
    return (action - target)[:, :execute].square().mean()
