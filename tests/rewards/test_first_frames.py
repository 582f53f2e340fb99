"""A camera that stands elsewhere is noticed by the first frames, with numbers; others and older critics are not."""

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
from robolearn.core import Episode, Window
from robolearn.data import Dataset
from robolearn.data.writing.writer import EpisodeWriter
from robolearn.rewards.critic import ProgressCritic, load_critic, save_critic
from robolearn.rewards.first_frames import FirstFrames, warn_if_strange
from robolearn.rewards.metrics import window_of
from robolearn.rewards.settings import CriticConfig
from robolearn.rewards.training import CriticTrainer

sys.path.insert(0, str(Path(__file__).parent))
from controls import PICTURES, Truth, episode, write

SMALL = CriticConfig(steps=1, batch=16, width=8, channels=2, picture=48, views=1, members=1)


def embed(sentences: Sequence[str]) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(len(sentences), 384)).astype(np.float32) / 20


def test_distances_by_hand() -> None:
    """Two cameras of one cell and one channel: 1 and 3 deviate by 1 from 2, 0 and 8 by 4 from 4."""
    made = FirstFrames((2, 1, 1, 1))
    maps = torch.tensor([[1.0, 0.0], [3.0, 8.0]]).reshape(2, 2, 1, 1, 1)
    made.fit(maps, torch.tensor([[4.0, 6.0], [2.5, 10.0]]).reshape(2, 2, 1, 1, 1))
    assert made.mean.flatten().tolist() == [2.0, 4.0] and made.spread.tolist() == [1.0, 4.0]
    assert made.most.tolist() == [2.0, 1.5]
    shown = torch.tensor([[5.5, 4.0], [5.0, 4.0], [9.0, 99.0]]).reshape(3, 2, 1, 1, 1)  # medians: 3.5 and 0
    (sentence,) = made.far(shown, ["front", "wrist"])
    assert sentence.startswith("front: first frames deviate 3.5 times") and "more than 2.0 times" in sentence
    assert made.far(shown - 1.2, ["front", "wrist"]) == [], "2.3 is within 1.2 times 2"


def moved(one: Episode) -> Episode:
    """The same by a camera that hangs upside down in other light."""
    pictures = 255 - one.observation["images.front"][:, ::-1]
    return replace(one, observation={"images.front": np.ascontiguousarray(pictures)})


def test_one_line_says_all_of_a_set_and_nothing_is_read_for_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Looking(Truth):
        def strange(self, windows: Sequence[Window]) -> list[str]:
            return ["front: elsewhere", "wrist: elsewhere"] if len(windows) == 2 else []

    windows = [window_of(episode(True, seed)) for seed in range(3)]
    for shown in ([], windows, windows[:2]):
        warn_if_strange(Looking(), shown, "data/x")
    assert caplog.messages == ["data/x: front: elsewhere; wrist: elsewhere"]
    warn_if_strange(Truth(), (pytest.fail("read") for _ in range(1)), "data/x")


@pytest.mark.long
def test_a_moved_camera_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = Dataset.open(write(tmp_path / "data", successes=8, failures=8))
    critic = CriticTrainer(SMALL, [data], embed=embed).critic
    folder = save_critic(critic, tmp_path / "critic")
    again = load_critic(folder)
    assert isinstance(again, ProgressCritic) and again.firsts is not None and critic.firsts is not None
    assert torch.equal(again.firsts.mean, critic.firsts.mean)
    other = write(tmp_path / "other", successes=4, failures=4, seed=50)
    assert again.strange([window_of(Dataset.open(other).episode(e)) for e in range(8)]) == []
    with EpisodeWriter(tmp_path / "moved", PICTURES, failures=True) as writer:
        writer.write_all(moved(episode(e % 2 == 0, 50 + e)) for e in range(6))
    score = ["reward", "score", "--critic", str(folder), "--json", "--data"]
    for path, count in ((tmp_path / "moved", 1), (other, 0)):
        caplog.clear()
        assert main([*score, str(path)]) == 0
        assert sum("is the camera where it was" in record.getMessage() for record in caplog.records) == count
    config = json.loads((folder / "config.json").read_text())
    assert config["first_frames"] is True
    whole = CriticTrainer(replace(SMALL, holdout=0.0), [data], embed=embed).critic
    older = load_critic(save_critic(whole, tmp_path / "older"))
    assert isinstance(older, ProgressCritic) and older.strange([window_of(moved(episode(True, 1)))]) == []
