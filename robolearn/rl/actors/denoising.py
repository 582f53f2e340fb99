"""A denoising policy (flow or diffusion) with noise in its sampler and a known likelihood.

A policy's deterministic sampler takes K steps, x_{k+1} = μ_k = f_θ(x_k, k, o): Euler steps of a flow's velocity field,
or DDIM steps of a denoiser. With noise in all of them, as in ReinFlow (Zhang et al., 2025) and DPPO (Ren et al., 2024),
a chunk is the end of a Markov chain:

    x_0 ~ N(0, s² I)
    x_{k+1} ~ N( μ_k, σ²(τ_k, o) ),    k = 0 … K − 1
    log π(chain | o) = Σ_k log N(x_{k+1}; μ_k, σ_k)      over the components that are executed, see `ChainStats`

With the last step alone noised (ReinFlow's default here) the path before it is deterministic, and the gradient goes
through it:

    x_{k+1} = μ_k  for k < K − 1,      x_K ~ N( μ_{K−1}, σ²(τ_{K−1}, o) )
    log π(x_K | o, x_0) = log N(x_K; μ_{K−1}, σ_{K−1})

The reason: the velocity field of a trained flow contracts towards the actions, and its last Euler step removes what
was added before it (for a single action a, v = (a − x)/(1 − τ) makes x_K = a whatever x_{K−1} was). Noise in the
earlier steps hardly moves the action, yet it fills the likelihood and with it the gradient's variance.

The law of x_0 does not depend on θ and cancels in every ratio, whatever its standard deviation s (`initial_noise_std`).
What it makes the policy do by chance is credited to nothing: noise in the returns, on top of the noise that explores.
Sampler and likelihood both take μ_k from the policy's own `denoise`.

The size of the noise is learned (ReinFlow):

    log σ²(τ, o) = log σ_min² + (log σ_max² − log σ_min²) · (1 + tanh f(τ, o))/2

f is a small network, thrown away after fine-tuning. The observation enters detached: the noise must not shape
what the policy sees. σ_max is held for a share of the iterations, then falls on a cosine to 0.3 σ_min + 0.7 σ_max.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from robolearn.core import BadInput
from robolearn.rl.settings import NoiseConfig

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class ChainStats(NamedTuple):
    """The likelihood of B chains by its parts; M noised steps of D = Ta · Da components.

    Of a chunk of Tp actions the first Ta are executed, and only their components are counted, in likelihood, entropy
    and divergences. Of the last denoising step that is exact: the other components never reach the world, and would add
    their variance to the gradient and nothing else. Of earlier steps, where they are noised too, it is an
    approximation, as in DPPO (`reward_horizon`): their other components reach what is executed through later means.
    """

    log_prob: Tensor  # (B, M) log N(x_{k+1}; μ_k, σ_k), summed over the components
    start: Tensor  # (B,) log N(x_0; 0, 1), summed over the components
    entropy: Tensor  # (B,) mean over noised steps and components of log σ + ½ log 2πe
    mean: Tensor  # (B, M, D) μ of the noised steps
    log_sigma: Tensor  # (B, M, D)

    def rows(self, index: Tensor | slice) -> ChainStats:
        """Those of the chains `index`."""
        return ChainStats(*(column[index] for column in self))

    def joint(self, exponent: Literal["root", "mean"] = "root") -> Tensor:
        """(B,) log-likelihood of the whole chain, as it stands in the exponent of a ratio. `exponent`: "root" divides
        by √(M · D), which keeps the spread of a ratio the same for any number of steps and any size of chunk, so that
        one clip range serves all: a sum's standard deviation grows with the square root of its number of terms. "mean"
        is ReinFlow's: the mean over x_0 and the noised steps and over the components, cut to ±1."""
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


class DenoisingActor(nn.Module):
    """A trainable policy network, its noise network and a frozen copy of the policy network as it was.

    Chains hold whole chunks, D = Tp·Da; what is said of their likelihood is of the E = Ta·Da executed components.
    `net`: a `FlowPolicy` or `DiffusionPolicy`; it is trained in place. `noise`: range of the noise, and which steps
    have it.
    """

    def __init__(self, net: Any, noise: NoiseConfig) -> None:
        super().__init__()
        self.net = net
        self.reference = copy.deepcopy(net).requires_grad_(False).eval()
        self.chunk_dim = math.prod(net.noise_shape)  # D
        self.executed: int = net.config.execute * net.action_dim  # E
        self.noised = noised_steps(net.config.steps, noise.steps)
        self.noise = NoiseNet(net.cond_dim, self.chunk_dim, noise)

    def sample(self, observation: dict[str, Tensor], generator: torch.Generator) -> Tensor:
        """Draw chains.

        Args:
          observation: normalised features, (B, To, …).

        Returns:
          (B, M + 1, D): x_0 and what each noised step gave; the last one, clamped to [-1, 1], is the normalised
          action chunk.
        """
        cond = self.net.encode(observation)
        chain = _chain(
            self.net,
            self.noise.config,
            cond,
            self.net.initial_noise_std,
            lambda k: self._log_sigma(k, cond).exp(),
            generator,
        )
        return torch.stack(chain, 1)

    def evaluate(self, observation: dict[str, Tensor], chain: Tensor) -> ChainStats:
        """Likelihood of chains (B, M + 1, D) under the present weights."""
        cond = self.net.encode(observation)
        mean = self._means(self.net, chain, cond)
        log_sigma = torch.stack([self._log_sigma(k, cond) for k in self.noised], 1)
        return gaussian_stats(chain, mean, log_sigma, self.executed)

    def reference_mean(self, observation: dict[str, Tensor], chain: Tensor) -> Tensor:
        """(B, M, E) μ of the frozen policy for the same chains; it does not change while training."""
        with torch.no_grad():
            return self._means(self.reference, chain, self.reference.encode(observation))[:, :, : self.executed]

    def _means(self, net: Any, chain: Tensor, cond: Tensor) -> Tensor:
        """(B, M, D) μ of the noised steps."""
        K, noise = net.config.steps, self.noise.config
        if len(self.noised) == K:
            return torch.stack([_mean(net, noise, chain[:, k], k, cond) for k in range(K)], 1)
        x = chain[:, 0]
        for k in range(K):
            x = _mean(net, noise, x, k, cond)
        return x[:, None]

    def _log_sigma(self, k: int, cond: Tensor) -> Tensor:
        """(B, D) log σ(τ_k, o)."""
        return self.noise(self.net.time_grid()[k].expand(len(cond)), cond)


@torch.no_grad()
def explore(
    net: Any, noise: NoiseConfig, observation: dict[str, Tensor], initial: float, sigma: float,
    generator: torch.Generator,
) -> Tensor:  # fmt: skip
    """(B, Tp, Da) normalised chunks of `net` with the same σ in every step that `noise` says is noised.

    `initial` is the standard deviation of x_0.
    """
    cond = net.encode(observation)
    x = _chain(net, noise, cond, initial, lambda k: sigma, generator)[-1]
    return x.clamp(-1, 1).reshape(-1, *net.noise_shape)


def _chain(
    net: Any, noise: NoiseConfig, cond: Tensor, initial: float, sigma: Callable[[int], Tensor | float],
    generator: torch.Generator,
) -> list[Tensor]:  # fmt: skip
    """x_0 and what each noised step gave, (B, D) each; the last step is noised always."""
    like = {"generator": generator, "device": cond.device}
    x = initial * torch.randn(len(cond), math.prod(net.noise_shape), **like)
    chain = [x]
    for k in range(net.config.steps):
        x = _mean(net, noise, x, k, cond)
        if k in noised_steps(net.config.steps, noise.steps):
            draw = torch.randn(x.shape, **like)
            if noise.within:
                draw = draw.clamp(-noise.within, noise.within)
            x = x + sigma(k) * draw
            chain.append(x)
    return chain


def _mean(net: Any, noise: NoiseConfig, x: Tensor, k: int, cond: Tensor) -> Tensor:
    """μ_k for flat (B, D) states."""
    mean = net.denoise(x.reshape(-1, *net.noise_shape), k, cond).reshape(len(x), -1)
    return mean.clamp(-1.0, 1.0) if noise.clip_means else mean


class NoiseNet(nn.Module):
    """σ(τ, o) for every component of an action chunk. `cond_dim`: size C of the encoded observation. `chunk_dim`: Tp ·
    Da."""

    def __init__(self, cond_dim: int, chunk_dim: int, config: NoiseConfig) -> None:
        super().__init__()
        low, high = config.sigma_range
        if not 0 < low <= high:
            raise BadInput("range of the noise", got=config.sigma_range, expected="0 < sigma-min <= sigma-max")
        self.config = config
        self.net = nn.Sequential(
            nn.Linear(cond_dim + 1, config.hidden),
            nn.Tanh(),
            nn.Linear(config.hidden, config.hidden),
            nn.Tanh(),
            nn.Linear(config.hidden, chunk_dim),
        )
        last = self.net[-1]
        assert isinstance(last, nn.Linear)
        # It begins in the middle of the range (on the log scale), the same everywhere.
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.log_var_min: Tensor
        self.log_var_max: Tensor
        self.register_buffer("log_var_min", torch.tensor(2 * math.log(low)))
        self.register_buffer("log_var_max", torch.tensor(2 * math.log(high)))

    def forward(self, tau: Tensor, cond: Tensor) -> Tensor:
        """(B,) flow time and (B, C) condition → (B, Tp·Da) log σ."""
        f = self.net(torch.cat([cond.detach(), tau[:, None]], -1))
        share = 0.5 * (1 + torch.tanh(f))
        return 0.5 * (self.log_var_min + (self.log_var_max - self.log_var_min) * share)

    def schedule(self, progress: float) -> None:
        """Set σ_max for the share `progress` in [0, 1] of the iterations done."""
        low, high = self.config.sigma_range
        end = 0.3 * low + 0.7 * high
        fall = min(max((progress - self.config.hold) / (1 - self.config.hold), 0.0), 1.0)
        now = end + (high - end) * 0.5 * (1 + math.cos(math.pi * fall))
        self.log_var_max.fill_(2 * math.log(max(now, low)))
