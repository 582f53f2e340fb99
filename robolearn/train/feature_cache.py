"""Features of each frame by a frozen encoder, computed once.

Training asks for the same frames in every epoch, and a frozen backbone says the same of them each time. Its answers are
kept in memory as float32; what follows the backbone, which is trained, begins from them.

Frames are encoded in blocks of one size and at fixed places in them: products of matrices may differ in the last bit
with the number of rows, and a run that goes on after a kill has to get the bits that it had before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from policies.networks.encoder import stored_key
from robolearn.core.machine import available_memory
from robolearn.data.windows import TrainingBatch

log = logging.getLogger(__name__)

BLOCK = 64  # frames that are encoded together
MEMORY_SHARE = 0.5  # of what is free, that features may take

Encode = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""camera → (n, H, W, c) uint8, to camera → (n, …) float32."""


class FrameSource(Protocol):
    """Training windows of which each has a newest frame; see `robolearn.data.windows.Windows`."""

    def __len__(self) -> int: ...

    def order(self, seed: int, epoch: int) -> Tensor:
        """The indices of an epoch, the same for the same arguments."""
        ...

    def gather(self, index: Tensor, *, pictures: bool = True) -> TrainingBatch: ...

    def newest(self, index: Tensor) -> Tensor:
        """(B, To) of the windows `index`: for each observed step the window whose newest step it is."""
        ...


class CachedFeatures:
    """The windows of `source`, whose pictures are encoded once.

    Args:
      source: may grow.
      encode: by the encoder as it is; it may not change afterwards.
      capacity: windows that `source` can grow to; by default those that it has.
    """

    def __init__(self, source: FrameSource, images: frozenset[str], encode: Encode, capacity: int = 0) -> None:
        self._source, self._images, self._encode = source, sorted(images), encode
        self._capacity = max(capacity, len(source))
        self._kept: dict[str, Tensor] = {}
        self._ready = torch.zeros(self._capacity, dtype=torch.bool)

    @staticmethod
    def fits(source: FrameSource, images: frozenset[str], encode: Encode, capacity: int = 0) -> bool:
        """True where the features of all frames fit into memory; the log says so where they do not."""
        one = encode(_frames(source.gather(torch.zeros(1, dtype=torch.int64)), sorted(images)))
        size = 4 * max(capacity, len(source)) * sum(value.numel() for value in one.values())
        room = MEMORY_SHARE * available_memory()
        if size > room:
            what = "features of all frames would take %.1f GB, of memory %.1f GB may be used: pictures are encoded anew"
            log.warning(what, size / 1e9, room / 1e9)
        return size <= room

    def __len__(self) -> int:
        return len(self._source)

    def order(self, seed: int, epoch: int) -> Tensor:
        """As of the source."""
        return self._source.order(seed, epoch)

    def remaining(self, index: Tensor) -> Tensor:
        """As of a source whose windows are those of episodes."""
        return self._source.remaining(index)  # type: ignore[attr-defined]

    def gather(self, index: Tensor, *, pictures: bool = True) -> TrainingBatch:
        """The windows `index` (B,): features (B, To, …) under `stored_key` in the place of pictures, or neither."""
        batch = self._source.gather(index, pictures=False)
        observation = {key: value for key, value in batch.observation.items() if key not in self._images}
        frames = self._source.newest(index).cpu()
        if pictures:
            self._fill(frames)
        for key in self._images if pictures else ():
            found = self._kept[key].index_select(0, frames.reshape(-1))
            observation[stored_key(key)] = found.reshape(*frames.shape, *found.shape[1:])
        return replace(batch, observation=observation)

    def forget(self) -> None:
        """The encoder has other weights."""
        self._ready[:] = False

    def _fill(self, frames: Tensor) -> None:
        """Encode the blocks of those `frames` that are not kept yet."""
        lacking = frames.reshape(-1)[~self._ready[frames.reshape(-1)]]
        for block in torch.unique(lacking // BLOCK).tolist():
            first, end = block * BLOCK, min((block + 1) * BLOCK, len(self._source))
            # A block that is not full yet repeats its last frame: each stands where it will stand in the full one.
            rows = torch.arange(first, first + BLOCK).clamp_max_(end - 1)
            made = self._encode(_frames(self._source.gather(rows), self._images))
            for key, value in made.items():
                if key not in self._kept:
                    self._kept[key] = torch.zeros((self._capacity, *value.shape[1:]))
                self._kept[key][first:end] = value[: end - first].cpu()
            self._ready[first:end] = True


def _frames(batch: Any, images: list[str]) -> dict[str, Tensor]:
    """The newest observed picture of each window, (n, H, W, c)."""
    return {key: batch.observation[key][:, -1] for key in images}
