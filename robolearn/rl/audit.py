"""Audit of a reward model against the world while a policy learns from it: does the policy please the model alone?

Of the newest iterations that together hold n episodes, by the model's verdict and the world's:

    precision        P(solved | called done)       parted where its upper bound falls under `audit_precision`
    false positives  P(called done | failed)       parted where their lower bound rises over `audit_false`

The first rule catches a model whose *done* is mostly wrong, the second one that calls failures done while most episodes
succeed anyway. Bounds are Clopper and Pearson's at 99%, because they are looked at after every iteration: few episodes
part nothing. The world's verdict is a simulated one's; on an arm a person's spot labels stand in its place, judged by
the same `Verdicts` (`robolearn.hil.spot_labels`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robolearn.core import BadInput
from robolearn.eval.intervals import Success

if TYPE_CHECKING:
    from torch import Tensor

    from robolearn.runs.loop import Trainer

log = logging.getLogger(__name__)

LEVEL = 0.99
COUNTS = ("called_solved", "called_failed", "uncalled_solved")  # episodes; those neither called nor solved are the rest


@dataclass(frozen=True)
class AuditConfig:
    """Settings of the audit of a reward model."""

    audit: Literal["stop", "warn", "off"] = "stop"
    """When the reward model and the world's success part: end the run, only say so, or do not compare."""
    audit_window: int = 100
    """The newest episodes that are compared."""
    audit_precision: float = 0.5
    """Parted where surely fewer of the episodes that the model calls done are solved."""
    audit_false: float = 0.2
    """Parted where the model surely calls more of the failed episodes done."""

    def __post_init__(self) -> None:
        if self.audit_window < 1:
            raise BadInput("--audit-window", got=self.audit_window, expected="at least 1")
        for name in ("audit_precision", "audit_false"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise BadInput(f"--{name.replace('_', '-')}", got=getattr(self, name), expected="a share from 0 to 1")


def counts(verdicts: Iterable[tuple[bool, bool]]) -> dict[str, float]:
    """Metrics of ended episodes, each (called done by the model, solved by the world): `COUNTS`, and ``called_done``,
    the share that was called done."""
    pairs = list(verdicts)
    found = {name: 0.0 for name in COUNTS}
    for called, solved in pairs:
        if called or solved:
            found[("called_" if called else "uncalled_") + ("solved" if solved else "failed")] += 1.0
    return {"called_done": sum(called for called, _ in pairs) / len(pairs), **found}


@dataclass(frozen=True)
class Verdicts:
    """Counts of episodes by both verdicts."""

    called_solved: int = 0
    called_failed: int = 0
    uncalled_solved: int = 0
    episodes: int = 0

    @property
    def precision(self) -> Success | None:
        """P(solved | called done); None where nothing was called."""
        called = self.called_solved + self.called_failed
        return Success.of(self.called_solved, called, level=LEVEL) if called else None

    @property
    def false_positives(self) -> Success | None:
        """P(called done | failed); None where nothing failed."""
        failed = self.episodes - self.called_solved - self.uncalled_solved
        return Success.of(self.called_failed, failed, level=LEVEL) if failed else None

    def parted(self, config: AuditConfig) -> str:
        """The reason why model and world have parted, in a sentence; empty where they have not."""
        precision, false = self.precision, self.false_positives
        if precision is not None and precision.high < config.audit_precision:
            return (
                f"of the last {precision.episodes} episodes that the reward model calls done {precision.rate:.0%} are "
                f"solved (at most {precision.high:.0%}): the policy pleases the model and not the task"
            )
        if false is not None and false.low > config.audit_false:
            return (
                f"the reward model calls {false.rate:.0%} of the last {false.episodes} failed episodes done (at least "
                f"{false.low:.0%}): what it rewards is not the task"
            )
        return ""


class Audited:
    """A trainer around another one, whose rows have the counts of `counts`: it compares, and may end the training.

    Attributes:
      reason: why it ended, or what was warned of last; empty where nothing was.

    Args:
      prefix: of the columns, where a trainer has those of several policies.
    """

    def __init__(self, trainer: Trainer, config: AuditConfig, prefix: str = "") -> None:
        self.trainer, self.config, self._prefix = trainer, config, prefix
        self.reason, self._stopped = "", 0
        self._history: list[list[int]] = []  # of each iteration in the window: COUNTS and episodes
        self._silent = False

    @property
    def iterations(self) -> int:
        """Number of iterations in all; those done, where the audit has ended the training."""
        return self._stopped or self.trainer.iterations

    @property
    def verdicts(self) -> Verdicts:
        """Counts of the newest iterations that together hold `audit_window` episodes."""
        return Verdicts(*(sum(column) for column in zip(*self._history, strict=True))) if self._history else Verdicts()

    def iterate(self, i: int) -> dict[str, float]:
        """Iteration `i`, with the columns ``audit_precision`` and ``audit_false``, each with ``_low`` and ``_high``."""
        whole = dict(self.trainer.iterate(i))
        row = {key.removeprefix(self._prefix): v for key, v in whole.items() if key.startswith(self._prefix)}
        if self.config.audit == "off" or "called_done" not in row:
            return whole
        if math.isnan(row["success"]):
            if not self._silent:
                log.warning("the world reports no success: the reward model is not audited")
            self._silent = True
            return whole
        judged = row["episodes"] - row.get("withheld", 0.0)
        self._history.append([*(round(row[name]) for name in COUNTS), round(judged)])
        while sum(one[-1] for one in self._history[1:]) >= self.config.audit_window:
            self._history.pop(0)
        verdicts = self.verdicts
        for name, found in (("audit_precision", verdicts.precision), ("audit_false", verdicts.false_positives)):
            if found is not None:
                column = f"{self._prefix}{name}"
                whole |= {column: found.rate, f"{column}_low": found.low, f"{column}_high": found.high}
        reason = verdicts.parted(self.config)
        if reason and self.config.audit == "stop":
            self._stopped = i + 1
        if reason and (self._stopped or not self.reason):
            log.warning("%s%s", reason, "; the run ends here" if self._stopped else "")
        self.reason = reason
        return whole

    def to_json(self) -> dict[str, Any]:
        """``audit`` in the result of ``robolearn finetune``."""
        verdicts = self.verdicts
        shown = {"precision": verdicts.precision, "false_positives": verdicts.false_positives}
        return {
            "rule": self.config.audit,
            **{name: None if found is None else found.to_json() for name, found in shown.items()},
            "parted": self.reason,
            "stopped": bool(self._stopped),
        }

    def export(self, path: Path) -> None:
        self.trainer.export(path)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """That of the trainer, and what is compared."""
        tensors, meta = self.trainer.state()
        return tensors, {**meta, f"{self._prefix}audit": [self._history, self.reason, self._stopped]}

    def load_state(self, tensors: dict[str, Tensor], meta: Mapping[str, Any]) -> None:
        """The inverse of `state`; a run that the audit ended goes on where the audit is not to end it any more."""
        rest = dict(meta)
        history, self.reason, stopped = rest.pop(f"{self._prefix}audit", ([], "", 0))
        self._history = [list(row) for row in history]
        self._stopped = stopped if self.config.audit == "stop" else 0
        self.trainer.load_state(tensors, rest)
