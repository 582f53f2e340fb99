"""The success classifier: what is done by whom, balance, temperature by hand, exact resume, and the page that asks."""

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
from robolearn.data.writing.writer import EpisodeWriter
from robolearn.rewards.choice import CriticReward
from robolearn.rewards.classifier_training import ClassifierTrainer, best_temperature, kept_apart, labels_of
from robolearn.rewards.critic import load_critic, save_critic
from robolearn.rewards.labels import LABELS_PATH, read_labels, write_labels
from robolearn.rewards.metrics import window_of
from robolearn.rewards.settings import ClassifierConfig

sys.path.insert(0, str(Path(__file__).parent))
from controls import PICTURES, TASK, episode, film

SMALL = ClassifierConfig(steps=80, steps_per_iteration=20, batch=64, width=32, channels=8, picture=48, views=2)


def ended(success: bool, seed: int):
    """An episode with the frame after its last action: at the right edge where it is a success."""
    one = episode(success, seed, "" if success else "frozen")
    last = one.observation["images.front"][-1] if not success else film(np.array([1.0]), seed)[0]
    return replace(one, final={"images.front": last})


def written(path: Path, successes: int = 8, failures: int = 8) -> Dataset:
    with EpisodeWriter(path, PICTURES, failures=True) as writer:
        writer.write_all([ended(True, i) for i in range(successes)] + [ended(False, 1000 + i) for i in range(failures)])
    return Dataset.open(path)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(tmp_path_factory.mktemp("classifier") / "data")


def through(trainer: ClassifierTrainer, to: int | None = None) -> ClassifierTrainer:
    for i in range(trainer.done, trainer.iterations if to is None else to):
        trainer.iterate(i)
    return trainer


@pytest.fixture(scope="module")
def begun(dataset: Dataset) -> ClassifierTrainer:
    return ClassifierTrainer(SMALL, [dataset])


@pytest.fixture(scope="module")
def trained(dataset: Dataset) -> ClassifierTrainer:
    return through(ClassifierTrainer(SMALL, [dataset]))


@pytest.mark.long
def test_it_calls_ends_done_and_nothing_else(trained: ClassifierTrainer, tmp_path: Path) -> None:
    trained.export(tmp_path / "policy")
    loaded = load_critic(tmp_path)
    new = [ended(True, 7000 + i) for i in range(8)] + [ended(False, 8000 + i) for i in range(8)]
    scores = loaded.score([window_of(e) for e in new], [TASK] * 16)
    assert [bool(s.done.any()) for s in scores] == [True] * 8 + [False] * 8
    for e, score in zip(new[:8], scores[:8], strict=True):
        first = int(np.flatnonzero(score.done)[0])
        assert first >= 0.75 * len(e) and score.reward.tolist() == [float(t == first) for t in range(len(e))]
        assert np.allclose(score.progress, np.where(score.done, score.confidence, 1 - score.confidence))
    assert loaded.temperature == trained.critic.temperature
    config = CriticReward.of(str(tmp_path))
    assert config is not None and config.build(PICTURES) is not None
    found = trained.summary()
    assert found == {"precision": (2, 2), "recall": (2, 2), "false_positive_rate": (0, 2)}


@pytest.mark.long
def test_a_resumed_run_goes_on_bit_for_bit(dataset: Dataset, trained: ClassifierTrainer) -> None:
    half = through(ClassifierTrainer(SMALL, [dataset]), 3)
    tensors, meta = half.state()
    again = ClassifierTrainer(SMALL, [dataset])
    again.load_state(tensors, json.loads(json.dumps(meta)))
    through(again)
    for a, b in zip(again.critic.head.parameters(), trained.critic.head.parameters(), strict=True):
        assert torch.equal(a, b)


def test_half_of_a_batch_is_done_and_nothing_kept_apart_is_drawn(begun: ClassifierTrainer) -> None:
    rows = begun.draw(np.random.default_rng(0))
    label, solved = begun.label[rows], begun.success[begun.episode[rows]]
    assert (label == 1.0).sum() == 32 and (solved & (label == 0.0)).sum() == 16 and (~solved).sum() == 16
    assert begun.kept.sum() == 4 and not begun.kept[begun.episode[rows]].any()
    success = np.arange(20) < 8
    kept = kept_apart(success, ClassifierConfig(holdout=0.25))
    assert kept[success].sum() == 2 and kept[~success].sum() == 3
    assert kept_apart(np.array([True, True, False, False]), ClassifierConfig(holdout=0.01)).sum() == 2
    with pytest.raises(BadInput, match="got 1 failures"):
        kept_apart(np.array([True, True, False]), ClassifierConfig())


def test_the_temperature_by_hand() -> None:
    """Two answers of log-odds ±a, right three times in four, are as sure as they are right at a / T = log 3."""
    odds = np.array([4.0, 4.0, 4.0, -4.0, -4.0, -4.0, -4.0, 4.0])
    label = np.array([1, 1, 1, 1, 0, 0, 0, 0], np.float32)
    assert best_temperature(odds, label) == pytest.approx(4.0 / np.log(3.0), rel=0.02)
    assert best_temperature(np.repeat(odds, 2)[:12], label[[0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]]) > 1.0
    assert best_temperature(odds, np.ones(8, np.float32)) == 1.0


def test_a_person_s_label_counts_for_more_than_the_outcome(tmp_path: Path) -> None:
    dataset = written(tmp_path / "data", 2, 2)
    steps = dataset.lengths.tolist()
    settings = replace(SMALL, unsure=0.2)
    plain, which, success = labels_of(settings, [dataset])
    assert len(plain) == sum(steps) + 4 and success.tolist() == [True, True, False, False]
    first = plain[which == 0]
    assert first[-1] == 1.0 and np.isnan(first[-2]) and first[: int(0.8 * len(first))].max() == 0.0
    labels = {(0, steps[0] - 1): True, (0, steps[0]): False, (3, 4): True}
    assert write_labels(dataset, labels) == tmp_path / "data" / LABELS_PATH and read_labels(dataset) == labels
    found, _, _ = labels_of(settings, [dataset])
    assert found[which == 0][-2:].tolist() == [1.0, 0.0] and found[which == 3][4] == 1.0
    assert (np.nan_to_num(found, nan=-1) != np.nan_to_num(plain, nan=-1)).sum() == 3, "and nothing else has changed"
    path = tmp_path / "data" / LABELS_PATH
    path.write_text(path.read_text().replace(f'"length": {steps[3]}', f'"length": {steps[3] + 1}'))
    with pytest.raises(BadInput, match=f"frame 4 of episode 3, {steps[3] + 1} steps"):
        read_labels(dataset)
    assert Dataset.open(tmp_path / "data").episodes == 4, "readers of the format pass it over"


def test_files_that_are_none(begun: ClassifierTrainer, tmp_path: Path) -> None:
    folder = save_critic(begun.critic, tmp_path / "c")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"format": "something"}))
    with pytest.raises(BadInput, match=r"got something, version 1, expected robolearn\.critic or robolearn\.s"):
        load_critic(folder)


def command(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.mark.long
def test_the_command_line_trains_one(dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "run"
    small: Sequence[object] = ("--steps", 60, "--width", 16, "--channels", 4, "--picture", 48, "--views", 1)
    words = ("reward", "train", "--kind", "classifier", "--data", dataset.path)
    assert command(*words, "--out", out, *small, "--json") == 0
    result = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert result["recall"]["episodes"] == 2 and 0.05 <= result["temperature"] <= 20
    assert command("reward", "score", "--reward", out, "--data", dataset.path, "--json") == 0
    assert len(json.loads(capsys.readouterr().out.strip().splitlines()[-1])["scores"]) == 16
    assert command(*words, "--out", tmp_path / "x", "--holdout", 2) == 2
    assert "--holdout" in capsys.readouterr().err
