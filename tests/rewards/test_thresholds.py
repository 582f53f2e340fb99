"""The threshold of done: by hand, on episodes that no gradient step has seen, stored, a half on the scale of scores."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robolearn.cli.main import main
from robolearn.core import BadInput
from robolearn.data import Dataset
from robolearn.rewards.critic import ProgressCritic, load_critic, save_critic
from robolearn.rewards.done import FIRST_SURE
from robolearn.rewards.metrics import window_of
from robolearn.rewards.settings import CriticConfig
from robolearn.rewards.training import CriticTrainer, fit_threshold, highest_threshold

sys.path.insert(0, str(Path(__file__).parent))
from controls import OTHER, TASK, episode, write

SMALL = CriticConfig(steps=4, steps_per_iteration=2, batch=64, width=8, channels=2, picture=48, views=1, members=2)


def embed(sentences: Sequence[str]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(len(sentences), 384)).astype(np.float32) / 20


def test_an_episode_is_called_done_up_to_its_best_frames_in_a_row() -> None:
    p = np.array([0.1, 0.9, 0.4, 0.6, 0.7, 0.2])
    assert [highest_threshold(p, k) for k in (1, 2, 3, 4, 6, 7)] == [0.9, 0.6, 0.4, 0.4, 0.1, 0.0]


@pytest.mark.parametrize(
    ("solved", "failed", "threshold", "recall", "false"),
    [
        ([0.9, 0.8], [0.1, 0.2], 0.5, (2, 2), (0, 2)),  # a half does
        ([0.4, 0.3, 0.9], [0.1, 0.2], 0.25, (3, 3), (0, 2)),  # between .2 and .3
        ([0.9, 0.7, 0.95], [0.1, 0.8], 0.85, (2, 3), (0, 2)),  # between .8 and .9; .7 is lost
        ([0.3, 0.4], [0.6], 0.8, (0, 2), (0, 1)),  # none can be had: between .6 and 1
        ([0.9], [1.0], 1.0, (0, 1), (1, 1)),  # nothing helps, and it is said
        ([0.6], [0.5], 0.55, (1, 1), (0, 1)),  # a failure at a half is called done by a half
    ],
)
def test_the_threshold_by_hand(solved: list, failed: list, threshold: float, recall: tuple, false: tuple) -> None:
    found = fit_threshold(np.array(solved), np.array(failed))
    assert (found.threshold, found.recall, found.false) == (pytest.approx(threshold), recall, false)


def test_one_failure_of_fifty_may_be_called_done_and_two_may_not() -> None:
    solved, failed = np.array([0.7, 0.9]), np.full(50, 0.1)
    failed[3] = 0.95
    assert fit_threshold(solved, failed).threshold == 0.5 and fit_threshold(solved, failed).false == (1, 50)
    failed[4] = 0.8
    assert fit_threshold(solved, failed).threshold == pytest.approx(0.85)
    assert fit_threshold(solved, failed[1:]).threshold > 0.95, "of 49 none may"


def test_no_threshold_does_better_under_the_bound() -> None:
    """Against a search over a grid, on random episodes."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        solved, failed = rng.random(rng.integers(1, 9)), rng.random(rng.integers(1, 120)) * 0.9
        found = fit_threshold(solved, failed)
        grid = np.linspace(1e-4, 1.0, 4000)
        allowed = grid[(failed >= grid[:, None]).mean(axis=1) <= 0.02]
        assert found.false[0] / found.false[1] <= 0.02
        assert found.recall[0] >= (solved >= allowed[:, None]).sum(axis=1).max(initial=0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("thresholds") / "data", successes=8, failures=8)


@pytest.mark.long
def test_a_quarter_is_not_learned_from(data: Path) -> None:
    trainer = CriticTrainer(SMALL, [Dataset.open(data)], embed=embed)
    kept = np.flatnonzero(trainer._kept)
    assert (kept < 8).sum() == (kept >= 8).sum() == 2
    lengths = Dataset.open(data).lengths
    of_frame = np.repeat(np.arange(16), lengths)
    drawn = [trainer._sampler.draw(np.random.default_rng(i)) for i in range(30)]
    seen = {int(e) for pairs in drawn for rows in (pairs.first, pairs.second) for e in of_frame[rows]}
    assert seen == set(range(16)) - set(kept.tolist())
    all_of_it = CriticTrainer(replace(SMALL, holdout=0.0), [Dataset.open(data)], embed=embed)
    assert not all_of_it._kept.any() and all_of_it.summary() == {} and all_of_it.fitted() == {"threshold": 0.5}


@pytest.mark.long
def test_it_is_fitted_on_what_was_kept_stored_and_read(data: Path, tmp_path: Path) -> None:
    trainer = CriticTrainer(SMALL, [Dataset.open(data)], embed=embed)
    with torch.no_grad():  # all are as sure as can be, so that a half says nothing
        for member in trainer.critic.members:
            member.done[-1].bias.add_(6.0)
    trainer.export(tmp_path / "critic")
    dataset = Dataset.open(data)
    highest = {}
    for e in np.flatnonzero(trainer._kept):
        critic, window = trainer.critic, window_of(dataset.episode(int(e)))
        _, p = critic.judged(critic.encoder.encode(critic.seen(window)), critic.words([TASK]))
        highest[int(e)] = float(p.max())
    expected = fit_threshold(*(np.array([m for e, m in highest.items() if (e < 8) == good]) for good in (True, False)))
    assert trainer.fitted()["threshold"] == pytest.approx(expected.threshold, abs=1e-4) and expected.threshold > 0.9
    assert trainer.summary() == {"recall": expected.recall, "false_positive_rate": expected.false}
    stored = json.loads((tmp_path / "critic" / "config.json").read_text())
    assert stored["threshold"] == trainer.critic.threshold
    again = load_critic(tmp_path / "critic")
    assert isinstance(again, ProgressCritic) and again.threshold == trainer.critic.threshold
    for wrong in (0.0, 1.5, "high"):
        (tmp_path / "critic" / "config.json").write_text(json.dumps(stored | {"threshold": wrong}))
        with pytest.raises(BadInput, match=r"threshold|high"):
            load_critic(tmp_path / "critic")
    del stored["threshold"], stored["settings"]["holdout"]
    (tmp_path / "critic" / "config.json").write_text(json.dumps(stored))
    older = load_critic(tmp_path / "critic")
    assert isinstance(older, ProgressCritic) and older.threshold == 0.5


@pytest.mark.long
def test_a_score_has_the_threshold_at_a_half(data: Path, tmp_path: Path) -> None:
    """By hand: twice as unsure below, and a half to one above; so every rule of done goes by it."""
    critic, window = CriticTrainer(SMALL, [Dataset.open(data)], embed=embed).critic, window_of(episode(True, 3))
    (before,) = critic.score([window], [OTHER])
    p = np.where(before.done, before.confidence, 1.0 - before.confidence).astype(np.float64)
    critic.threshold = float(np.sort(p)[-4])
    (after,) = critic.score([window], [OTHER])
    done = p >= critic.threshold
    np.testing.assert_array_equal(after.done, done)
    scaled = np.where(done, 0.5 + 0.5 * (p - critic.threshold) / (1 - critic.threshold), 0.5 * p / critic.threshold)
    np.testing.assert_allclose(after.confidence, np.where(done, scaled, 1 - scaled), atol=1e-6)
    np.testing.assert_array_equal(FIRST_SURE.sure(after), done)
    assert np.array_equal(before.progress, after.progress)
    save_critic(critic, tmp_path / "critic")
    np.testing.assert_array_equal(load_critic(tmp_path / "critic").score([window], [OTHER])[0].done, done)


@pytest.mark.long
def test_the_command_says_it_with_intervals(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--steps", "1", "--batch", "16", "--width", "8", "--channels", "2", "--picture", "48", "--views", "1"]
    train = ["reward", "train", "--data", str(data), *small]
    assert main([*train, "--out", str(tmp_path / "a")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "fitted on episodes kept from training" in said and "recall" in said and "false positive rate" in said
    assert main([*train, "--out", str(tmp_path / "b"), "--holdout", "0", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["threshold"] == 0.5 and "recall" not in result
    assert main([*train, "--out", str(tmp_path / "c"), "--holdout", "1"]) == 2
