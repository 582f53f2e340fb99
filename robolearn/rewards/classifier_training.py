"""Training of the success classifier: a trainer for the one loop of `robolearn.runs.loop`, exactly resumable.

A success is done at its end (`robolearn.rewards.pairs.done_label`), a failure nowhere, and where a person has labelled
a frame the label counts. Half of a batch is done; the other half comes from successes and failures alike, so that
neither the many frames of failures nor those of successes outweigh the rest:

    L = − mean [y log σ(f) + (1 − y) log(1 − σ(f))]

A share of the successes and of the failures is kept from training. On its labelled frames, both answers of equal
weight, the temperature minimises the same loss of f / T (Guo et al., 2017); its episodes give precision and recall.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from robolearn.core import BadInput
from robolearn.data import Dataset
from robolearn.rewards.classifier import SuccessClassifier
from robolearn.rewards.head_trainer import HeadTrainer, common_cameras, kept_of_each, lengths_of
from robolearn.rewards.labels import read_labels
from robolearn.rewards.networks import DONE
from robolearn.rewards.pairs import done_label
from robolearn.rewards.settings import ClassifierConfig

TEMPERATURES = np.geomspace(0.05, 20.0, 200)


class ClassifierTrainer(HeadTrainer[ClassifierConfig, SuccessClassifier]):
    """See the module; of `datasets` with successes and failures.

    Raises:
      BadInput: no picture, too few episodes of either outcome to keep one from training, or an extra that is not there.
    """

    def _model(self, datasets: Sequence[Dataset], cameras: Sequence[str]) -> Callable[[], SuccessClassifier]:
        return partial(SuccessClassifier, self.config, common_cameras(datasets, cameras))

    def _arrange(self, datasets: Sequence[Dataset]) -> None:
        self.label, self.episode, self.success = labels_of(self.config, datasets)
        self.kept = kept_apart(self.success, self.config)
        apart = self.kept[self.episode]
        done, solved = self.label == 1.0, self.success[self.episode]
        self._rows = [
            np.flatnonzero(~apart & chosen)
            for chosen in (done, (self.label == 0.0) & solved, (self.label == 0.0) & ~solved)
        ]
        if not all(map(len, self._rows)):
            raise BadInput(
                "--data", got="no frame of a kind", expected="frames that are done, and others of both outcomes"
            )

    @property
    def heads(self) -> nn.Module:
        return self.critic.head

    def _step(self, step: int) -> dict[str, Tensor]:
        rng = np.random.default_rng([self.config.seed, step])
        torch.manual_seed(int(rng.integers(2**62)))  # of dropout
        rows = self.draw(rng)
        view = torch.from_numpy(rng.integers(self.config.views, size=len(rows)))
        odds = self.critic.log_odds(self._maps[view, torch.from_numpy(rows)].to(self.device))
        wanted = torch.from_numpy(self.label[rows]).to(self.device)
        loss = F.binary_cross_entropy_with_logits(odds, wanted)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.detach()}

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """The frames of a batch: half done, a quarter of successes before, the rest of failures."""
        batch = self.config.batch
        sizes = (batch - batch // 2, batch // 4, batch // 2 - batch // 4)
        return np.concatenate([
            rows[rng.integers(len(rows), size=n)] for rows, n in zip(self._rows, sizes, strict=True)
        ])  # fmt: skip

    def fitted(self) -> dict[str, float]:
        """See `HeadTrainer.fitted`."""
        return {"temperature": float(self.critic.temperature)}

    def summary(self) -> dict[str, tuple[int, int]]:
        """Precision, recall and false positives of the episodes kept from training, each as (count, of how many)."""
        self._calibrate()
        p = self._apart()
        called = np.array([bool((p[self.episode[self._held] == e] >= DONE).any()) for e in np.flatnonzero(self.kept)])
        truth = self.success[self.kept]
        hits = int((called & truth).sum())
        return {
            "precision": (hits, int(called.sum())),
            "recall": (hits, int(truth.sum())),
            "false_positive_rate": (int(called.sum()) - hits, int((~truth).sum())),
        }

    @property
    def _held(self) -> NDArray[np.bool_]:
        return self.kept[self.episode]

    def _apart(self) -> NDArray[np.float32]:
        """p of all frames of the episodes kept from training."""
        return self.critic.probability(self._maps[0, torch.from_numpy(np.flatnonzero(self._held))])

    def _calibrate(self) -> None:
        """Set the temperature."""
        self.critic.temperature.fill_(1.0)
        p = self._apart().astype(np.float64).clip(1e-12, 1 - 1e-12)
        label = self.label[self._held]
        asked = np.isfinite(label)
        self.critic.temperature.fill_(best_temperature(np.log(p / (1 - p))[asked], label[asked]))

    def export(self, path: Path) -> None:
        """Write the classifier, calibrated, as a checkpoint folder."""
        self._calibrate()
        super().export(path)


def labels_of(
    config: ClassifierConfig, datasets: Sequence[Dataset]
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]:
    """Of all N frames 1 where done, 0 where not, NaN where not known; their episodes (N,); success (E,) of those."""
    label, episode, before = [], [], 0
    for dataset in datasets:
        lengths, final = lengths_of(dataset)
        own = read_labels(dataset)
        for e, length in enumerate(lengths):
            t = np.arange(length)
            found = np.zeros(length, np.float32)
            if dataset.success[e]:
                found = done_label(t, np.full(length, length), np.full(length, final[e]), config.unsure)
            for (which, frame), done in own.items():
                if which == e and frame < length:
                    found[frame] = done
            label.append(found)
            episode.append(np.full(length, before + e))
        before += dataset.episodes
    success = np.concatenate([dataset.success for dataset in datasets])
    return np.concatenate(label), np.concatenate(episode), success


def kept_apart(success: NDArray[np.bool_], config: ClassifierConfig) -> NDArray[np.bool_]:
    """(E,) true of the share of the successes and of the failures that is kept from training, one of each at least."""
    for outcome, name in ((True, "successes"), (False, "failures")):
        if (count := int((success == outcome).sum())) < 2:
            raise BadInput("--data", got=f"{count} {name}",
                           expected="two of each outcome at least, one to learn from and one to check by")  # fmt: skip
    return kept_of_each(success, config.holdout, config.seed, least=1)


def best_temperature(odds: NDArray[np.float64], label: NDArray[np.float32]) -> float:
    """T of `TEMPERATURES` with the least balanced loss of odds / T; 1 where one of the answers does not occur."""
    yes = label > 0.5
    if not yes.any() or yes.all():
        return 1.0
    signed = np.where(yes, odds, -odds)
    loss = [
        np.logaddexp(0.0, -signed[yes] / t).mean() + np.logaddexp(0.0, -signed[~yes] / t).mean() for t in TEMPERATURES
    ]
    return float(TEMPERATURES[int(np.argmin(loss))])
