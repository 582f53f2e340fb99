"""The outcome of A versus B, in numbers and in one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Metric = Literal["success", "return"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of A versus B; `robolearn.eval.compare` makes it.

    Attributes:
      metric: what was compared: success rates, or mean returns where a world reports no success.
      names: what A and B are called.
      values: of A and B: success rates in [0, 1], or mean returns in the unit of the rewards.
      episodes: episodes of A and of B.
      paired: whether both met the same starts.
      test: the name of the test.
      p_value: two-sided, of the hypothesis that A and B are equally good; of returns an upper bound.
      difference: value of B minus value of A.
      low: lower bound of the difference; NaN where there are too few episodes for one.
      high: upper bound of the difference; NaN as `low`.
      level: confidence level of the interval.
      comparisons: number of comparisons that `p_value` is corrected for; see `corrected`.
    """

    metric: Metric
    names: tuple[str, str]
    values: tuple[float, float]
    episodes: tuple[int, int]
    paired: bool
    test: str
    p_value: float
    difference: float
    low: float
    high: float
    level: float = 0.95
    comparisons: int = 1

    @property
    def better(self) -> str | None:
        """The name of the better one, or None where no difference can be claimed.

        A difference is claimed where ``p_value < 1 − level``; of mean returns, the interval must exclude 0, too.
        """
        if self.p_value >= 1 - self.level or self.difference == 0:
            return None
        if self.metric == "return" and not (self.low > 0 or self.high < 0):
            return None
        return self.names[1] if self.difference > 0 else self.names[0]

    @property
    def sentence(self) -> str:
        """The verdict in plain words, without a full stop."""
        over = f"paired over {self.episodes[0]} starts"
        if not self.paired:
            over = f"over {self.episodes[0]} and {self.episodes[1]} episodes"
        a, b = (self.text(value) for value in self.values)
        if self.metric == "return":
            a, b = f"mean return {a}", f"mean return {b}"
            over = f"difference {self.interval}, {self._p}, {over}"
        else:
            over = f"{self._p}, {over}"
        if self.better is None:
            return f"No difference can be claimed: {self.names[1]} {b}, {self.names[0]} {a}, {over}"
        first, second = (b, a) if self.difference > 0 else (a, b)
        return f"{self.better} is better: {first} against {second.removeprefix('mean return ')}, {over}"

    @property
    def interval(self) -> str:
        """Value of B minus value of A, with its interval."""
        unit = " percentage points" if self.metric == "success" else ""
        if math.isnan(self.low):
            return f"{self.signed(self.difference)}{unit}, too few episodes for an interval"
        bounds = f"{self.level:.0%} interval {self.signed(self.low)} to {self.signed(self.high)}"
        return f"{self.signed(self.difference)}{unit}, {bounds}"

    def text(self, value: float) -> str:
        """A value of the metric: 97.5% or 981.3."""
        return f"{value:.1%}" if self.metric == "success" else number(value)

    def signed(self, difference: float) -> str:
        """A difference of the metric with its sign: +36.5 (percentage points) or +687."""
        text = f"{100 * difference:+.1f}" if self.metric == "success" else number(difference, sign="+")
        return text.replace("-", "\N{MINUS SIGN}")

    def to_json(self) -> dict[str, object]:
        """A plain dict for ``--json``: ``rate_a`` and ``rate_b`` of success, ``mean_a`` and ``mean_b`` of returns."""
        kind = "rate" if self.metric == "success" else "mean"
        low, high = (None if math.isnan(bound) else bound for bound in (self.low, self.high))
        return {
            "metric": self.metric,
            "a": self.names[0],
            "b": self.names[1],
            f"{kind}_a": self.values[0],
            f"{kind}_b": self.values[1],
            "test": self.test,
            "paired": self.paired,
            "p_value": self.p_value,
            "difference": {"value": self.difference, "low": low, "high": high},
            "better": self.better,
            "sentence": self.sentence,
            "comparisons": self.comparisons,
        }

    @property
    def _p(self) -> str:
        of = "" if self.comparisons == 1 else f" corrected for {self.comparisons} comparisons"
        if self.metric == "return":
            return f"p ≤ {self.p_value:.2g}{of}"
        return f"p < 0.0001{of}" if self.p_value < 1e-4 else f"p = {self.p_value:.2g}{of}"


def corrected(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The same comparisons with p-values corrected for their number m by Holm (1979, Scand. J. Stat. 6:65):

        p̃_(i) = max_{j ≤ i} min(1, (m − j + 1) p_(j)),    p_(1) ≤ … ≤ p_(m)

    With these, the chance that any of the m claims of a difference is false is at most 1 − level. Intervals stay those
    of each comparison alone.
    """
    m, largest = len(verdicts), 0.0
    out = list(verdicts)
    for rank, i in enumerate(sorted(range(m), key=lambda i: verdicts[i].p_value)):
        largest = max(largest, min(1.0, (m - rank) * verdicts[i].p_value))
        out[i] = replace(verdicts[i], p_value=largest, comparisons=m)
    return out


def number(value: float, *, sign: Literal["", "+"] = "") -> str:
    """A number of any size with four significant digits, without an exponent below a million."""
    if 1000 <= abs(value) < 1e6:
        return f"{value:{sign},.0f}"
    return "0" if value == 0 else f"{value:{sign}#.4g}".rstrip(".")
