"""Exponential moving average of a network's weights (Polyak averaging), on `torch.optim.swa_utils.AveragedModel`."""

from __future__ import annotations

from typing import Generic, TypeVar, cast

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

Net = TypeVar("Net", bound=nn.Module)
Tensors = tuple[Tensor, ...] | list[Tensor]


class Ema(Generic[Net]):
    """The moving average of a network, with a warm-up.

    w̄ ← w̄ + (1 − β_n)(w − w̄),  β_n = min(β, (1 + n) / (10 + n))

    The bound by the number n of updates removes the random initial weights from the average within a few updates.

    Attributes:
      decay: β, in [0, 1).
      updates: n. A checkpoint holds ``module.state_dict()`` and `updates`; setting both resumes exactly.
      module: the averaged network; never differentiated.
    """

    def __init__(self, module: Net, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        # Its counter would otherwise be made on torch's default device.
        device = next(module.parameters()).device
        self._average = AveragedModel(module, device, multi_avg_fn=self._lerp)
        # At a count of 0 AveragedModel copies the weights instead of averaging; here the initial weights count.
        self._average.n_averaged.fill_(1)
        self._average.eval().requires_grad_(False)

    @property
    def module(self) -> Net:
        """The averaged network."""
        return cast(Net, self._average.module)

    def update(self, module: Net) -> None:
        """Average the parameters of `module` in; its buffers are copied."""
        self.updates += 1
        self._average.update_parameters(module)

    def _lerp(self, mean: Tensors, new: Tensors, count: Tensor | int) -> None:
        beta = min(self.decay, (1 + self.updates) / (10 + self.updates))
        get_ema_multi_avg_fn(beta)(mean, new, count)
