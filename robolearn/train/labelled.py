"""Training windows whose actions a teacher wrote: observations of decisions, and the chunk that it would execute there.

Each frame lies here once, as uint8, in arrays that are as long as all rounds together will be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from robolearn.core import BadInput, Interface
from robolearn.io.atomic import write_bytes


@dataclass(frozen=True)
class Labelled:
    """B windows; see `robolearn.train.imitation.WindowBatch`."""

    observation: dict[str, Tensor]
    action: Tensor
    action_is_pad: Tensor


class LabelledWindows:
    """Grows by `add`, up to `capacity` decisions.

    Args:
      interface: what the student sees and commands.
      horizon: Tp, actions of a label.
      capacity: decisions.
    """

    def __init__(self, interface: Interface, horizon: int, capacity: int) -> None:
        self._observation = {
            key: torch.zeros((capacity, *spec.shape), dtype=torch.uint8 if spec.dtype == "uint8" else torch.float32)
            for key, spec in interface.observation.items()
        }
        self._action = torch.zeros((capacity, horizon, interface.action.size))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def capacity(self) -> int:
        """Windows that there can be."""
        return len(self._action)

    def add(self, observation: Mapping[str, NDArray], label: NDArray[np.float32]) -> None:
        """B more: feature → (B, …), and (B, Tp, Da)."""
        rows = slice(self._length, self._length + len(label))
        if rows.stop > len(self._action):
            raise BadInput("labelled decisions", got=rows.stop, expected=f"at most {len(self._action)}")
        for key, array in self._observation.items():
            array[rows] = torch.from_numpy(np.ascontiguousarray(observation[key]))
        self._action[rows] = torch.from_numpy(np.ascontiguousarray(label, np.float32))
        self._length = rows.stop

    def order(self, seed: int, epoch: int) -> Tensor:
        """All windows there are by now, in an order that is the same for the same arguments."""
        permutation = np.random.default_rng([seed, epoch, self._length]).permutation(self._length)
        return torch.from_numpy(permutation)

    def newest(self, index: Tensor) -> Tensor:
        """(B, 1) the windows `index` themselves: one step is observed."""
        return index[:, None]

    def gather(self, index: Tensor, *, pictures: bool = True) -> Labelled:
        """The windows `index` (B,), on request without their pictures."""
        observation = {
            key: array.index_select(0, index)[:, None]
            for key, array in self._observation.items()
            if pictures or array.dtype != torch.uint8
        }
        action = self._action.index_select(0, index)
        return Labelled(observation, action, torch.zeros(action.shape[:2], dtype=torch.bool))

    def vectors(self) -> dict[str, NDArray]:
        """Feature → (len, …) of those that are no pictures."""
        found = {key: array for key, array in self._observation.items() if array.dtype != torch.uint8}
        return {key: array[: self._length].numpy() for key, array in found.items()}

    def save(self, file: Path, first: int) -> None:
        """Write the windows from the `first` on into `file`, at once or not at all."""
        arrays = {f"observation.{key}": array for key, array in self._observation.items()} | {"action": self._action}
        write_bytes(file, save({key: array[first : self._length].numpy() for key, array in arrays.items()}))

    def load(self, file: Path) -> None:
        """Add what `save` wrote into `file`.

        Raises:
          BadInput: it is missing, damaged or of another student.
        """
        try:
            arrays = load(file.read_bytes())
            self.add({key: arrays[f"observation.{key}"] for key in self._observation}, arrays["action"])
        except (OSError, SafetensorError, KeyError, RuntimeError) as error:
            raise BadInput(
                f"rollouts {file}", got=f"{type(error).__name__}: {error}", expected="a round of this run"
            ) from error
