"""Flow policies over action chunks: rectified flow, and shortcut models that are trained for large steps.

Rectified flow: Liu et al. 2023, "Flow Straight and Fast"; as a policy: ReinFlow (2025), π0 (2024).
Shortcut models: Frans et al. 2025, "One Step Diffusion via Shortcut Models".
Flow time τ runs from 0 (noise) to 1 (action). Everything here is normalised: see `policies.normalize`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from policies.kinds.chunk_net import DenoisingNet, weighted_mean
from policies.settings import FlowConfig
from robolearn.core import Interface


class FlowPolicy(DenoisingNet):
    """A velocity field v(x, τ, condition[, d]) over normalised action chunks.

    Attributes:
      config: the `FlowConfig`.
      noise_shape: (Tp, Da).
    """

    def __init__(self, config: FlowConfig, interface: Interface) -> None:
        super().__init__(config, interface, embeddings=2 if config.kind == "shortcut" else 1)

    def embed(self, tau: Tensor, d: Tensor | None = None) -> Tensor:
        """Flow time (B,) and step size (B,) → (B, E). `d` counts for shortcut models only, None means 0."""
        if self.config.kind == "rectified":
            return self.time(tau)
        return torch.cat((self.time(tau), self.time(torch.zeros_like(tau) if d is None else d)), dim=1)

    def velocity(self, x: Tensor, tau: Tensor, cond: Tensor, d: Tensor | None = None) -> Tensor:
        """v(x, τ, condition, d), of the shape of `x`, without guidance.

        Args:
          x: (B, Tp, Da), or flat (B, Tp·Da).
          tau: (B,) in [0, 1].
          cond: (B, C) from `encode`.
          d: (B,) step size; what a step of the sampler uses is ``time_grid().diff()``.
        """
        chunk = x.view(len(x), *self.noise_shape)
        return self.field(chunk, self.embed(tau, d), cond).view_as(x)

    def time_grid(self, steps: int | None = None) -> Tensor:
        """(K+1,) flow times τ_0 = 0 … τ_K = 1, float32 on the policy's device.

        The one definition: samplers, likelihoods and noise schedules all take their times from here. Equal
        steps; only a shortcut model with K that is no power of two halves some of the last ones, because it
        has learned the steps 2^-j at multiples of themselves and no others.
        """
        k = self.config.steps if steps is None else steps
        coarse = 2 ** int(math.log2(k)) if self.config.kind == "shortcut" else k
        grid = [i / coarse for i in range(2 * coarse - k)]
        grid += [1 - i / (2 * coarse) for i in reversed(range(2 * (k - coarse) + 1))]
        return torch.tensor(grid, device=self.time.frequency.device)

    def denoise(self, x: Tensor, k: int, cond: Tensor) -> Tensor:
        """μ_k = x + Δτ_k v(x, τ_k, condition, Δτ_k)."""
        grid = self.time_grid()
        tau, dtau = grid[k].expand(len(x)), grid.diff()[k].expand(len(x))
        return x + dtau[:, None, None] * self.guided(x, self.embed(tau, dtau), cond)

    def sample(self, cond: Tensor, x0: Tensor, steps: int | None = None) -> Tensor:
        """Noise x0 (B, Tp, Da) → actions (B, Tp, Da) in [-1, 1], deterministically.

        Euler: x ← x + (τ_{k+1} − τ_k) v(x, τ_k, condition, τ_{k+1} − τ_k); the last x is cut to ±1.
        """
        grid = self.time_grid(steps)
        sizes = grid.diff()
        embeddings = self.embed(grid[:-1], sizes)
        x = x0
        for embedding, size in zip(embeddings.unbind(), sizes.tolist(), strict=True):
            v = self.guided(x, embedding.expand(x.shape[0], -1), cond)
            x = torch.add(x, v, alpha=size)
        return x.clamp(-1.0, 1.0)

    def noises(self, action: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """x_0, τ, and of shortcut models the step d, 0 where the flow itself is trained."""
        batch, like = len(action), {"device": action.device, "dtype": action.dtype}
        draws = {"x0": torch.randn(action.shape, generator=generator, **like)}
        consistent = max(1, round(batch * self.config.consistency)) if self.config.kind == "shortcut" else 0
        draws["tau"] = self.training_times(batch, generator, action)
        if consistent:
            draws["d"] = torch.zeros(batch, **like)
            draws["d"][:consistent], draws["tau"][:consistent] = self.shortcut_steps(consistent, generator, action)
        return draws

    def errors(
        self, observation: Mapping[str, Tensor], action: Tensor, draws: Mapping[str, Tensor], target: FlowPolicy | None
    ) -> Tensor:
        cond = self.condition(observation, draws)
        x0, tau, d = draws["x0"], draws["tau"], draws.get("d")
        # x_τ = τ x1 + (1 − τ) x0,  target u = x1 − x0
        x = torch.lerp(x0, action, tau[:, None, None])
        u = action - x0
        if d is not None and (consistent := int((d > 0).sum())):  # they come first
            teacher = self if target is None else target
            c = slice(0, consistent)
            with torch.no_grad():
                own = {k: v[c] for k, v in observation.items()}, {k: v[c] for k, v in draws.items()}
                teacher_cond = cond[c] if target is None else teacher.condition(*own)
                u[c] = teacher.two_half_steps(x[c], tau[c], d[c], teacher_cond)
        return (self.velocity(x, tau, cond, d) - u).square().mean(dim=2)

    def parts(self, error: Tensor, weight: Tensor, draws: Mapping[str, Tensor]) -> dict[str, Tensor]:
        parts = super().parts(error, weight, draws)
        if "d" in draws:
            consistent = draws["d"] > 0
            parts["loss_consistency"] = weighted_mean(error[consistent], weight[consistent])
            parts["loss_flow"] = weighted_mean(error[~consistent], weight[~consistent])
        return parts

    def two_half_steps(self, x: Tensor, tau: Tensor, d: Tensor, cond: Tensor) -> Tensor:
        """The mean velocity (B, Tp, Da) of two steps d/2 from (x, τ): the target of one step d."""
        # s(x, τ, d) ← [s(x, τ, d/2) + s(x', τ + d/2, d/2)] / 2,  x' = x + d/2 · s(x, τ, d/2)
        half = d / 2
        # Below the smallest trained step the field itself (d = 0) is asked, as in the paper.
        size = torch.where(half < 2.0**-self.config.levels, 0.0, half)
        first = self.velocity(x, tau, cond, size)
        second = self.velocity(x + half[:, None, None] * first, tau + half, cond, size)
        return (first + second) / 2

    def shortcut_steps(self, n: int, generator: torch.Generator, like: Tensor) -> tuple[Tensor, Tensor]:
        """Steps d = 2^-k, k uniform in 0..levels, and times τ uniform over the multiples of d below 1."""
        k = torch.randint(self.config.levels + 1, (n,), generator=generator, device=like.device)
        d = torch.pow(2.0, -k.to(like.dtype))
        u = torch.rand(n, generator=generator, device=like.device, dtype=like.dtype)
        return d, torch.floor(u / d) * d

    def training_times(self, n: int, generator: torch.Generator, like: Tensor) -> Tensor:
        """τ (B,) for flow matching."""
        if self.config.time_sampling == "logit_normal":
            return torch.randn(n, generator=generator, device=like.device, dtype=like.dtype).sigmoid_()
        u = torch.rand(n, generator=generator, device=like.device, dtype=like.dtype)
        # π0: (s − τ)/s ~ Beta(1.5, 1), whose inverse distribution function is u^(1/1.5); s = 0.999
        return 0.999 * (1.0 - u.pow(1 / 1.5)) if self.config.time_sampling == "beta" else u
