"""The state of a trainer of heads over a frozen encoder, which a stopped training goes on from to the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from robolearn.rewards.settings import HeadConfig
from robolearn.runs.checkpoint import pack_optimizer, unpack_optimizer

Config = TypeVar("Config", bound=HeadConfig)


class HeadTrainer(Generic[Config]):
    """Heads in training.

    Attributes:
      heads: what is learned, by `optimizer`.
      done: iterations so far.
    """

    config: Config
    heads: nn.Module
    optimizer: torch.optim.Optimizer
    done: int = 0

    @property
    def iterations(self) -> int:
        """See `robolearn.runs.loop.Trainer`."""
        return self.config.iterations

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next iterations depend on."""
        optimizer, meta = pack_optimizer(self.optimizer)
        tensors = {f"critic.{key}": value for key, value in self.heads.state_dict().items()}
        tensors |= {f"optimizer.{key}": value for key, value in optimizer.items()}
        return {key: value.detach().clone() for key, value in tensors.items()}, {"done": self.done, "optimizer": meta}

    def load_state(self, tensors: dict[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Go on as if what `state` returned had just been reached."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v.clone() for k, v in tensors.items() if k.startswith(prefix)}

        self.heads.load_state_dict(part("critic."))
        unpack_optimizer(self.optimizer, part("optimizer."), meta["optimizer"])
        self.done = int(meta["done"])
