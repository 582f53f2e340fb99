"""Exponential moving average of a network's weights (Polyak averaging)."""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

Net = TypeVar("Net", bound=nn.Module)


class Ema(Generic[Net]):
    """A frozen copy of a network that follows it.

    w̄ ← w̄ + (1 − β_n)(w − w̄),  β_n = min(β, (1 + n) / (10 + n))

    The bound by the number n of updates lets the copy forget its random start within a few updates.

    Attributes:
      module: the averaged network; never differentiated.
      updates: n.
    """

    def __init__(self, module: Net, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self.module: Net = copy.deepcopy(module).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, module: Net) -> None:
        """Follow `module` by one step; its buffers are copied."""
        self.updates += 1
        beta = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for mine, theirs in zip(self.module.parameters(), module.parameters(), strict=True):
            mine.lerp_(theirs, 1.0 - beta)
        for mine, theirs in zip(self.module.buffers(), module.buffers(), strict=True):
            mine.copy_(theirs)
