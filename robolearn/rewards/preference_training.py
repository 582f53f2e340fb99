"""Training of a reward from preferences: a trainer for the one loop of `robolearn.runs.loop`, exactly resumable.

    L = − mean over pairs [ y log P(l ≻ r) + (1 − y) log P(r ≻ l) ]        y = 1, 0, and ½ where both are the same

with P by the means of r̂, and once more by the maxima of d, of the pairs whose two clips end with their episodes: only
these may show how a task looks when it is over. Each member learns by draws of its own: pairs, a view of their
pictures, and one frame of each of n equal parts of a clip. The threshold of *done* is, of the same pairs, what parts
better from worse clips most often:

    z(σ) = max_{t∈σ} p_t ≥ θ,       θ maximises the pairs with z(better) > z(worse) less those with z(better) < z(worse)

Of fewer than `LEAST` such pairs no threshold is made, and nothing is called done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from robolearn.core import BadInput
from robolearn.core.specs import is_image
from robolearn.data import Dataset
from robolearn.rewards.head_trainer import LEAST_SPREAD, HeadTrainer, common_cameras, lengths_of
from robolearn.rewards.labels import LEFT_IS_BETTER, read_preferences
from robolearn.rewards.preference import NEVER, PreferenceReward
from robolearn.rewards.settings import PreferenceRewardConfig

log = logging.getLogger(__name__)

LEAST = 5  # pairs that a threshold is fitted on


@dataclass(frozen=True, eq=False)
class ClipRows:
    """P pairs of clips as rows among the frames of all sets.

    Attributes:
      first: (P, 2) the frame after a clip's first step.
      steps: (P, 2) of a clip.
      last: (P, 2) the last frame of its episode.
      ends: (P,) both clips end with their episodes.
      label: (P,) y.
    """

    first: NDArray[np.int64]
    steps: NDArray[np.int64]
    last: NDArray[np.int64]
    ends: NDArray[np.bool_]
    label: NDArray[np.float32]

    @staticmethod
    def of(datasets: Sequence[Dataset]) -> ClipRows:
        """Those beside the `datasets`, whose frames follow each other, final observations included."""
        first, steps, last, ends, label = [], [], [], [], []
        before = 0
        for dataset in datasets:
            frames, _ = lengths_of(dataset)
            starts = before + np.cumsum(frames) - frames
            for preference in read_preferences(dataset):
                clips = preference.left, preference.right
                first.append([starts[clip.episode] + clip.begin + 1 for clip in clips])
                steps.append([len(clip) for clip in clips])
                last.append([starts[clip.episode] + frames[clip.episode] - 1 for clip in clips])
                ends.append(all(clip.end == dataset.lengths[clip.episode] for clip in clips))
                label.append(LEFT_IS_BETTER[preference.better])
            before += int(frames.sum())
        rows = np.array([first, steps, last], np.int64).reshape(3, -1, 2)
        return ClipRows(rows[0], rows[1], rows[2], np.array(ends, bool), np.array(label, np.float32))

    def __len__(self) -> int:
        return len(self.label)

    def drawn(self, pairs: NDArray[np.int64], place: NDArray[np.float64]) -> NDArray[np.int64]:
        """(B, 2, n) rows of frames of the `pairs` (B,), one of each of n equal parts of a clip, at `place` (B, 2, n) in
        [0, 1) of it."""
        count = place.shape[2]
        step = ((np.arange(count) + place) * self.steps[pairs, :, None] / count).astype(np.int64)
        return np.minimum(self.first[pairs, :, None] + step, self.last[pairs, :, None])

    def whole(self, pair: int, side: int) -> NDArray[np.int64]:
        """(T,) rows of all frames after the steps of a clip."""
        rows = self.first[pair, side] + np.arange(self.steps[pair, side])
        return np.minimum(rows, self.last[pair, side])


def preference_log_loss(value: Tensor, label: Tensor, ends: Tensor, scale: float) -> Tensor:
    """L of r̂ and d (B, 2, n, 2) of drawn frames.

    Args:
      label: (B,) y.
      ends: (B,) both clips end with their episodes.
      scale: β.
    """
    # R(σ) = β mean r̂, D(σ) = β max d;  log P(l ≻ r) = log σ(R(l) − R(r))
    pooled = scale * torch.stack([value[..., 0].mean(2), value[..., 1].amax(2)], 2)
    loss = F.binary_cross_entropy_with_logits(
        pooled[:, 0] - pooled[:, 1], label[:, None].expand(-1, 2), reduction="none"
    )
    return loss[:, 0].mean() + (loss[:, 1] * ends).sum() / ends.sum().clamp_min(1.0)


def fit_done(better: NDArray[np.floating], worse: NDArray[np.floating]) -> float:
    """θ of the highest p of the better and of the worse clip of each pair, (n,) both; of equally good ones the middle
    of the widest range. `NEVER` where none parts more pairs rightly than wrongly."""
    levels = np.unique(np.concatenate([better, worse]))
    # z changes at a level: a threshold just above levels[i − 1] is as good as levels[i].
    gain = np.array([int((better >= c).sum()) - int((worse >= c).sum()) for c in levels])
    if gain.max(initial=0) <= 0:
        return NEVER
    best = np.flatnonzero(gain == gain.max())
    below = np.concatenate([[0.0], levels[:-1]])[best]
    widest = int(np.argmax(levels[best] - below))
    return float((levels[best][widest] + below[widest]) / 2.0)


class PreferenceRewardTrainer(HeadTrainer[PreferenceRewardConfig, PreferenceReward]):
    """See the module; of `datasets` of one task with preferences beside them.

    Raises:
      BadInput: no preferences, none with a better clip, several tasks, a feature that a set has not, or an extra that
        is not there.
    """

    def _model(self, datasets: Sequence[Dataset], cameras: Sequence[str]) -> Callable[[], PreferenceReward]:
        self.clips, config = ClipRows.of(datasets), self.config
        self._check(datasets)
        features = datasets[0].interface.seeing(config.observe, what=f"data set {datasets[0].path}")
        seen = [key for key, spec in features.observation.items() if is_image(spec)]
        pictures = common_cameras(datasets, cameras or seen) if cameras or seen else {}
        specs = {key: spec for key, spec in features.observation.items() if not is_image(spec)}
        vectors = {key: spec.size for key, spec in specs.items()}
        return partial(
            PreferenceReward, config, pictures, vectors,
            names={key: spec.names for key, spec in specs.items() if spec.names},
            is_privileged=not set(vectors).isdisjoint(features.privileged),
        )  # fmt: skip

    def _arrange(self, datasets: Sequence[Dataset]) -> None:
        episodes = (dataset.episode(e).seen for dataset in datasets for e in range(dataset.episodes))
        self._vectors = torch.cat([self.critic.vectors_of(found) for found in episodes])
        if self._vectors.shape[1]:
            self.critic.centre.copy_(self._vectors.mean(0))
            self.critic.scale.copy_(self._vectors.std(0).clamp_min(LEAST_SPREAD))
        shuffled = np.random.default_rng(self.config.seed).permutation(len(self.clips))
        apart = min(round(self.config.holdout * len(self.clips)), len(self.clips) - 1)
        self.kept, self._pairs = shuffled[:apart], shuffled[apart:]

    @property
    def heads(self) -> nn.Module:
        return self.critic.members

    def _check(self, datasets: Sequence[Dataset]) -> None:
        if (self.clips.label == 0.5).all():
            got = f"{len(self.clips)} preferences, all of them 'same'" if len(self.clips) else "no preferences"
            raise BadInput("--data", got=got, expected="one with a better clip",
                           hint="`robolearn reward prefer` writes some")  # fmt: skip
        tasks = list(dict.fromkeys(task for dataset in datasets for task in dataset.tasks))
        if len(tasks) > 1:
            raise BadInput("--data", got=f"{len(tasks)} tasks: {', '.join(tasks)}",
                           expected="one: a reward from preferences does not read the words")  # fmt: skip

    def _step(self, step: int) -> dict[str, Tensor]:
        config = self.config
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.device)
        for m, member in enumerate(self.critic.members):
            rng = np.random.default_rng([config.seed, m, step])
            torch.manual_seed(int(rng.integers(2**62)))  # of dropout
            pairs = rng.choice(self._pairs, config.batch)
            rows = torch.from_numpy(self.clips.drawn(pairs, rng.random((config.batch, 2, config.frames))))
            view = torch.from_numpy(rng.integers(len(self._maps), size=(config.batch, 1, 1))).expand_as(rows)
            maps = self._maps[view.flatten(), rows.flatten()].to(self.device)
            vectors = self._vectors[rows.flatten()].to(self.device)
            value = member(maps, (vectors - self.critic.centre) / self.critic.scale).view(*rows.shape, 2)
            label, ends = (
                torch.from_numpy(of[pairs].astype(np.float32)).to(self.device)
                for of in (self.clips.label, self.clips.ends)
            )
            total = total + preference_log_loss(value, label, ends, config.scale)
        total.backward()
        self.optimizer.step()
        return {"loss": total.detach() / config.members}

    def summary(self) -> dict[str, tuple[int, int]]:
        """Agreement: of the decided pairs that are kept from training those whose better clip has the larger mean of
        Φ."""
        decided = [int(pair) for pair in self.kept if self.clips.label[pair] != 0.5]
        left, right = ([float(self._judged(pair, side)[0].mean()) for pair in decided] for side in (0, 1))
        agreed = (np.array(left) > np.array(right)) == (self.clips.label[decided] > 0.5)
        return {"agreement": (int(agreed.sum()), len(decided))}

    def fitted(self) -> dict[str, float]:
        """See `HeadTrainer.fitted`."""
        return {"threshold": self.critic.threshold}

    def counted(self) -> dict[str, Any]:
        """See `HeadTrainer.counted`."""
        same = int((self.clips.label == 0.5).sum())
        return {"preferences": {"decided": len(self.clips) - same, "same": same}}

    def export(self, path: Path) -> None:
        """Write the model, its threshold fitted, as a checkpoint folder."""
        self.fit()
        super().export(path)

    def fit(self) -> None:
        """Set the threshold of *done*."""
        clips = self.clips
        pairs = np.flatnonzero(clips.ends & (clips.label != 0.5))
        self.critic.threshold = NEVER
        if len(pairs) < LEAST:
            log.warning("nothing is called done: %d decided pairs of clips that end with their episodes, %d are asked "
                        "for (reward prefer --clip 0 compares whole episodes)", len(pairs), LEAST)  # fmt: skip
            return
        peaks = np.array([[self._judged(int(pair), side)[1].max() for side in (0, 1)] for pair in pairs], np.float64)
        better = np.where(clips.label[pairs] > 0.5, 0, 1)
        at = np.arange(len(pairs))
        self.critic.threshold = fit_done(peaks[at, better], peaks[at, 1 - better])

    def _judged(self, pair: int, side: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(T,) Φ and p after the steps of a clip."""
        rows = torch.from_numpy(self.clips.whole(pair, side))
        return self.critic.judged(self._maps[0, rows], self._vectors[rows])
