"""The best over seeds: arithmetic by hand, the test beside scipy's paired t test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from robolearn.core import BadInput
from robolearn.eval.best import best_over_seeds
from robolearn.eval.offline_table import best_of, row_of, shown, shown_seeds


def test_what_a_paired_t_test_does_not_separate_is_a_tie() -> None:
    """a − b = .1 .1 .1 .3 .1: mean .14, s = .0894, t = 3.5; a − c = .1 −.1 .1 .1 0: t = 0.96 — not separated."""
    found = best_over_seeds(
        {"b": [0.5, 0.6, 0.7, 0.4, 0.6], "a": [0.6, 0.7, 0.8, 0.7, 0.7], "c": [0.5, 0.8, 0.7, 0.6, 0.7]}
    )
    # Two comparisons: each at 2.5%, two-sided t(4) = 3.495 < 3.5.
    assert (found.name, found.ties, found.behind) == ("a", ("c",), ("b",))
    assert found.sentence == "a 70.0 is the largest mean; behind it: b 56.0; not separated from it: c 66.0"


def test_separated_is_what_scipy_separates_at_the_corrected_level() -> None:
    rng, said = np.random.default_rng(0), []
    for _ in range(200):
        means = zip("abcd", (0.5, 0.5, 0.6, 0.7), strict=True)
        values = {name: rng.normal(mean, 0.1, 5).tolist() for name, mean in means}
        found = best_over_seeds(values)
        for other in set(values) - {found.name}:
            p = stats.ttest_rel(values[found.name], values[other]).pvalue
            assert (other in found.behind) == (p < 0.05 / 3)
            said.append(other in found.behind)
    assert 0.1 < np.mean(said) < 0.9


def test_one_seed_separates_nothing_and_equal_ones_are_ties() -> None:
    found = best_over_seeds({"a": [0.9], "b": [0.1]})
    assert found.behind == () and found.sentence == "a 90.0 is the largest mean of b 10.0; one seed separates nothing"
    assert best_over_seeds({"a": [0.9, 0.8], "b": [0.9, 0.8]}).ties == ("b",)
    with pytest.raises(BadInput, match="values of seeds"):
        best_over_seeds({"a": [0.9], "b": [0.1, 0.2]})


def cell(seed: int, offline: float, online: float | None, after: tuple[float, ...] = ()) -> dict:
    rate = lambda x: {"rate": x, "low": 0.0, "high": 1.0, "episodes": 200}  # noqa: E731
    switch = {"offline": offline, "online": list(after), "dip": offline - min(after)} if after else None
    return {"seed": seed, "offline": rate(offline), "online": None if online is None else rate(online),
            "switch": switch, "env_steps": 512 if after else 0, "offline_s": 10.0 * (seed + 1),
            "online_s": 5.0 if after else None, "cpu_s": 20.0}  # fmt: skip


def test_a_row_is_the_mean_over_seeds_with_its_t_interval_and_the_largest_dip() -> None:
    """Dips of 4, −2 and 1 points: mean 1, s = 3, half = 4.3027 · 3 / √3 = 7.45."""
    cells = [cell(0, 0.60, 0.9, (0.56, 0.7)), cell(1, 0.70, 0.8, (0.72, 0.8)), cell(2, 0.50, 1.0, (0.51, 0.49))]
    row = {"task": "lift", "learner": "iql", **row_of(cells)}
    assert row["dip"]["mean"] == pytest.approx(0.01) and row["largest_dip"] == pytest.approx(0.04)
    half = 4.302653 * 0.03 / math.sqrt(3)
    assert (row["dip"]["low"], row["dip"]["high"]) == (pytest.approx(0.01 - half), pytest.approx(0.01 + half))
    assert row["offline"]["mean"] == pytest.approx(0.6) and row["online"]["median"] == pytest.approx(0.9)
    assert row["online"]["high"] == 1.0, "a share ends there"
    said = shown(row)
    assert said[2:6] == ("3 seeds", "60.0 (35.2–84.8); 60.0", "-", "1.0 (-6.5 to 8.5), largest 4.0")
    assert said[-1] == "25", "10, 20 and 30 s offline and 5 online"
    assert next(shown_seeds(row))[2:7] == ("0", "60.0", "56.0 70.0", "4.0", "90.0")
    other = {"task": "lift", "learner": "imitation of all", **row_of([cell(s, 0.3, None) for s in range(3)])}
    assert other["online"] is None and other["dip"] is None and shown(other)[5:7] == ("-", "-")
    assert best_of([row, other], "lift", "online").means == {
        "iql": pytest.approx(0.9), "imitation of all": pytest.approx(0.3)
    }  # fmt: skip


def test_a_time_that_a_seed_lacks_is_no_mean_of_the_others() -> None:
    cells = [cell(0, 0.6, 0.9, (0.5,)), cell(1, 0.6, 0.9, (0.5,)) | {"offline_s": None, "cpu_s": None}]
    row = {"task": "lift", "learner": "iql", **row_of(cells)}
    assert row["offline_s"] is None and row["cpu_s"] is None and shown(row)[-2:] == ("-", "-")
