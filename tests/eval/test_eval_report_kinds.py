"""Reports of three policies, of worlds without success, and of a data set; and the folder that they go to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from robolearn.core import BadInput
from robolearn.data.quality import Demonstrations, EpisodeScore, QualityReport, assess
from robolearn.eval import Evaluation, compare, evaluate, split_gain
from robolearn.eval.plots import draw_returns, mean_series
from robolearn.eval.quality_page import render_quality, summary
from robolearn.eval.report import check_report_folder, render
from robolearn.eval.report_data import Outcome, ReportData, evaluation_report
from robolearn.eval.sweep_report import SweepRun, text_of
from robolearn.eval.sweep_report import summary as summary_of_sweep
from robolearn.eval.sweep_report import write as write_sweep
from robolearn.eval.video import choose_episodes, record_episodes

NAMES = ("imitation", "chosen initial noise", "after RL")
Run = Callable[..., Evaluation]


@pytest.fixture
def run(fake) -> Run:
    def run(strength: float, episodes: int = 60, seed: int = 1) -> Evaluation:
        return evaluate(fake.Env(5, lambda d, solved: 3 if solved else 7), fake.Policy(strength), episodes, seed)

    return run


def words(page: str) -> str:
    """The page as it is read, from the title on."""
    text = re.sub(r"<(style|script|svg|title)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_three_bars_begin_with_what_the_initial_noise_alone_gained(run: Run) -> None:
    done = [run(strength) for strength in (0.5, 0.8, 0.98)]
    gain = split_gain(*done)
    page = render(
        ReportData(
            "lift", "seed 0", [Outcome.of(name, e) for name, e in zip(NAMES, done, strict=True)], gain, gain.verdicts
        )
    )
    assert words(page).startswith(f"lift {gain.sentence} seed 0 imitation")
    assert gain.share is not None and "from the choice of the initial noise alone" in gain.sentence
    assert page.count('class="card"') == page.count('class="dot"') == 3
    assert page.count('<div class="verdict') == 3
    table = words(page).split("Outcomes", 1)[1]
    for name, e in zip(NAMES, done, strict=True):
        assert f"{name} {e.succeeded.sum()} of 60 {e.success.rate:.1%}" in table


def test_a_world_without_success_is_shown_by_return(run: Run) -> None:
    done = [replace(run(s), success_reported=False, returns=100 * s + np.arange(60)) for s in (0.5, 0.98)]
    data = evaluation_report(dict(zip("ab", done, strict=True)), verdicts=[compare(*done, names=("a", "b"))])
    page = render(data)
    assert "a 79.50 mean return over 60 episodes, 95% interval" in words(page)
    assert "b is better: mean return 127.5 against 79.50, difference +48.00" in words(page)
    assert "Reached return" in page and "Solved within" not in page
    assert "success" not in words(page).lower() and "solved" not in words(page)


def test_what_a_report_of_an_evaluation_says(run: Run) -> None:
    assert evaluation_report({"a": run(0.5)}).subtitle == "60 episodes, seed 1."
    assert evaluation_report({"a": run(0.5, 1)}).subtitle == "1 episode, seed 1."
    two = evaluation_report({"a": run(0.5, 3), "b": run(0.9, 3)})
    assert two.subtitle == "3 episodes of each policy, from the same starts (seed 1)."
    assert two.settings["worlds side by side"] == "5"
    other = evaluation_report({"a": run(0.5, 8), "b": run(0.9, 16, seed=2)})
    assert other.subtitle == "8 and 16 episodes, from different starts (seeds 1 and 2)."
    with pytest.raises(BadInput, match="at least one"):
        evaluation_report({})


def test_videos_of_a_world_without_success_are_chosen_by_return(fake, run: Run, tmp_path: Path) -> None:
    evaluation = replace(run(0.5, 9), success_reported=False)
    returns = np.array([5.0, 3, 9, 3, 9, 5, 5, 5, 5])
    worst, best = choose_episodes(replace(evaluation, returns=returns))
    assert (worst.reason, best.reason) == ("lowest return", "highest return")
    assert returns[worst.row] == 3.0 and returns[best.row] == 9.0
    env = fake.Env(5, lambda d, solved: 3 if solved else 7)
    videos = record_episodes(env, fake.Policy(0.5), evaluation, tmp_path)
    assert "worst: lowest return (world" in videos[0].caption and "return 0 in" in videos[0].caption


def test_a_band_of_means_is_students() -> None:
    values = np.random.default_rng(0).normal(10, 3, 12)
    series = mean_series("return", [0, 1, 2], [values.mean(), 7.0, 0.0], [values.std(ddof=1), 0.0, 0.0], [12, 1, 0])
    y, low, high = (np.asarray(v, float) for v in (series.y, series.low, series.high))
    expected = stats.t.interval(0.95, 11, values.mean(), values.std(ddof=1) / np.sqrt(12))
    assert (low[0], high[0]) == pytest.approx(expected)
    assert y[1] == 7.0 and np.isnan(low[1]) and np.isnan(y[2])


def test_the_picture_of_returns_counts_the_episodes_that_reach_them() -> None:
    axes = draw_returns(["a", "b"], [[3.0, 1.0, 2.0, 2.0], []]).axes[0]
    (line,) = axes.get_lines()
    x, y = (np.asarray(v) for v in line.get_data())
    assert line.get_drawstyle() == "steps-pre"  # up to x[i] the share is y[i]
    assert x[1:-1].tolist() == [1.0, 2.0, 2.0, 3.0] and y[1:-1].tolist() == [1.0, 0.75, 0.5, 0.25]
    assert (y[0], y[-1]) == (1.0, 0.0)
    assert axes.get_xlabel() == "return [reward]"


@pytest.mark.long
def test_the_page_of_a_data_set_shows_foreign_text_as_text() -> None:
    rng = np.random.default_rng(0)
    state = rng.standard_normal((240, 3)).cumsum(axis=0)
    set_ = Demonstrations(
        state=state, action=rng.standard_normal((240, 2)), body=state, lengths=np.full(6, 40), control_hz=20.0,
        path=state, success=np.array([True] * 5 + [False]),
    )  # fmt: skip
    page = render_quality(set_, assess(set_), title="<script>alert(1)</script>", commands=["robolearn <x> && y"])
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page and "&lt;x&gt; &amp;&amp; y" in page
    text = words(page)
    assert "6 episodes, 240 frames, 20 Hz." in text and "success 83.3% of the episodes" in text
    assert re.search(r" 6 5 \d+ drop ", text.split("Every episode, the best first")[1])  # the failed one comes last
    assert page.count("<svg") >= 4 and "http" not in page.replace("http-equiv", "")


def test_a_folder_for_a_report_is_tried_before_the_episodes(tmp_path: Path) -> None:
    check_report_folder(tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == []  # nothing stays behind
    (tmp_path / "there").mkdir()
    check_report_folder(tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []

    (tmp_path / "file").write_text("mine")
    for wrong in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("x" * 300), Path("/proc/report")):
        with pytest.raises(BadInput, match=r"expected a folder(, or a new name| that can be written to)") as caught:
            check_report_folder(wrong)
        assert str(wrong) in str(caught.value) and "\n" not in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "there"]

    (tmp_path / "there" / "report.html").write_text("old")
    with pytest.raises(BadInput, match="got a folder with a report, expected a new one"):
        check_report_folder(tmp_path / "there")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(BadInput, match="Permission denied"):
            check_report_folder(tmp_path / "out")
    finally:
        tmp_path.chmod(0o755)


def test_the_advice_counts_episodes_and_then_names_them() -> None:
    verdicts = ("keep", "look", "drop", "look")
    scores = tuple(EpisodeScore(number, number + 1, 50.0, verdict) for number, verdict in enumerate(verdicts))
    report = QualityReport(scores, 0.5, None, None, np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 2)))
    drop, _, keep = summary(report).partition(". Keep ")
    assert drop == "Drop 1 episode of 4, failed, copies or with wild frames: 2"
    assert keep.startswith("2 episodes at a lower weight: 1,3. Train with --weights")


def test_the_table_of_a_sweep_has_the_interval_of_its_page(tmp_path: Path) -> None:
    """0 and 39% by two seeds: Student's interval is wider than what a rate can be."""
    ones = [SweepRun({"lr": "0.001"}, seed, tmp_path / f"seed{seed}", None) for seed in (0, 1)]
    rates = (
        {"rate": r, "low": low, "high": high, "episodes": 200} for r, low, high in ((0, 0, 0.02), (0.39, 0.3, 0.5))
    )
    results = [{"command": "train", "evaluation": {"success": rate}} for rate in rates]
    for one in ones:
        one.path.mkdir()
        (one.path / "metrics.jsonl").write_text("")
    rows = summary_of_sweep(ones, results)
    assert text_of("success", rows[0]["metrics"]["success"]) == "19.5% (0.0–100.0, 2 seeds)"
    page = words(write_sweep(tmp_path, ones, results, rows, "robolearn sweep -- train").read_text())
    assert "19.5% (0.0–100.0, 2 seeds)" in page and re.search(r"19\.5 ?% ?.{0,40}0\.0.{1,3}100\.0", page), page
