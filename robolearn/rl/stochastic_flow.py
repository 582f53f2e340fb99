"""A flow policy with noise in its sampler and a known likelihood (after ReinFlow, Zhang et al., 2025).

With all denoising steps noised, as in the paper, a chunk is the end of a Markov chain:

    x_0 ~ N(0, I)
    x_{k+1} ~ N( μ_k, σ²(τ_k, o) ),    μ_k = x_k + Δτ_k v_θ(x_k, τ_k, o),    k = 0 … K − 1
    log π(chain | o) = Σ_k log N(x_{k+1}; μ_k, σ_k)  /  √(K · Tp · Da)

With the last step alone noised (the default) the path before it is deterministic, and the gradient goes through it:

    x_{k+1} = μ_k  for k < K − 1,      x_K ~ N( μ_{K−1}, σ²(τ_{K−1}, o) )
    log π(x_K | o, x_0) = log N(x_K; μ_{K−1}, σ_{K−1})  /  √(Tp · Da)

The reason: the velocity field of a trained flow contracts towards the actions, and its last Euler step removes what
was added before it (for a single action a, v = (a − x)/(1 − τ) makes x_K = a whatever x_{K−1} was). Noise in the
earlier steps hardly moves the action, yet it fills the likelihood and with it the gradient's variance.

The law of x_0 does not depend on θ and cancels in every ratio, whatever its standard deviation (`start_noise`). What
it makes the policy do by chance is credited to nothing and learned from by nobody: noise in the returns, on top of the
noise that explores. The division keeps the ratio's spread the same for
any K and any size of chunk, so that one clip range serves all (a sum's standard deviation grows with the square
root of its number of terms). Sampler and likelihood take their times from the policy's own `time_grid` and share
`_moments`: one definition of μ and σ, whichever asks.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from policies.flow import FlowPolicy
from robolearn.rl.noise import NoiseConfig, NoiseNet

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class ChainStats(NamedTuple):
    """What the likelihood of B chains is made of; M noised steps, K or 1."""

    log_prob: Tensor  # (B,)
    entropy: Tensor  # (B,) mean over noised steps and components of log σ + ½ log 2πe
    mean: Tensor  # (B, M, D) μ of the noised steps
    log_sigma: Tensor  # (B, M, D)


class StochasticFlow(nn.Module):
    """A trainable flow, its noise network and a frozen copy of the flow as it was.

    Args:
      flow: the pre-trained policy network; it is trained in place.
      noise: range of the noise, and which steps have it.
    """

    def __init__(self, flow: FlowPolicy, noise: NoiseConfig) -> None:
        super().__init__()
        self.flow = flow
        self.reference = copy.deepcopy(flow).requires_grad_(False).eval()
        self.chunk_shape = (flow.config.horizon, flow.action_dim)
        self.noise = NoiseNet(flow.cond_dim, self.chunk_dim, noise)

    @property
    def chunk_dim(self) -> int:
        """D = Tp · Da."""
        return self.chunk_shape[0] * self.chunk_shape[1]

    @property
    def steps(self) -> int:
        """K."""
        return self.flow.config.steps

    @property
    def noised(self) -> range:
        """The denoising steps k that are noised."""
        return range(self.steps) if self.noise.config.steps == "all" else range(self.steps - 1, self.steps)

    def sample(self, observation: dict[str, Tensor], generator: torch.Generator) -> Tensor:
        """Draw chains.

        Args:
          observation: normalised features, (B, To, …).
          generator: source of the noise.

        Returns:
          (B, M + 1, D): x_0 and what each noised step gave; the last one, clamped to [-1, 1], is the normalised
          action chunk.
        """
        cond = self.flow.encode(observation)
        x = self.flow.start_noise * torch.randn(len(cond), self.chunk_dim, generator=generator)
        chain = [x]
        for k in range(self.steps):
            x = self._mean(self.flow, x, k, cond)
            if k in self.noised:
                x = x + self._log_sigma(k, cond).exp() * torch.randn(x.shape, generator=generator)
                chain.append(x)
        return torch.stack(chain, 1)

    def evaluate(self, observation: dict[str, Tensor], chain: Tensor) -> ChainStats:
        """Likelihood of chains (B, M + 1, D) under the present weights."""
        cond = self.flow.encode(observation)
        mean = self._means(self.flow, chain, cond)
        log_sigma = torch.stack([self._log_sigma(k, cond) for k in self.noised], 1)
        z = (chain[:, 1:] - mean) * (-log_sigma).exp()
        terms = -0.5 * z.square() - log_sigma - LOG_SQRT_2PI
        log_prob = terms.sum((1, 2)) / math.sqrt(terms[0].numel())
        return ChainStats(log_prob, (log_sigma + LOG_SQRT_2PI + 0.5).mean((1, 2)), mean, log_sigma)

    def reference_mean(self, observation: dict[str, Tensor], chain: Tensor) -> Tensor:
        """(B, M, D) μ of the frozen policy for the same chains; it does not change while training."""
        with torch.no_grad():
            return self._means(self.reference, chain, self.reference.encode(observation))

    def kl_to_reference(self, stats: ChainStats, reference_mean: Tensor) -> Tensor:
        """E[ KL(π ‖ π_reference) ] / (M · D): Σ ‖μ − μ_ref‖² / 2σ², both with the same noise."""
        return (0.5 * (stats.mean - reference_mean).square() * (-2 * stats.log_sigma.detach()).exp()).mean()

    def w2_to_reference(self, observation: dict[str, Tensor], x0: Tensor) -> Tensor:
        """E‖a(x_0) − a_ref(x_0)‖²/D: the squared 2-Wasserstein distance is at most this (one coupling)."""
        shape = (len(x0), *self.chunk_shape)
        with torch.no_grad():
            target = self.reference.sample(self.reference.encode(observation), x0.reshape(shape))
        action = self.flow.sample(self.flow.encode(observation), x0.reshape(shape))
        return (action - target).square().mean()

    def _means(self, flow: FlowPolicy, chain: Tensor, cond: Tensor) -> Tensor:
        """(B, M, D) μ of the noised steps."""
        if len(self.noised) == self.steps:
            # Every step's start is known: the K steps lie side by side in one batch.
            batch, steps = len(chain), self.steps
            x = chain[:, :-1].reshape(batch * steps, self.chunk_dim)
            k = torch.arange(steps).repeat(batch)
            return self._mean(flow, x, k, cond.repeat_interleave(steps, 0)).reshape(batch, steps, -1)
        x = chain[:, 0]
        for k in range(self.steps):
            x = self._mean(flow, x, k, cond)
        return x[:, None]

    def _mean(self, flow: FlowPolicy, x: Tensor, k: int | Tensor, cond: Tensor) -> Tensor:
        """μ_k = x + Δτ_k v(x, τ_k, o) for (B, D) states; k is one step or (B,) of them."""
        batch, grid = len(x), flow.time_grid()
        tau, dtau = grid[:-1][k].expand(batch), grid.diff()[k].expand(batch)
        velocity = flow.velocity(x.reshape(batch, *self.chunk_shape), tau, cond, dtau)
        return x + dtau[:, None] * velocity.reshape(batch, -1)

    def _log_sigma(self, k: int, cond: Tensor) -> Tensor:
        """(B, D) log σ(τ_k, o)."""
        return self.noise(self.flow.time_grid()[k].expand(len(cond)), cond)


def sample_with_noise(
    flow: FlowPolicy,
    observation: dict[str, Tensor],
    sigma: float,
    steps: str,
    generator: torch.Generator,
    start: float | None = None,
) -> Tensor:
    """(B, Tp, Da) normalised chunks of the flow with the same σ in every noised step ("last" or "all").

    `start` is the standard deviation of x_0, by default the policy's own.
    """
    cond = flow.encode(observation)
    x = torch.randn((len(cond), *flow.noise_shape), generator=generator)
    x = x * (flow.start_noise if start is None else start)
    grid = flow.time_grid()
    last = len(grid) - 2
    for k in range(last + 1):
        dtau = (grid[k + 1] - grid[k]).expand(len(x))
        x = x + dtau[:, None, None] * flow.velocity(x, grid[k].expand(len(x)), cond, dtau)
        if steps == "all" or k == last:
            x = x + sigma * torch.randn(x.shape, generator=generator)
    return x.clamp(-1, 1)
