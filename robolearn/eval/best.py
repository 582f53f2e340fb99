"""The best over training seeds, and those from whom a test does not separate it.

    d_s = x_best,s − x_other,s          one difference of each seed s that all have
    separated  ⇔  the t interval of mean d at level 1 − 0.05 / m lies above 0

The interval is that of `over_seeds`, which makes it the paired t test over seeds; m, the number of others, corrects for
as many comparisons (Bonferroni). The best is the largest mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robolearn.core import BadInput
from robolearn.eval.intervals import over_seeds

ERROR = 0.05  # of all comparisons together


@dataclass(frozen=True)
class Best:
    """The best of several learners.

    Attributes:
      name: of the largest mean.
      ties: those that the test does not separate from it, the better first.
      behind: the others, the better first.
      means: of all.
      seeds: that were compared.
    """

    name: str
    ties: tuple[str, ...]
    behind: tuple[str, ...]
    means: Mapping[str, float]
    seeds: int

    @property
    def sentence(self) -> str:
        """The verdict in words, shares in percent, without a full stop."""
        named = lambda names: ", ".join(f"{name} {100 * self.means[name]:.1f}" for name in names)  # noqa: E731
        said = [f"{named([self.name])} is the largest mean"]
        if self.seeds < 2:
            return f"{said[0]} of {named(self.ties)}; one seed separates nothing" if self.ties else said[0]
        if self.behind:
            said.append(f"behind it: {named(self.behind)}")
        if self.ties:
            said.append(f"not separated from it: {named(self.ties)}")
        return "; ".join(said)

    def to_json(self) -> dict[str, Any]:
        """``{"best", "ties", "behind", "seeds", "sentence"}``."""
        return {"best": self.name, "ties": list(self.ties), "behind": list(self.behind), "seeds": self.seeds,
                "sentence": self.sentence}  # fmt: skip


def best_over_seeds(values: Mapping[str, Sequence[float]]) -> Best:
    """The best of learners with the values (seeds,), the same seeds in the same order. Raises `BadInput`: no learner,
    or different numbers of seeds."""
    counts = {len(own) for own in values.values()}
    if len(counts) != 1 or 0 in counts:
        raise BadInput("values of seeds", got=f"{sorted(counts)} of learners", expected="as many of each, at least one")
    means = {name: over_seeds(own).mean for name, own in values.items()}
    first, *others = sorted(means, key=lambda name: -means[name])
    level = 1.0 - ERROR / max(len(others), 1)
    ties = [
        name
        for name in others
        if not over_seeds([a - b for a, b in zip(values[first], values[name], strict=True)], level=level).low > 0
    ]
    behind = tuple(name for name in others if name not in ties)
    return Best(first, tuple(ties), behind, means, counts.pop())
