"""A loss as a sum over rows, so that it can be taken in parts: pieces of a batch, or its shares in several processes.

    L = Σ_i w_i e_i / Σ_i w_i = Σ_parts [Σ_{i in part} w_i e_i] / W,   W = Σ_i w_i of the whole batch

The gradient of the parts' sum is that of the whole. What is random in a batch is drawn for all of it and then divided,
so that the division changes nothing but the order of the sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor


class RowLoss(Protocol):
    """What a network has whose loss can be taken in parts; see `policies.kinds.flow.FlowPolicy`."""

    def draw(self, action: Tensor, generator: torch.Generator) -> dict[str, Tensor]: ...

    def weight(self, action: Tensor, is_pad: Tensor | None) -> Tensor: ...

    def errors(
        self, observation: Mapping[str, Tensor], action: Tensor, draws: Mapping[str, Tensor], target: Any
    ) -> Tensor: ...

    def parts(self, error: Tensor, weight: Tensor, draws: Mapping[str, Tensor]) -> dict[str, Tensor]: ...


def step_weight(action: Tensor, is_pad: Tensor | None) -> Tensor:
    """(B, Tp) how much each action of a batch counts: 0 where `is_pad` (B, Tp), which may be None, says padding."""
    if is_pad is None:
        return torch.ones(action.shape[:2], device=action.device, dtype=action.dtype)
    return (~is_pad).to(action.dtype)


def weighted_mean(error: Tensor, weight: Tensor) -> Tensor:
    """Σ w e / Σ w of errors and weights of one shape; 0 where nothing counts."""
    return (error * weight).sum() / weight.sum().clamp_min(1.0)


def has_parts(net: Any) -> bool:
    """Whether the loss of `net` can be taken in parts."""
    return all(hasattr(net, name) for name in ("draw", "weight", "errors", "parts"))
