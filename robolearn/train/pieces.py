"""The gradient of a batch in pieces: one after the other (accumulation), or side by side in several processes.

    g = Σ_p ∇ Σ_{i in p} w_i e_i / W,   W = Σ_i w_i of the whole batch

Noise is drawn for the whole batch and divided with it, so g is that of the whole batch but for the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

Batch = tuple[dict[str, Tensor], Tensor, Tensor]
"""Normalised observation and action, and which actions are padding."""


class Together(Protocol):
    """Processes that work on one batch; see `robolearn.train.processes`."""

    rank: int
    count: int

    def sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """The sums over all processes, the same in each."""
        ...


def gradient_in_pieces(
    net: Any,
    gather: Callable[[Tensor], Batch],
    index: Tensor,
    generator: torch.Generator,
    target: nn.Module,
    *,
    pieces: int,
    autocast: AbstractContextManager,
    together: Together | None = None,
) -> dict[str, Tensor]:
    """Leave the gradient of the loss of the windows `index` (B,) in the parameters of `net`; the loss and its parts.

    Args:
      net: its loss is one over rows (`policies.loss.RowLoss`); gradients have been set to None.
      gather: the batch of some of the windows.
      generator: of what is random; advanced as by ``net.loss`` of the whole batch.
      target: as in ``net.loss``.
      pieces: into how many the batch is divided, in each process its own share.
      together: the processes that have a share each; by default this one has all.
    """
    rows = torch.arange(len(index))
    if together is not None:
        rows = rows.tensor_split(together.count)[together.rank]
    draws: dict[str, Tensor] | None = None
    error = weight = torch.empty(0)
    for piece in rows.tensor_split(pieces):
        # A share may be empty; it still draws, so that all generators stay alike.
        if not len(piece) and draws is not None:
            continue
        observation, action, is_pad = gather(index[piece] if len(piece) else index[:1])
        if draws is None:
            draws = net.draw(action.new_empty(len(index), *action.shape[1:]), generator)
            error = action.new_zeros(len(index), action.shape[1])
            weight = torch.zeros_like(error)
        if not len(piece):
            continue
        assert draws is not None
        own = {key: value[piece.to(value.device)] for key, value in draws.items()}
        with autocast:
            counts = net.weight(action, is_pad)
            errors = net.errors(observation, action, own, target)
            total = (errors * counts).sum()
        total.backward()
        error[piece.to(error.device)], weight[piece.to(error.device)] = errors.detach().to(error.dtype), counts
    assert draws is not None
    parameters = [p for p in net.parameters() if p.requires_grad]
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    if together is not None:
        error, weight, *gradients = together.sum([error, weight, *(p.grad for p in parameters if p.grad is not None)])
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient
    whole = weight.sum().clamp_min(1.0)
    for p in parameters:
        assert p.grad is not None
        p.grad.div_(whole)
    return net.parts(error, weight, draws)
