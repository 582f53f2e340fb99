"""Figures of a reward model: by hand, on one that is right, and on three that look good by one figure."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import BadInput, Score, Window
from robolearn.data import Dataset
from robolearn.eval.critic_page import pictures_after, render_critic, scored_frames
from robolearn.eval.critics import bootstrap_of, evaluate_critic
from robolearn.io.json_files import plain
from robolearn.rewards.metrics import calibration_error, judge, tau, voc
from robolearn.rewards.stored import read_scores

sys.path.insert(0, str(Path(__file__).parent))
import controls
from controls import OTHER, AlwaysOne, Clock, Control, FirstFrame, Truth, Unsure, episode, film, write

EPISODES = [episode(True, i) for i in range(8)] + [episode(False, 50 + i, "frozen") for i in range(8)]


def evaluated(model: Control):
    return evaluate_critic(judge(model, EPISODES, OTHER))


def test_figures_by_hand() -> None:
    assert voc([0.1, 0.2, 0.5, 0.9]) == pytest.approx(1.0) and voc([3, 2, 1]) == pytest.approx(-1.0)
    assert voc([0.5, 0.5, 0.5]) == 0.0 and voc([0.1]) == 0.0
    assert voc([1, 3, 2, 4]) == pytest.approx(0.8)
    assert tau([0.9, 0.5], [0.5, 0.1]) == pytest.approx((1 + 1 + 0 + 1) / 4)
    assert np.isnan(tau([], [0.1]))
    # Bin 9: mean .95, all true; bin 0: mean .05, a half true.
    assert calibration_error([0.95, 0.95, 0.05, 0.05], [1, 1, 1, 0]) == pytest.approx(0.5 * 0.05 + 0.5 * 0.45)


def test_an_interval_of_any_figure_holds_its_value() -> None:
    rng = np.random.default_rng(0)
    found = bootstrap_of([rng.normal(1, 1, 40), rng.normal(0, 1, 40)], tau)
    assert found.low < found.mean < found.high and found.high - found.low < 0.6 and found.count == 80


@pytest.mark.long
def test_one_that_sees_is_trusted() -> None:
    found = evaluated(Truth())
    result = found.to_json()
    assert result["trusted"] and not result["faults"]
    assert result["voc"]["mean"] > 0.99 and result["voc_reversed"]["mean"] < -0.99
    assert result["tau"]["mean"] == 1.0 and result["success_failure_gap"]["mean"] > 0.5
    assert result["false_positive_rate"]["rate"] == 0.0 and result["done"]["recall"]["rate"] == 1.0
    assert result["wrong_task_ratio"]["mean"] == 0.0
    pace = result["latency_ms"]
    assert 0 < pace["p50_low"] <= pace["p50"] <= pace["p50_high"] and pace["p99_low"] <= pace["p99"] <= pace["p99_high"]
    assert pace["p50_low"] < pace["p50_high"], "over episodes"
    assert set(result["by_failure"]) == {"frozen"}
    json.dumps(plain(result), allow_nan=False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        (AlwaysOne, ["does not rise", "tell successes from failures", "praises failures", "calls failures done"]),
        (Clock, ["runs backwards", "tell successes from failures", "praises failures", "calls failures done", "words"]),
        (FirstFrame, ["does not rise", "tell successes from failures", "does not see that a task is done"]),
    ],
)
def test_what_looks_good_by_one_figure_is_caught(model: type[Control], reasons: list[str]) -> None:
    found = evaluated(model())
    assert not found.to_json()["trusted"]
    for reason in reasons:
        assert any(reason in fault for fault in found.faults), (reason, found.faults)
    if model is Clock:
        assert found.voc.mean > 0.99, "which is why VOC alone proves nothing"


def test_successes_alone_prove_nothing() -> None:
    with pytest.raises(BadInput, match="no failure"):
        evaluate_critic(judge(Truth(), EPISODES[:8], OTHER))


@pytest.mark.parametrize(
    ("successes", "failures", "lacking"), [(2, 0, "failure"), (0, 2, "success"), (2, 2, "failure")]
)
def test_no_model_is_asked_where_an_outcome_is_lacking(
    successes: int, failures: int, lacking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(Unsure, "asked", 0)
    write(tmp_path / "data", successes, failures)
    words = ["--reward", "controls:Unsure", "--data", str(tmp_path / "data"), "--episodes", "2"]
    assert main(["reward", "evaluate", *words]) == 2
    assert f"got no {lacking}, expected successes and failures" in capsys.readouterr().err and Unsure.asked == 0


@pytest.mark.parametrize(
    ("model", "why"),
    [("Failing", "the model failed: ValueError: too far to the left"),
     ("Rubbish", "reward model: progress: got NaN or infinity, expected finite numbers")],
)  # fmt: skip
def test_a_score_that_fails_is_withheld_and_the_others_are_made(
    model: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "data", 2, 1)
    assert main(["reward", "score", "--reward", f"controls:{model}", "--data", str(tmp_path / "data"), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["scored"] == 2 and result["withheld"] == [f"episode 2: {why}"]
    withheld: list[str] = []
    assert not judge(getattr(controls, model)(), EPISODES, OTHER, source="here", withheld=withheld)
    assert withheld[8] == f"episode 8 of here: {why}", "a success that is played backwards ends at the left, too"
    assert len(withheld) == 16


@pytest.mark.long
def test_the_page_shows_figures_curves_and_film_strips(tmp_path: Path) -> None:
    html = render_critic(
        evaluated(Clock()), title="Reward model <clock>", subtitle="16 episodes", commands=["robolearn reward"],
        pictures=lambda j: EPISODES[j.index].observation["images.front"],
    )  # fmt: skip
    assert "No reward to learn from" in html and "&lt;clock&gt;" in html and "runs backwards" in html
    assert html.count("<svg") == 3 + 4 and "Not ruled out" not in html
    assert "Not ruled out" in render_critic(evaluated(Truth()), title="t", subtitle="s", pictures=None)


def test_a_film_grows_its_curve() -> None:
    pictures = film(np.linspace(0, 1, 5))
    frames = list(scored_frames(pictures, np.linspace(0, 1, 5).astype(np.float32), np.arange(5) == 4))
    assert len({frame.shape for frame in frames}) == 1 and frames[0].shape[0] > frames[0].shape[1] > 200
    assert (frames[0][252:] != frames[3][252:]).any()


@pytest.mark.parametrize(("ends", "shown"), [(True, [1, 2, 3]), (False, [0, 1, 2])])
def test_the_picture_of_a_score_is_the_one_after_its_step(ends: bool, shown: list[int]) -> None:
    """The last one alone shows that the task is done; a set without it has the pictures before."""
    pictures = np.arange(4, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    made = replace(
        episode(True, 0), observation={"images.front": pictures[:3]}, action=np.zeros((3, 2), np.float32),
        final={"images.front": pictures[3]} if ends else {},
    )  # fmt: skip
    assert pictures_after(made, "images.front")[:, 0, 0, 0].tolist() == shown


def test_a_scoring_that_is_interrupted_keeps_what_was_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours of a large model: the same command asks for the rest alone."""
    write(tmp_path / "data", 2, 1)
    asked, one = [], Truth.one

    def interrupted(self: Truth, window: Window, prompt: str) -> Score:
        asked.append(prompt)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return one(self, window, prompt)

    monkeypatch.setattr(Truth, "one", interrupted)
    words = ["reward", "score", "--reward", "controls:Truth", "--data", str(tmp_path / "data"), "--write", "--json"]
    assert main(words) == 130 and list(read_scores(Dataset.open(tmp_path / "data"))) == [0, 1]
    assert main(words) == 0 and len(asked) == 4
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["scored"] == 1
