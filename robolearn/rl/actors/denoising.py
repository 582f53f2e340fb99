"""A denoising policy (flow or diffusion) with noise in its sampler and a known likelihood.

A policy's deterministic sampler takes K steps, x_{k+1} = μ_k = f_θ(x_k, k, o): Euler steps of a flow's velocity field,
or DDIM steps of a denoiser. With noise in all of them, as in ReinFlow (Zhang et al., 2025) and DPPO (Ren et al., 2024),
a chunk is the end of a Markov chain:

    x_0 ~ N(0, s² I)
    x_{k+1} ~ N( μ_k, σ²(τ_k, o) ),    k = 0 … K − 1
    log π(chain | o) = Σ_k log N(x_{k+1}; μ_k, σ_k)

With the last step alone noised (ReinFlow's default here) the path before it is deterministic, and the gradient goes
through it:

    x_{k+1} = μ_k  for k < K − 1,      x_K ~ N( μ_{K−1}, σ²(τ_{K−1}, o) )
    log π(x_K | o, x_0) = log N(x_K; μ_{K−1}, σ_{K−1})

The reason: the velocity field of a trained flow contracts towards the actions, and its last Euler step removes what
was added before it (for a single action a, v = (a − x)/(1 − τ) makes x_K = a whatever x_{K−1} was). Noise in the
earlier steps hardly moves the action, yet it fills the likelihood and with it the gradient's variance.

The law of x_0 does not depend on θ and cancels in every ratio, whatever its standard deviation s (`initial_noise_std`).
What it makes the policy do by chance is credited to nothing and learned from by nobody: noise in the returns, on top
of the noise that explores. Sampler and likelihood both take μ_k from the policy's own `denoise`.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from robolearn.rl.actors.chain import ChainStats, gaussian_stats, noised_steps
from robolearn.rl.actors.noise import NoiseConfig, NoiseNet


class DenoisingActor(nn.Module):
    """A trainable policy network, its noise network and a frozen copy of the policy network as it was.

    Args:
      net: a `FlowPolicy` or `DiffusionPolicy`; it is trained in place.
      noise: range of the noise, and which steps have it.
    """

    def __init__(self, net: Any, noise: NoiseConfig) -> None:
        super().__init__()
        self.net = net
        self.reference = copy.deepcopy(net).requires_grad_(False).eval()
        self.chunk_dim = math.prod(net.noise_shape)  # D
        self.noised = noised_steps(net.config.steps, noise.steps)
        self.noise = NoiseNet(net.cond_dim, self.chunk_dim, noise)

    def sample(self, observation: dict[str, Tensor], generator: torch.Generator) -> Tensor:
        """Draw chains.

        Args:
          observation: normalised features, (B, To, …).
          generator: source of the noise.

        Returns:
          (B, M + 1, D): x_0 and what each noised step gave; the last one, clamped to [-1, 1], is the normalised
          action chunk.
        """
        cond = self.net.encode(observation)
        like = {"generator": generator, "device": cond.device}
        x = self.net.initial_noise_std * torch.randn(len(cond), self.chunk_dim, **like)
        chain = [x]
        for k in range(self.net.config.steps):
            x = _mean(self.net, x, k, cond)
            if k in self.noised:
                x = x + self._log_sigma(k, cond).exp() * torch.randn(x.shape, **like)
                chain.append(x)
        return torch.stack(chain, 1)

    def evaluate(self, observation: dict[str, Tensor], chain: Tensor) -> ChainStats:
        """Likelihood of chains (B, M + 1, D) under the present weights."""
        cond = self.net.encode(observation)
        mean = self._means(self.net, chain, cond)
        log_sigma = torch.stack([self._log_sigma(k, cond) for k in self.noised], 1)
        return gaussian_stats(chain, mean, log_sigma)

    def reference_mean(self, observation: dict[str, Tensor], chain: Tensor) -> Tensor:
        """(B, M, D) μ of the frozen policy for the same chains; it does not change while training."""
        with torch.no_grad():
            return self._means(self.reference, chain, self.reference.encode(observation))

    def _means(self, net: Any, chain: Tensor, cond: Tensor) -> Tensor:
        """(B, M, D) μ of the noised steps."""
        K = net.config.steps
        if len(self.noised) == K:
            return torch.stack([_mean(net, chain[:, k], k, cond) for k in range(K)], 1)
        x = chain[:, 0]
        for k in range(K):
            x = _mean(net, x, k, cond)
        return x[:, None]

    def _log_sigma(self, k: int, cond: Tensor) -> Tensor:
        """(B, D) log σ(τ_k, o)."""
        return self.noise(self.net.time_grid()[k].expand(len(cond)), cond)


@torch.no_grad()
def explore(
    net: Any, steps: str, observation: dict[str, Tensor], initial: float, sigma: float, generator: torch.Generator
) -> Tensor:
    """(B, Tp, Da) normalised chunks of `net` with the same σ in every noised step ("last" or "all").

    `initial` is the standard deviation of x_0.
    """
    cond = net.encode(observation)
    like = {"generator": generator, "device": cond.device}
    x = initial * torch.randn(len(cond), math.prod(net.noise_shape), **like)
    for k in range(net.config.steps):
        x = _mean(net, x, k, cond)
        if k in noised_steps(net.config.steps, steps):
            x = x + sigma * torch.randn(x.shape, **like)
    return x.clamp(-1, 1).reshape(-1, *net.noise_shape)


def _mean(net: Any, x: Tensor, k: int, cond: Tensor) -> Tensor:
    """μ_k for flat (B, D) states."""
    return net.denoise(x.reshape(-1, *net.noise_shape), k, cond).reshape(len(x), -1)
