"""Training windows of several data sets, mixed by shares: of the windows that are drawn, so many come from each set.

Within a set windows are drawn as from that set alone (`Windows.order`): every window once before any comes again, or
by the weights of its episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robolearn.core import BadInput
from robolearn.core.specs import check_compatible
from robolearn.data.lerobot.statistics import Stats, aggregate, weighted_quantiles
from robolearn.data.reading.reader import Dataset
from robolearn.data.windows import TrainingBatch, Weights, Windows
from robolearn.data.writing.steps import ACTION_TOLERANCE


def shares_of(mix: Sequence[float] | None, datasets: Sequence[Dataset]) -> list[float]:
    """The share of each of `datasets` in the windows that are drawn; they sum to 1.

    Args:
      mix: one number ≥ 0 for each, in proportion to its share; None for their numbers of frames, as if they were one.

    Raises:
      BadInput: too few or too many of them, one that is negative or not finite, or none that is positive.
    """
    if mix is None:
        mix = [dataset.frames for dataset in datasets]
    if len(mix) != len(datasets):
        raise BadInput("--mix", got=f"{len(mix)} numbers", expected=f"one for each of {len(datasets)} data sets")
    weight = np.asarray(mix, np.float64)
    if not np.isfinite(weight).all() or weight.min() < 0 or not 0 < weight.sum() < np.inf:
        got = ", ".join(f"{number:g}" for number in mix)
        raise BadInput("--mix", got=got, expected="finite numbers ≥ 0, one of them positive")
    return (weight / weight.sum()).tolist()


def check_alike(datasets: Sequence[Dataset]) -> None:
    """Raise `BadInput` where one of `datasets` cannot stand for the first: another arm, rate, action or observation.

    It may have more observations than the first, which are left out.
    """
    for dataset in datasets:
        check_actions(dataset)
    for other in datasets[1:]:
        what = f"data set {other.path} (beside {datasets[0].path})"
        check_compatible(datasets[0].interface, other.interface, what=what, subject="the other one")


def check_actions(dataset: Dataset) -> None:
    """Raise `BadInput` where actions of `dataset` are beyond [-1, 1]: they are in units of their own."""
    low, high = float(dataset.action.min()), float(dataset.action.max())
    if not -1 - ACTION_TOLERANCE <= low <= high <= 1 + ACTION_TOLERANCE:
        got = f"{low:.4g} … {high:.4g}"
        hint = f"robolearn dataset import {dataset.path} --out … writes a set with actions in [-1, 1]"
        raise BadInput(f"data set {dataset.path}: actions", got=got, expected="[-1, 1]", hint=hint)


class Mixture:
    """The windows of `parts`, drawn in `shares`.

    An epoch has as many windows as all parts together, of part s the share s of them, rounded so that they add up.
    The observations are those of the first part.

    Args:
      shares: one for each part, ≥ 0; they sum to 1.
    """

    def __init__(self, parts: Sequence[Windows], shares: Sequence[float]) -> None:
        self._parts = list(parts)
        self._keys = parts[0].features
        self._begin = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        self._counts = _rounded(np.asarray(shares) * self._begin[-1])

    def __len__(self) -> int:
        """Number of windows in an epoch."""
        return int(self._begin[-1])

    def order(self, seed: int, epoch: int) -> Tensor:
        """(len(self),) the windows of `epoch` in their order, the same for the same arguments."""
        drawn = [
            begin + _drawn(part, int(count), seed, epoch)
            for part, begin, count in zip(self._parts, self._begin, self._counts, strict=False)
        ]
        return torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(np.concatenate(drawn)))

    def newest(self, index: Tensor) -> Tensor:
        """As of `Windows`."""
        return self._asked(index, (self._parts[0].To,), lambda part, own, begin: begin + part.newest(own))

    def remaining(self, index: Tensor) -> Tensor:
        """As of `Windows`."""
        return self._asked(index, (), lambda part, own, begin: part.remaining(own))

    def _asked(self, index: Tensor, shape: tuple[int, ...], ask: Callable[[Windows, Tensor, int], Tensor]) -> Tensor:
        """(B, *shape) what each part answers of its own windows, counted from where it `begin`s."""
        owner = torch.from_numpy(np.searchsorted(self._begin, index.cpu().numpy(), side="right") - 1)
        found = torch.zeros(len(index), *shape, dtype=torch.int64)
        for s in torch.unique(owner).tolist():
            begin = int(self._begin[s])
            found[owner == s] = ask(self._parts[s], index.cpu()[owner == s] - begin, begin).cpu()
        return found

    def gather(self, index: Tensor, *, pictures: bool = True) -> TrainingBatch:
        """The windows `index` (B,) int64, on request without their pictures."""
        owner = np.searchsorted(self._begin, index.cpu().numpy(), side="right") - 1
        batches = []
        for s in np.unique(owner):
            own = index[torch.from_numpy(owner == s).to(index.device)] - int(self._begin[s])
            batches.append(self._parts[s].gather(own, pictures=pictures))
        # Batches lie part after part; this is where each window went.
        back = torch.from_numpy(np.argsort(np.argsort(owner, kind="stable"))).to(batches[0].action.device)

        def together(take: Callable[[TrainingBatch], Tensor]) -> Tensor:
            return torch.cat([take(batch) for batch in batches])[back]

        there = [key for key in self._keys if key in batches[0].observation]
        observation = {key: together(lambda batch, key=key: batch.observation[key]) for key in there}
        rest = ("observation_is_pad", "action", "action_is_pad")
        return TrainingBatch(observation, *(together(attrgetter(name)) for name in rest))


def drawn_statistics(
    datasets: Sequence[Dataset],
    episodes: Sequence[Sequence[int]],
    shares: Sequence[float],
    weights: Sequence[Weights | None],
) -> dict[str, Stats]:
    """Statistics of what a `Mixture` draws: observation key or ``action`` → stats, shapes as `Dataset.statistics`.

    A frame counts by how often it is drawn: with share s of its set, weight w_e and length T_e of its episode,

        p_e = s · w_e T_e / Σ w T,   mean = Σ p_e mean_e,   std² = Σ p_e (std_e² + (mean_e − mean)²)

    where the sum Σ w T is over the chosen episodes of the set, and w = 1 without weights. Least and greatest are over
    the episodes with p_e > 0, quantiles over all their frames (`weighted_quantiles`): one episode of wild frames moves
    them as far as it is drawn. `episodes`: of each set, those that are drawn from; `weights` those of its `Windows`, an
    episode's mean of them, or None for all alike.
    """
    parts: list[dict[str, Stats]] = []
    probabilities: list[float] = []
    keys = [*datasets[0].observation, "action"]  # of the first set, like the windows
    frames: dict[str, list[NDArray]] = {key: [] for key in keys}
    each_frame: list[NDArray] = []
    for dataset, chosen, share, weight in zip(datasets, episodes, shares, weights, strict=True):
        each = [1.0] * len(chosen) if weight is None else [float(np.mean(one)) for one in weight]
        lengths = dataset.lengths[list(chosen)] * np.asarray(each)
        for episode, probability in zip(chosen, share * lengths / lengths.sum(), strict=True):
            if probability > 0:
                parts.append(dataset.statistics([episode]))
                probabilities.append(float(probability))
                rows = dataset.frames_of([episode])
                each_frame.append(np.full(len(rows), probability / len(rows)))
                for key in keys:
                    values = dataset.action if key == "action" else dataset.observation[key]
                    frames[key].append(values[rows].reshape(len(rows), -1))
    p, q = np.asarray(probabilities), np.concatenate(each_frame)
    found: dict[str, Stats] = {}
    for key in keys:
        stats = aggregate({name: np.stack([part[key][name] for part in parts]) for name in parts[0][key]}, p)
        quantiles = weighted_quantiles(np.concatenate(frames[key]), q)
        found[key] = stats | {name: value.reshape(stats["mean"].shape) for name, value in quantiles.items()}
    return found


def _drawn(part: Windows, count: int, seed: int, epoch: int) -> np.ndarray:
    """(count,) the stretch number `epoch` of the orders of `part`, which follow each other without end."""
    first, size = epoch * count, len(part)
    passes = range(first // size, -(-(first + count) // size))
    orders = [np.empty(0, np.int64), *(part.order(seed, k).numpy() for k in passes)]
    return np.concatenate(orders)[first - passes.start * size :][:count]


def _rounded(wanted: np.ndarray) -> np.ndarray:
    """Whole numbers near `wanted`, with the same (whole) sum: those with the largest fractions are rounded up."""
    counts = np.floor(wanted).astype(np.int64)
    lacking = round(float(wanted.sum())) - int(counts.sum())
    counts[np.argsort(counts - wanted, kind="stable")[:lacking]] += 1
    return counts
