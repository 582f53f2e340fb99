"""The reward from preferences: loss, rows and threshold by hand, what it calls done, exact resume, and bad input."""

from __future__ import annotations

import json
import logging
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.rewards.choice import make_reward
from robolearn.rewards.critic import load_critic
from robolearn.rewards.labels import EpisodeClip, Preference, better_by_outcome, draw_pairs, write_preferences
from robolearn.rewards.metrics import window_of
from robolearn.rewards.preference import NEVER, PreferenceReward
from robolearn.rewards.preference_training import ClipRows, PreferenceRewardTrainer, fit_done, preference_log_loss
from robolearn.rewards.settings import PreferenceRewardConfig

sys.path.insert(0, str(Path(__file__).parent))
from controls import TASK, write

VECTORS = Interface({"proprio": ArraySpec((2,), names=("way", "noise"))}, ArraySpec((1,)), 20.0)
SMALL = PreferenceRewardConfig(steps=90, steps_per_iteration=30, batch=32, lr=2e-3, width=32, frames=8)


def episode(solved: bool, seed: int, *, final: bool = True) -> Episode:
    """A walk of 10 to 15 steps to about 1, or to about 0.3, where it stays for longer; and a number that means
    nothing, on another scale."""
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(10, 16)) + (0 if solved else 8)
    goal = rng.uniform(0.9, 1.1) if solved else rng.uniform(0.1, 0.5)
    x = np.minimum(np.linspace(0.0, 1.1, steps + 1), goal)
    if solved:
        x[-1] = goal
    seen = np.stack([x, rng.normal(0.0, 50.0, steps + 1)], 1).astype(np.float32)
    return Episode(
        {"proprio": seen[:-1]}, np.zeros((steps, 1), np.float32), np.zeros(steps, np.float32), solved, solved,
        not solved, TASK, final={"proprio": seen[-1]} if final else {},
    )  # fmt: skip


def compared(path: Path, pairs: int = 60, clip: int = 0, seed: int = 0) -> Dataset:
    """Sixteen episodes, half of them solved, and preferences by their outcome."""
    with EpisodeWriter(path, VECTORS, failures=True) as writer:
        writer.write_all(episode(i % 2 == 0, 100 * seed + i) for i in range(16))
    dataset = Dataset.open(path)
    drawn = draw_pairs(dataset, pairs, clip, seed)
    write_preferences(dataset, [Preference(a, b, better_by_outcome(dataset, a, b)) for a, b in drawn])
    return dataset


def through(trainer: PreferenceRewardTrainer, to: int | None = None) -> PreferenceRewardTrainer:
    for i in range(trainer.done, trainer.iterations if to is None else to):
        trainer.iterate(i)
    return trainer


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return compared(tmp_path_factory.mktemp("preferences") / "data")


@pytest.fixture(scope="module")
def begun(dataset: Dataset) -> PreferenceRewardTrainer:
    return PreferenceRewardTrainer(SMALL, [dataset])


@pytest.fixture(scope="module")
def trained(dataset: Dataset) -> PreferenceRewardTrainer:
    trainer = through(PreferenceRewardTrainer(SMALL, [dataset]))
    trainer.fit()
    return trainer


def test_the_loss_by_hand() -> None:
    """Means of ½ and −½ with β = 2 are log-odds of 2 for the left clip, maxima of ¼ and ¾ −1."""
    value = torch.tensor([[[[1.0, 0.25], [0.0, -0.9]], [[-0.5, 0.75], [-0.5, 0.0]]]])

    def log_odds(x: float, label: float) -> float:
        return label * math.log(1 + math.exp(-x)) + (1 - label) * math.log(1 + math.exp(x))

    for label in (1.0, 0.0, 0.5):
        for ends in (1.0, 0.0):
            expected = log_odds(2.0, label) + ends * log_odds(-1.0, label)
            found = preference_log_loss(value, torch.tensor([label]), torch.tensor([ends]), 2.0)
            assert float(found) == pytest.approx(expected)


def test_the_threshold_by_hand() -> None:
    better, worse = np.array([0.9, 0.8, 0.7]), np.array([0.2, 0.3, 0.75])
    assert fit_done(better, worse) == pytest.approx((0.3 + 0.7) / 2), "three right, one wrong; above 0.75 two, none"
    assert fit_done(better, np.array([0.2, 0.3, 0.65])) == pytest.approx((0.65 + 0.7) / 2)
    assert fit_done(np.array([0.9, 0.4]), np.array([0.2, 0.6])) == pytest.approx(0.75), "of 0.2 to 0.4 and 0.6 to 0.9"
    assert fit_done(np.array([0.1]), np.array([0.9])) == NEVER
    assert fit_done(np.array([0.4]), np.array([0.4])) == NEVER


def test_the_rows_of_clips_by_hand(tmp_path: Path) -> None:
    paths = []
    for name, final in (("a", True), ("b", False)):
        with EpisodeWriter(tmp_path / name, VECTORS, failures=True) as writer:
            for steps in (4, 3):
                for _ in range(steps):
                    writer.add({"proprio": np.zeros(2, np.float32)}, np.zeros(1, np.float32))
                writer.end(success=True, terminated=True, task=TASK,
                           final={"proprio": np.zeros(2, np.float32)} if final else None)  # fmt: skip
        paths.append(Dataset.open(tmp_path / name))
    write_preferences(paths[0], [Preference(EpisodeClip(1, 0, 3), EpisodeClip(0, 1, 3), "right")])
    write_preferences(paths[1], [Preference(EpisodeClip(0, 0, 4), EpisodeClip(1, 1, 3), "left")])
    rows = ClipRows.of(paths)
    # Frames: 0 to 4 and 5 to 8 of the first set with their final ones, 9 to 12 and 13 to 15 of the second.
    assert rows.label.tolist() == [0.0, 1.0] and rows.ends.tolist() == [False, True]
    assert rows.whole(0, 0).tolist() == [6, 7, 8] and rows.whole(0, 1).tolist() == [2, 3]
    assert rows.whole(1, 0).tolist() == [10, 11, 12, 12], "no frame after the last step: the last one stands for it"
    assert rows.whole(1, 1).tolist() == [15, 15]
    drawn = rows.drawn(np.array([1, 0]), np.zeros((2, 2, 2)))
    assert drawn.tolist() == [[[10, 12], [15, 15]], [[6, 7], [2, 3]]]
    late = rows.drawn(np.array([0]), np.full((1, 2, 4), 0.999))
    assert late.tolist() == [[[6, 7, 8, 8], [2, 2, 3, 3]]], "never beyond the clip"


@pytest.mark.long
def test_it_calls_new_ends_done_and_no_failure(trained: PreferenceRewardTrainer, tmp_path: Path) -> None:
    right, decided = trained.summary()["agreement"]
    assert decided >= 4 and right == decided
    assert trained.counted()["preferences"]["decided"] + trained.counted()["preferences"]["same"] == 60
    trained.export(tmp_path / "policy")
    loaded = load_critic(tmp_path)
    assert isinstance(loaded, PreferenceReward) and loaded.threshold == trained.critic.threshold < NEVER
    assert (loaded.sees_images, loaded.needs_prompt, loaded.is_privileged) == (False, False, False)
    new = [episode(i % 2 == 0, 7000 + i, final=i < 12) for i in range(16)]
    scores = loaded.score([window_of(e) for e in new], [TASK] * 16)
    assert [bool(s.done.any()) for s in scores] == [e.success for e in new]
    for e, score in zip(new, scores, strict=True):
        assert score.progress.shape == (len(e),) and score.progress.min() >= 0.0 and score.progress.max() < 1.0
        if e.success:
            assert int(np.flatnonzero(score.done)[0]) >= 0.4 * len(e)
            assert score.progress[-1] > score.progress[0] + 0.3, "it rises on the way"
    model = make_reward(str(tmp_path), VECTORS)
    assert model is not None and "encoder" not in "".join(loaded.state_dict()), "no encoder without a camera"


def test_the_same_numbers_in_another_order_are_refused(trained: PreferenceRewardTrainer, tmp_path: Path) -> None:
    trained.export(tmp_path / "policy")
    for names, said in ((("noise", "way"), "the same numbers in another order"), (("way", "slip"), "slip unknown")):
        other = replace(VECTORS, observation={"proprio": ArraySpec((2,), names=names)})
        with pytest.raises(BadInput, match=said):
            make_reward(str(tmp_path), other)


def test_the_worst_member_is_read(begun: PreferenceRewardTrainer) -> None:
    model, vectors = begun.critic.eval(), torch.tensor([[0.2, 10.0], [0.6, 0.0], [1.0, -60.0]])
    values = model.values(torch.zeros(3, 0), vectors).detach().numpy()
    assert values.shape == (3, 3, 2) and np.ptp(values, axis=0).max() > 1e-4, "they differ"
    progress, done = model.judged(torch.zeros(3, 0), vectors)
    assert np.allclose(np.stack([progress, done], 1), 0.5 * (1.0 + values.min(0)))


def test_vectors_are_standardised(begun: PreferenceRewardTrainer, dataset: Dataset) -> None:
    every = np.concatenate([dataset.episode(e).seen["proprio"] for e in range(dataset.episodes)])
    assert np.allclose(begun.critic.centre, every.mean(0), rtol=1e-4, atol=1e-4)
    assert np.allclose(begun.critic.scale, every.std(0, ddof=1), rtol=1e-4)


def test_pairs_kept_from_training_are_not_drawn(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, seen = PreferenceRewardTrainer(replace(SMALL, holdout=0.5, members=1), [dataset]), set[int]()
    drawn = ClipRows.drawn
    monkeypatch.setattr(
        ClipRows, "drawn", lambda self, pairs, place: seen.update(pairs.tolist()) or drawn(self, pairs, place)
    )
    through(trainer, 1)
    assert len(trainer.kept) == 30 and seen.isdisjoint(trainer.kept.tolist()) and len(seen) == 30


@pytest.mark.long
def test_a_resumed_run_goes_on_bit_for_bit(dataset: Dataset, trained: PreferenceRewardTrainer) -> None:
    half = through(PreferenceRewardTrainer(SMALL, [dataset]), 2)
    tensors, meta = half.state()
    again = PreferenceRewardTrainer(SMALL, [dataset])
    again.load_state(tensors, json.loads(json.dumps(meta)))
    through(again)
    for a, b in zip(again.critic.members.parameters(), trained.critic.members.parameters(), strict=True):
        assert torch.equal(a, b)


def test_clips_that_stop_before_the_end_end_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Clips of five steps seldom show how the task looks when it is done."""
    dataset = compared(tmp_path / "data", 40, 5)
    assert ClipRows.of([dataset]).ends.sum() < 5
    trainer = PreferenceRewardTrainer(SMALL, [dataset])
    with caplog.at_level(logging.WARNING):
        trainer.fit()
    assert "nothing is called done" in caplog.text and trainer.critic.threshold == NEVER
    with torch.no_grad():
        for member in trainer.critic.members:
            list(member.parameters())[-1].fill_(100.0)  # the last bias: as sure as can be
    (score,) = trainer.critic.score([window_of(episode(True, 0))], [TASK])
    assert not score.done.any() and np.isfinite(score.confidence).all()


@pytest.mark.long
def test_pictures_beside_vectors(tmp_path: Path) -> None:
    path = write(tmp_path / "data", 8, 8)
    dataset = Dataset.open(path)
    drawn = draw_pairs(dataset, 80, 0, 0)
    write_preferences(dataset, [Preference(a, b, better_by_outcome(dataset, a, b)) for a, b in drawn])
    config = replace(SMALL, picture=48, views=2, channels=8, steps=100)
    trainer = through(PreferenceRewardTrainer(config, [dataset]))
    trainer.export(tmp_path / "policy")
    loaded = load_critic(tmp_path)
    assert loaded.reads == ("images.front",) and loaded.sees_images
    test = Dataset.open(write(tmp_path / "test", 6, 6, seed=50))
    episodes = [test.episode(e) for e in range(test.episodes)]
    scores = loaded.score([window_of(e) for e in episodes], [TASK] * len(episodes))
    assert [bool(s.done.any()) for s in scores] == [e.success for e in episodes]


@pytest.mark.long
def test_the_command_trains_scores_and_refuses(dataset: Dataset, tmp_path: Path, capsys, monkeypatch) -> None:
    words = ["reward", "train", "--kind", "preference", "--data", str(dataset.path), "--out", str(tmp_path / "run")]
    small = ["--steps", "100", "--batch", "32", "--width", "32", "--frames", "8"]
    assert main([*words, *small, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["reads"] == ["proprio"] and result["cameras"] == []
    assert sum(result["preferences"].values()) == 60 and result["preferences"]["decided"] >= 30
    assert result["agreement"]["rate"] == 1.0 and 0.0 < result["threshold"] < 1.0
    assert main([*words, *small]) == 2
    capsys.readouterr()
    assert main(["reward", "score", "--reward", str(tmp_path / "run"), "--data", str(dataset.path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["scores"]
    assert [row["done"] for row in rows] == [row["success"] for row in rows]

    def refused(*more: str) -> str:
        assert main([*words[:-1], str(tmp_path / "none"), *more]) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1 and not (tmp_path / "none").exists()
        return line

    assert "no 'objects'" in refused("--observe", "objects")
    assert "--kind critic" in refused("--reference", f"{dataset.path}:0")
    assert "--scale" in refused("--scale", "0")
    bare = tmp_path / "bare"
    with EpisodeWriter(bare, VECTORS, failures=True) as writer:
        writer.write_all(replace(episode(True, i), task=f"task {i}") for i in range(2))
    assert "no preferences" in refused("--data", str(bare))
    write_preferences(
        Dataset.open(bare), [Preference(EpisodeClip(0, 0, 4), EpisodeClip(1, 0, 4), "left")]
    )  # fmt: skip
    assert "2 tasks" in refused("--data", str(bare))
