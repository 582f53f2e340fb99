"""Policies kept on the way of a training: the best policy by evaluation, every k-th checkpoint; early stopping.

policy/              the last policy, as without this
best/                the policy of the best evaluation so far
checkpoints/000020/  the policy after iteration 20

A policy is evaluated from its exported folder, on starts of their own: choosing among evaluations flatters the chosen
one, so its success is to be measured once more, elsewhere.
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.core import BadInput
from robolearn.io.atomic import replace_folder
from robolearn.runs.run import Run

if TYPE_CHECKING:
    from torch import Tensor

    from robolearn.runs.loop import Trainer

log = logging.getLogger(__name__)

BEST, CHECKPOINTS = "best", "checkpoints"


@dataclass(frozen=True)
class KeepConfig:
    """Evaluations of a training on its way, and the policies kept of it."""

    every: Annotated[int, tyro.conf.arg(name="eval-every")] = 0
    """Iterations between two evaluations on the way, the best of which is kept in best/; 0: none."""
    episodes: Annotated[int, tyro.conf.arg(name="eval-episodes")] = 100
    """Episodes of each of them, and of the evaluation of the exported policy at the end; 0: none."""
    keep_every: int = 0
    """Iterations between two policies that are kept in checkpoints/; 0: none but the last."""
    patience: int = 0
    """End early after so many evaluations without a better one; 0: never."""

    def __post_init__(self) -> None:
        for name, flag in (("every", "eval-every"), ("episodes", "eval-episodes"), ("keep_every", "keep-every"),
                           ("patience", "patience")):  # fmt: skip
            if getattr(self, name) < 0:
                raise BadInput(f"--{flag}", got=getattr(self, name), expected="0 or more")
        if self.every and not self.episodes:
            raise BadInput("--eval-every", got=self.every, expected="an --eval-episodes of at least 1 with it")
        if self.patience and not self.every:
            raise BadInput("--patience", got=self.patience, expected="--eval-every with it: it counts evaluations")


@dataclass(frozen=True)
class PolicyScore:
    """Performance of a policy, with its interval.

    Attributes:
      metric: ``"success"``, or ``"return"`` in worlds that report none.
    """

    metric: str
    value: float
    low: float
    high: float


class Kept:
    """A trainer (`robolearn.runs.loop.Trainer`) around another one: it evaluates and keeps, and changes nothing else.

    Args:
      trainer: what learns.
      run: the folder in which policies are kept.
      config: how often.
      judge: how good the policy in a folder is; not called where `config.every` is 0.
    """

    def __init__(self, trainer: Trainer, run: Run, config: KeepConfig, judge: Callable[[Path], PolicyScore]) -> None:
        self.trainer, self.run, self.config, self._judge = trainer, run, config, judge
        self.best, self.best_at, self._since, self._stopped = -math.inf, 0, 0, 0
        for flag, every in (("--eval-every", config.every), ("--keep-every", config.keep_every)):
            if every > trainer.iterations:
                log.warning("%s %d is more than the iterations of this run, %d: nothing comes of it",
                            flag, every, trainer.iterations)  # fmt: skip

    @property
    def iterations(self) -> int:
        """See `robolearn.runs.loop.Trainer`; those done, where training has ended early."""
        return self._stopped or self.trainer.iterations

    def iterate(self, i: int) -> dict[str, float]:
        """Iteration `i`, and what is evaluated and kept after it."""
        metrics, done, config = dict(self.trainer.iterate(i)), i + 1, self.config
        if config.keep_every and done % config.keep_every == 0:
            self._keep(self.run.path / CHECKPOINTS / f"{done:06d}")
        if config.every and done % config.every == 0:
            metrics |= self._evaluate(done)
        return metrics

    def _evaluate(self, done: int) -> dict[str, float]:
        beside = self._exported()
        found = self._judge(beside)
        self._since += 1
        if found.value > self.best:
            self.best, self.best_at, self._since = found.value, done, 0
            replace_folder(beside, self.run.path / BEST)
        else:
            shutil.rmtree(beside)
        if self.config.patience and self._since >= self.config.patience:
            self._stopped = done
        name = f"eval_{found.metric}"
        return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}

    def _keep(self, place: Path) -> None:
        place.parent.mkdir(exist_ok=True)
        replace_folder(self._exported(), place)

    def _exported(self) -> Path:
        beside = self.run.path / ".kept.new"
        shutil.rmtree(beside, ignore_errors=True)  # what a kill left
        beside.mkdir()
        self.trainer.export(beside)
        return beside

    def export(self, path: Path) -> None:
        """See `robolearn.runs.loop.Trainer`."""
        self.trainer.export(path)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """That of the trainer, and which evaluation was the best."""
        tensors, meta = self.trainer.state()
        best = self.best if math.isfinite(self.best) else None
        return tensors, {**meta, "kept": [best, self.best_at, self._since, self._stopped]}

    def load_state(self, tensors: dict[str, Tensor], meta: Mapping[str, Any]) -> None:
        """The inverse of `state`; also of one of a trainer that nothing was kept of."""
        rest = dict(meta)
        best, self.best_at, self._since, self._stopped = rest.pop("kept", (None, 0, 0, 0))
        self.best = -math.inf if best is None else best
        self.trainer.load_state(tensors, rest)
