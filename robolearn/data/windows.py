"""Training windows: To observations up to a step and the Tp actions from it, gathered in bulk.

    observations   t − To + 1 … t      before the first step of the episode: its first observation, marked as pad
    actions        t … t + Tp − 1      after the last step of the episode: its last action, marked as pad

Every frame t of the chosen episodes is one window. All vectors lie in memory as torch tensors, and images as
long as memory has room for them, so a batch is one vectorised gather per feature, at the same cost per window however
large the set is.

Goals in hindsight are later observations of the same episode (Andrychowicz et al. 2017):

    g = o_T                          "end": the last stored observation of the episode
    g = o_k,  k ~ U{t + 1 … T}       "later": one of those that follow

The draws depend on (seed, epoch, window) alone, so that a batch may be divided, and a run goes on after a kill.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robolearn.core import BadInput, check_choice
from robolearn.core.specs import of_goal
from robolearn.data.reading.cache import OnDemand
from robolearn.data.reading.loading import check_weights
from robolearn.data.reading.reader import Dataset

log = logging.getLogger(__name__)

Weights = Sequence[float] | Sequence[NDArray[np.float64]]
"""Of episodes, or of the frames of each episode."""
COARSE = 1e-3  # of what a component changes by


@dataclass(frozen=True)
class TrainingBatch:
    """B windows.

    Attributes:
      observation: feature → (B, To, …) float32; pictures (B, To, H, W, 3) uint8.
      observation_is_pad: (B, To) bool, true before the episode began.
      action: (B, Tp, Da) float32.
      action_is_pad: (B, Tp) bool, true after the episode ended.
    """

    observation: dict[str, Tensor]
    observation_is_pad: Tensor
    action: Tensor
    action_is_pad: Tensor

    def __len__(self) -> int:
        return len(self.action)


class Windows:
    """The windows of `dataset`.

    Args:
      To, Tp: observed and predicted steps, each at least 1.
      episodes: which episodes (default all).
      weights: ≥ 0, one per chosen episode, or an array per chosen episode with one for each of its frames. Frames are
        then drawn *with* replacement in proportion to theirs; without weights every window comes once per epoch.
      device: where the vectors lie and the batches come from. Images are gathered on the CPU.
    """

    def __init__(
        self,
        dataset: Dataset,
        To: int,
        Tp: int,
        *,
        episodes: Sequence[int] | None = None,
        weights: Weights | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        if To < 1 or Tp < 1:
            raise BadInput("windows", got=f"To={To}, Tp={Tp}", expected="at least 1 step each")
        self.To, self.Tp = To, Tp
        chosen = list(range(dataset.episodes)) if episodes is None else [int(e) for e in episodes]
        frames = dataset.frames_of(chosen)
        if not len(frames):
            raise BadInput(f"windows of {dataset.path}", got="no episodes", expected="at least one")
        lengths = dataset.lengths[chosen]
        first = np.repeat(dataset.starts[chosen], lengths)
        last = np.repeat(dataset.starts[chosen] + lengths - 1, lengths)
        self._cumulative = None if weights is None else _cumulative(weights, lengths)
        self._frame = torch.from_numpy(frames).to(device)
        self._first = torch.from_numpy(first).to(device)
        self._last = torch.from_numpy(last).to(device)
        self._observation = {key: _floats(key, array).to(device) for key, array in dataset.observation.items()}
        self._images = {key: dataset.images(key) for key in dataset.readers}
        self._action = torch.from_numpy(dataset.action).to(device)
        self._past = torch.arange(1 - To, 1, device=device)
        self._future = torch.arange(Tp, device=device)

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._frame)

    @property
    def features(self) -> list[str]:
        """The keys of a batch's observation."""
        return [*self._observation, *self._images]

    def newest(self, index: Tensor) -> Tensor:
        """(B, To) of the windows `index`: for each observed step the window whose newest step it is."""
        index = index.to(self._frame.device)
        frame, first = self._frame[index, None], self._first[index, None]
        # Every frame of an episode is a window, in order.
        return index[:, None] - (frame - torch.maximum(frame + self._past, first))

    def remaining(self, index: Tensor) -> Tensor:
        """(B,) how many windows of the same episode follow the windows `index`."""
        index = index.to(self._frame.device)
        return self._last[index] - self._frame[index]

    def gather(self, index: Tensor, *, pictures: bool = True) -> TrainingBatch:
        """The windows `index` (B,) int64, on request without their pictures."""
        index = index.to(self._frame.device)
        frame, first, last = self._frame[index, None], self._first[index, None], self._last[index, None]
        seen = frame + self._past
        done = frame + self._future
        seen_rows = torch.maximum(seen, first)
        done_rows = torch.minimum(done, last)
        observation = {key: _rows(array, seen_rows) for key, array in self._observation.items()}
        if self._images and pictures:
            wanted = seen_rows.cpu()
            observation |= {key: _frames(array, wanted).to(frame.device) for key, array in self._images.items()}
        return TrainingBatch(
            observation=observation,
            observation_is_pad=seen < first,
            action=_rows(self._action, done_rows),
            action_is_pad=done > last,
        )

    def batches_per_epoch(self, batch_size: int) -> int:
        """The last one may be smaller."""
        if batch_size < 1:
            raise BadInput("batch size", got=batch_size, expected="at least 1")
        return -(-len(self) // batch_size)

    def order(self, seed: int, epoch: int) -> Tensor:
        """(len(self),) the order of the windows in `epoch`, the same for the same arguments."""
        rng = np.random.default_rng([seed, epoch])
        if self._cumulative is None:
            return torch.from_numpy(rng.permutation(len(self)))
        drawn = np.searchsorted(self._cumulative, rng.random(len(self)), side="right")
        return torch.from_numpy(np.minimum(drawn, len(self) - 1))

    def batches(self, batch_size: int, seed: int, epoch: int, *, start: int = 0) -> Iterator[TrainingBatch]:
        """The batches of `epoch` from batch `start` on."""
        count = self.batches_per_epoch(batch_size)
        order = self.order(seed, epoch)
        for batch in range(start, count):
            yield self.gather(order[batch * batch_size : (batch + 1) * batch_size])

    def stream(self, batch_size: int, seed: int, *, start: int = 0) -> Iterator[TrainingBatch]:
        """Batches without end, epoch after epoch. `start` batches are passed over, at no cost: the way to resume."""
        epoch, batch = divmod(start, self.batches_per_epoch(batch_size))
        while True:
            yield from self.batches(batch_size, seed, epoch, start=batch)
            epoch, batch = epoch + 1, 0


def _floats(key: str, array: np.ndarray) -> Tensor:
    """`array` in float32, which networks take; a warning where that is too coarse for what it measures."""
    floats = array.astype(np.float32)
    if array.dtype in (np.float64, np.int64):
        span = array.max(axis=0) - array.min(axis=0)
        off = np.abs(floats.astype(np.float64) - array).max(axis=0)
        if ((off > COARSE * span) & (span > 0)).any():
            log.warning("observation %s: float32, which networks take, is too coarse for how little it changes", key)
    return torch.from_numpy(floats)


def _frames(frames: np.ndarray | OnDemand, rows: Tensor) -> Tensor:
    """Frames (N, H, W, 3) at `rows` (B, To) → (B, To, H, W, 3)."""
    if isinstance(frames, OnDemand):
        return torch.from_numpy(frames[rows.numpy()])
    return _rows(torch.from_numpy(frames), rows)


def _rows(array: Tensor, rows: Tensor) -> Tensor:
    return array.index_select(0, rows.reshape(-1)).reshape(*rows.shape, *array.shape[1:])


def _cumulative(weights: Weights, lengths: np.ndarray) -> np.ndarray:
    """(windows,) the cumulative probability of the windows."""
    check_weights([float(np.mean(one)) for one in weights], len(lengths), what="weights")
    each = [np.broadcast_to(one, length) for one, length in zip(weights, lengths, strict=True)]
    cumulative = np.cumsum(np.concatenate(each), dtype=np.float64)
    return cumulative / cumulative[-1]


Hindsight = Literal["end", "later"]
STREAM = 0x60A1  # of the draws, beside the orders of the same seed


class EpisodeWindows(Protocol):
    """Windows of which those of an episode follow each other; see `robolearn.data.windows.Windows`."""

    def __len__(self) -> int: ...

    def order(self, seed: int, epoch: int) -> Tensor: ...

    def gather(self, index: Tensor, *, pictures: bool = True) -> Any: ...

    def remaining(self, index: Tensor) -> Tensor:
        """(B,) how many windows of the same episode follow the windows `index`."""
        ...


class HindsightWindows:
    """The windows of `source` with a goal each.

    Args:
      goals: keys of goals; ``goal.objects`` is taken from ``objects``, and ``goal.images.front/stored`` from what an
        encoder made of the pictures, where `source` gives that in their place.
      hindsight: which observation is the goal.
      looks: whether pictures are observed beside the goals.
      shows: whether a goal is a picture.
    """

    def __init__(
        self,
        source: EpisodeWindows,
        goals: tuple[str, ...],
        hindsight: Hindsight,
        *,
        looks: bool = True,
        shows: bool = True,
    ) -> None:
        check_choice("--hindsight", hindsight, Hindsight)
        self._source, self._goals, self._hindsight = source, goals, hindsight
        self._looks, self._shows = looks, shows
        self._share = torch.zeros(len(source))  # in [0, 1), of the way from the first later step to the last

    def __len__(self) -> int:
        return len(self._source)

    def order(self, seed: int, epoch: int) -> Tensor:
        """As of the source; the goals that `gather` gives from now on are those of this epoch."""
        share = np.random.default_rng([seed, epoch, STREAM]).random(len(self._source), np.float32)
        self._share = torch.from_numpy(share)
        return self._source.order(seed, epoch)

    def later(self, index: Tensor) -> Tensor:
        """(B,) the windows whose newest observations are the goals of the windows `index`."""
        left = self._source.remaining(index).to(index.device)
        if self._hindsight == "end":
            return index + left
        # k − t = 1 + ⌊u (T − t)⌋, and 0 at the end
        share = self._share.to(index.device)[index]
        return index + torch.minimum(1 + (share * left).long(), left)

    def gather(self, index: Tensor) -> Any:
        """The windows `index` (B,) as `source` gives them, and their goals as (B, 1, …)."""
        batch = self._source.gather(index, pictures=self._looks)
        goal = self._source.gather(self.later(index), pictures=self._shows)
        wanted = {of_goal(key): key for key in self._goals}
        given = {}
        for key, value in goal.observation.items():
            name, slash, stored = key.partition("/")
            if name in wanted:
                given[f"{wanted[name]}{slash}{stored}"] = value[:, -1:]
        return replace(batch, observation={**batch.observation, **given})
