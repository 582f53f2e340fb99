"""Regression of action chunks in one step or in two: the baseline of generative policies.

    â₀ = π(0, s = 0, o)                              trained on ‖â₀ − a‖²
    â  = π(â₀, s = 1, o)                             trained on ‖π(a + σ ε, s = 1, o) − a‖² / σ²,  ε ~ N(0, 1)

The second step is that of the minimal iterative policy (Pan et al., "Much Ado About Noising", 2025): an intermediate
step that is supervised, with noise in its input while training and none when acting. Both losses are in units of what
the step has to mend: 1 for the first one, σ for the second. Deterministic, without a likelihood. Everything here is
normalised: see `policies.normalize`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from policies.kinds.chunk_net import ChunkNet, Loss, Tensors, weighted_mean
from policies.settings import RegressionConfig
from robolearn.core import Interface


class RegressionPolicy(ChunkNet):
    """Condition → chunk, without noise; `config` is a `RegressionConfig`."""

    def __init__(self, config: RegressionConfig, interface: Interface) -> None:
        super().__init__(config, interface)
        self.add_field()

    def predict(self, x: Tensor, step: int, cond: Tensor) -> Tensor:
        """π(x, s, condition), (B, Tp, Da): a prediction from nothing (s = 0) or from a chunk (s = 1)."""
        return self.field(x, self.time(x.new_full((x.shape[0],), float(step))), cond)

    def sample(self, cond: Tensor, x0: Tensor) -> Tensor:
        x = cond.new_zeros(cond.shape[0], self.config.horizon, self.action_dim)
        for step in range(self.config.steps):
            x = self.predict(x, step, cond)
        return x.clamp(-1.0, 1.0)

    def loss(
        self, observation: Tensors, action: Tensor, is_pad: Tensor | None, generator: Generator, target: Any = None
    ) -> Loss:
        cond = self.encode(observation)
        weight = self.weight(action, is_pad)
        first = weighted_mean((self.predict(torch.zeros_like(action), 0, cond) - action).square().mean(2), weight)
        if self.config.steps == 1:
            return first, {"loss": first.detach()}
        sigma = self.config.noise
        noise = torch.randn(action.shape, generator=generator, device=action.device, dtype=action.dtype)
        refined = self.predict(action + sigma * noise, 1, cond)
        second = weighted_mean((refined - action).square().mean(2), weight) / sigma**2
        loss = first + second
        parts = {"loss": loss, "loss_first": first, "loss_refined": second}
        return loss, {key: value.detach() for key, value in parts.items()}
