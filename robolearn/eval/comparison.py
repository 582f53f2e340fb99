"""A versus B: is one policy better than the other, and by how much? And which part of a gain came from what?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from robolearn.core import BadInput
from robolearn.eval.by_return import compare_returns
from robolearn.eval.by_success import compare_paired, compare_unpaired
from robolearn.eval.evaluation import Evaluation, same_starts
from robolearn.eval.verdict import Verdict, corrected


def compare(a: Evaluation, b: Evaluation, *, names: tuple[str, str] = ("A", "B"), level: float = 0.95) -> Verdict:
    """Compare two evaluations: by success where both report it, else by mean return.

    Episodes are compared start by start where both evaluations met the same starts.

    Raises:
      BadInput: the two did different tasks.
    """
    if a.task != b.task:
        raise BadInput("comparison: task", got=b.task, expected=a.task)
    paired = same_starts(a, b)
    if not (a.success_reported and b.success_reported):
        return compare_returns(a.returns, b.returns, paired=paired, names=names, level=level)
    if paired:
        return compare_paired(a.succeeded, b.succeeded, names=names, level=level)
    return compare_unpaired(
        int(a.succeeded.sum()), a.episodes, int(b.succeeded.sum()), b.episodes, names=names, level=level
    )


@dataclass(frozen=True)
class Gain:
    """What fine-tuning gained, split into the choice of the initial noise and the training after it.

    A flow that imitates is as varied as its demonstrations, mistakes included. Where its paths begin is chosen before
    the first update, and that choice alone can repair part of them.

    Attributes:
      total: imitation against the fine-tuned policy.
      initial_noise: imitation against the same weights at the chosen initial noise.
      training: these against the fine-tuned policy.
    """

    total: Verdict
    initial_noise: Verdict
    training: Verdict

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All three, the whole first."""
        return self.total, self.initial_noise, self.training

    @property
    def share(self) -> float | None:
        """The part of the gain that the initial noise alone makes, in [0, 1]; None unless both parts are gains."""
        parts = self.initial_noise.difference, self.training.difference
        return parts[0] / sum(parts) if min(parts) >= 0 and sum(parts) > 0 else None

    @property
    def sentence(self) -> str:
        """The split in plain words."""
        v = self.total
        what, unit = ("Success", " percentage points") if v.metric == "success" else ("Mean return", "")
        a, b = (v.text(value) for value in v.values)
        noise, training = v.signed(self.initial_noise.difference), v.signed(self.training.difference)
        if self.share is not None:
            noise, training = f"{noise} ({self.share:.0%})", f"{training} ({1 - self.share:.0%})"
        return (
            f"{what} went from {a} to {b}, {v.signed(v.difference)}{unit}: {noise} from the choice of the initial "
            f"noise alone, without training, and {training} from RL."
        )

    def to_json(self) -> dict[str, Any]:
        """A plain dict for ``--json``."""
        return {
            "metric": self.total.metric,
            "total": self.total.to_json(),
            "initial_noise": self.initial_noise.to_json(),
            "training": self.training.to_json(),
            "initial_noise_share": self.share,
            "sentence": self.sentence,
        }


def split_gain(
    imitation: Evaluation,
    chosen_start: Evaluation,
    fine_tuned: Evaluation,
    *,
    names: Sequence[str] = ("imitation", "chosen initial noise", "after RL"),
) -> Gain:
    """The gain of fine-tuning in three evaluations, which should have the same starts.

    The p-values are corrected for the three comparisons.

    Args:
      imitation: the policy of imitation as it samples.
      chosen_start: the same weights at the initial noise that fine-tuning chose.
      fine_tuned: the policy after RL.
      names: what the three are called.

    Raises:
      BadInput: different tasks, or success reported by only some of the three.
    """
    if len({e.success_reported for e in (imitation, chosen_start, fine_tuned)}) > 1:
        raise BadInput("gain", got="success reported by some of the evaluations", expected="by all or by none")
    a, b, c = names
    pairs = (imitation, fine_tuned, (a, c)), (imitation, chosen_start, (a, b)), (chosen_start, fine_tuned, (b, c))
    return Gain(*corrected([compare(one, other, names=names) for one, other, names in pairs]))
