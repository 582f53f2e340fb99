"""A flow policy as a discrete-time Markov chain with known likelihood (ReinFlow, Zhang et al., 2025).

    x_0 ~ N(0, I)
    x_{k+1} ~ N( x_k + Δτ_k v_θ(x_k, τ_k, o),  σ²(τ_k, o) ),       k = 0 … K − 1
    log π(chain | o) = Σ_k log N(x_{k+1}; μ_k, σ_k)  /  √(K · Tp · Da)

The law of x_0 does not depend on θ and cancels in every ratio. The division keeps the ratio's spread the same for
any K and any size of chunk, so that one clip range serves all (the sum's standard deviation grows with the square
root of its number of terms). Sampler and likelihood take their times from the policy's own `time_grid`, and share
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
    """What the likelihood of B chains is made of."""

    log_prob: Tensor  # (B,)
    entropy: Tensor  # (B,) mean over steps and components of log σ + ½ log 2πe
    mean: Tensor  # (B, K, D) μ_k
    log_sigma: Tensor  # (B, K, D)


class StochasticFlow(nn.Module):
    """A trainable flow, its noise network and a frozen copy of the flow as it was.

    Args:
      flow: the pre-trained policy network; it is trained in place.
      noise: range of the noise.
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

    def sample(self, observation: dict[str, Tensor], generator: torch.Generator) -> Tensor:
        """Draw chains.

        Args:
          observation: normalised features, (B, To, …).
          generator: source of the noise.

        Returns:
          (B, K + 1, D) x_0 … x_K; the last one, clamped to [-1, 1], is the normalised action chunk.
        """
        cond = self.flow.encode(observation)
        x = torch.randn(len(cond), self.chunk_dim, generator=generator)
        chain = [x]
        grid = self.flow.time_grid()
        for k in range(self.steps):
            mean, log_sigma = self._moments(self.flow, x, grid[k], grid[k + 1] - grid[k], cond)
            x = mean + log_sigma.exp() * torch.randn(x.shape, generator=generator)
            chain.append(x)
        return torch.stack(chain, 1)

    def evaluate(self, observation: dict[str, Tensor], chain: Tensor) -> ChainStats:
        """Likelihood of chains (B, K + 1, D) under the present weights, all K steps in one pass."""
        batch, steps = len(chain), self.steps
        cond = self.flow.encode(observation)
        mean, log_sigma = self._all_moments(self.flow, chain, cond)
        z = (chain[:, 1:] - mean) * (-log_sigma).exp()
        log_prob = (-0.5 * z.square() - log_sigma - LOG_SQRT_2PI).sum((1, 2)) / math.sqrt(steps * self.chunk_dim)
        entropy = (log_sigma + LOG_SQRT_2PI + 0.5).mean((1, 2))
        assert log_prob.shape == (batch,)
        return ChainStats(log_prob, entropy, mean, log_sigma)

    def reference_mean(self, observation: dict[str, Tensor], chain: Tensor) -> Tensor:
        """(B, K, D) μ_k of the frozen policy along the same chains; it does not change while training."""
        with torch.no_grad():
            return self._all_moments(self.reference, chain, self.reference.encode(observation))[0]

    def kl_to_reference(self, stats: ChainStats, reference_mean: Tensor) -> Tensor:
        """E[ KL(π ‖ π_reference) ] / (K · D): Σ_k ‖μ_k − μ_k,ref‖² / 2σ_k², both with the same noise."""
        return (0.5 * (stats.mean - reference_mean).square() * (-2 * stats.log_sigma.detach()).exp()).mean()

    def w2_to_reference(self, observation: dict[str, Tensor], x0: Tensor) -> Tensor:
        """E‖a(x_0) − a_ref(x_0)‖²/D: the squared 2-Wasserstein distance is at most this (one coupling)."""
        shape = (len(x0), *self.chunk_shape)
        with torch.no_grad():
            target = self.reference.sample(self.reference.encode(observation), x0.reshape(shape))
        action = self.flow.sample(self.flow.encode(observation), x0.reshape(shape))
        return (action - target).square().mean()

    def _moments(self, flow: FlowPolicy, x: Tensor, tau: Tensor, dtau: Tensor, cond: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ of one step for (B, D) states; τ and Δτ are scalars or (B,)."""
        batch = len(x)
        tau, dtau = tau.expand(batch), dtau.expand(batch)
        velocity = flow.velocity(x.reshape(batch, *self.chunk_shape), tau, cond, dtau)
        mean = x + dtau[:, None] * velocity.reshape(batch, -1)
        return mean, self.noise(tau, cond)

    def _all_moments(self, flow: FlowPolicy, chain: Tensor, cond: Tensor) -> tuple[Tensor, Tensor]:
        """(B, K, D) μ and log σ, with the K steps side by side in the batch."""
        batch, steps = len(chain), self.steps
        grid = flow.time_grid()
        tau, dtau = grid[:-1].repeat(batch), (grid[1:] - grid[:-1]).repeat(batch)
        x = chain[:, :-1].reshape(batch * steps, self.chunk_dim)
        mean, log_sigma = self._moments(flow, x, tau, dtau, cond.repeat_interleave(steps, 0))
        return mean.reshape(batch, steps, -1), log_sigma.reshape(batch, steps, -1)


def sample_with_noise(
    flow: FlowPolicy, observation: dict[str, Tensor], sigma: float, generator: torch.Generator
) -> Tensor:
    """(B, Tp, Da) normalised chunks of the flow with the same noise σ in every denoising step."""
    cond = flow.encode(observation)
    x = torch.randn((len(cond), *flow.noise_shape), generator=generator)
    grid = flow.time_grid()
    for k in range(len(grid) - 1):
        dtau = (grid[k + 1] - grid[k]).expand(len(x))
        x = x + dtau[:, None, None] * flow.velocity(x, grid[k].expand(len(x)), cond, dtau)
        x = x + sigma * torch.randn(x.shape, generator=generator)
    return x.clamp(-1, 1)
