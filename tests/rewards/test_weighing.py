"""Stored progress as weights of imitation, and as the rewards of offline RL."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Episode, Interface, Score
from robolearn.data import Dataset, EpisodeWriter, Windows
from robolearn.data.mixture import drawn_statistics
from robolearn.data.replay.recorded import recorded
from robolearn.rewards.stored import gains, progress_weights, relabelled, stored_scores, write_scores


def test_gains_by_hand() -> None:
    progress = np.array([0.1, 0.4, 0.3, 1.0], np.float32)  # after each step
    assert gains(progress, 1).tolist() == pytest.approx([0.1, 0.3, -0.1, 0.7])
    assert gains(progress, 2).tolist() == pytest.approx([0.4, 0.2, 0.6, 0.7]), "to the last step at most"
    assert gains(progress, 9).tolist() == pytest.approx([1.0, 0.9, 0.6, 0.7])


def test_weights_by_hand() -> None:
    """Gains 0.5, 0.005, 0, −0.2 and 0.095: mean 0.08, deviation 0.2326…"""
    progress = [np.array([0.5, 0.505, 0.505, 0.305], np.float32), np.array([0.095], np.float32)]
    r = np.array([0.5, 0.005, 0.0, -0.2, 0.095])
    low, width = 0.08 - 2 * r.std(), 4 * r.std()
    found = progress_weights(progress, 1)
    assert [len(one) for one in found] == [4, 1]
    assert np.concatenate(found) == pytest.approx([1, (0.005 - low) / width, (0 - low) / width, 0, 1], abs=1e-4)
    falling = progress_weights([np.array([0.0, -0.1, -0.2], np.float32)], 1)[0]
    assert falling.tolist() == pytest.approx([0.5, 0, 0], abs=1e-4), "the mean, −0.07, counts as none"
    assert progress_weights([np.array([-0.1, -0.3], np.float32)], 1)[0].tolist() == [0, 0], "what loses is not imitated"
    still = progress_weights([np.zeros(3, np.float32)], 2)[0]
    assert (still > 0).all() and len(set(still)) == 1, "a critic that says nothing weighs all alike"


def test_windows_are_drawn_by_the_weights_of_their_frames(tmp_path: Path) -> None:
    dataset = bare(tmp_path / "data")
    own = [np.zeros(int(n)) for n in dataset.lengths]
    own[0][3], own[1][5] = 1.0, 3.0
    windows = Windows(dataset, 1, 1, weights=own)
    drawn = torch.cat([windows.order(0, epoch) for epoch in range(100)])
    counts = torch.bincount(drawn, minlength=len(windows)) / len(drawn)
    second = int(dataset.starts[1]) + 5
    assert counts[3] + counts[second] == 1 and float(counts[second]) == pytest.approx(0.75, abs=0.03)
    shares = [float(one.sum()) / 4 for one in own]
    mean = sum(share * dataset.statistics([e])["action"]["mean"] for e, share in enumerate(shares))
    stats = drawn_statistics([dataset], [[0, 1]], [1.0], [own])
    assert stats["action"]["mean"] == pytest.approx(mean)
    with pytest.raises(BadInput, match="weights"):
        Windows(dataset, 1, 1, weights=[np.zeros(int(n)) for n in dataset.lengths])


INTERFACE = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), 20.0)


def bare(path: Path) -> Dataset:
    """A success and a failure, without scores."""
    rng = np.random.default_rng(0)
    with EpisodeWriter(path, INTERFACE, failures=True) as writer:
        for n, success in ((16, True), (24, False)):
            seen, action = rng.random((n, 3), np.float32), rng.random((n, 2), np.float32)
            writer.write_all([
                Episode({"proprio": seen}, action, np.zeros(n, np.float32), success, success, not success, "push")
            ])  # fmt: skip
    return Dataset.open(path)


def scored(path: Path, by: str, episodes: int | None = None) -> Dataset:
    """The same with stored scores: the success is done at its end, the failure comes to 0.3."""
    dataset = bare(path)
    scores = {}
    for e in range(dataset.episodes if episodes is None else episodes):
        n = int(dataset.lengths[e])
        progress = np.linspace(0.0, 1.0 - 0.7 * e, n, dtype=np.float32)
        done = np.arange(n) == (n - 1 if e == 0 else n)
        scores[e] = Score(progress, progress, done, np.ones(n, np.float32))
    write_scores(dataset, scores, by)
    return dataset


def test_scores_that_are_missing_or_of_other_models_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole, other = scored(tmp_path / "a", "one"), scored(tmp_path / "b", "two")
    assert stored_scores([whole])[1] == ["one"] and not caplog.messages
    _, names = stored_scores([whole, other])
    assert names == ["one", "two"]
    assert caplog.messages == [
        f"the sets were scored by different reward models: {tmp_path / 'a'} by one, {tmp_path / 'b'} by two"
    ]
    half, none = scored(tmp_path / "c", "one", 1), bare(tmp_path / "d")
    with pytest.raises(BadInput, match=r"got scores of 1 of 2 episodes, .*robolearn reward score --reward … --data"):
        stored_scores([whole, half])
    with pytest.raises(BadInput, match="d: got no scores of its frames"):
        stored_scores([none])


def test_episodes_of_a_set_have_their_stored_rewards(tmp_path: Path) -> None:
    """r_t = [done first at t] + γ Φ_t − Φ_{t−1}, worked out here; the failure is only cut."""
    dataset, gamma = scored(tmp_path / "a", "one"), 0.9
    first, second = relabelled(recorded([dataset], scored=True), stored_scores([dataset])[0], gamma)
    progress = np.linspace(0, 1, len(first))
    expected = gamma * progress - np.concatenate([[0], progress[:-1]])
    expected[-1] = 1 - progress[-2]  # no potential after the end
    assert first.reward == pytest.approx(expected, abs=1e-6) and first.success and first.terminated
    progress = np.linspace(0, 0.3, len(second))
    assert second.reward == pytest.approx(gamma * progress - np.concatenate([[0], progress[:-1]]), abs=1e-6)
    assert not second.success


@pytest.mark.long
def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(scored(tmp_path / "a", "one").path)
    other = str(bare(tmp_path / "b").path)
    train = ["train", "--steps", "4", "--batch", "4", "--observe", "proprio", "--device", "cpu", "--validation", "0"]
    out = str(tmp_path / "bc")
    assert main([*train, "--data", data, "--weigh", "progress", "--out", out]) == 0
    assert json.loads((tmp_path / "bc" / "config.json").read_text())["weigh"]["by"] == "progress"
    capsys.readouterr()
    assert main([*train, "--data", other, "--weigh", "progress", "--out", str(tmp_path / "no")]) == 2
    assert "robolearn reward score --reward … --data" in capsys.readouterr().err
    assert main([*train, "--data", data, "--weigh", "progress", "--weights", "--out", str(tmp_path / "no")]) == 2
    assert "progress beside --weights" in capsys.readouterr().err
    tune = ["finetune", "--policy", out, "--algo", "rlpd", "--updates", "3", "--batch", "4", "--critics", "2"]
    tune += ["--width", "16", "--eval-episodes", "0", "--reward", "stored"]
    assert main([*tune, "--data", data, "--env-steps", "0", "--out", str(tmp_path / "rl"), "--json"]) == 0
    stored = json.loads((tmp_path / "rl" / "config.json").read_text())
    assert len(stored["scores"]) == 1 and "reward_model" not in stored
    assert main([*tune, "--data", other, "--env-steps", "0", "--out", str(tmp_path / "no")]) == 2
    assert "got no scores of its frames" in capsys.readouterr().err
    assert main([*tune, "--data", data, "--env-steps", "900", "--out", str(tmp_path / "no")]) == 2
    assert "--reward: got stored with --env-steps 900, expected --env-steps 0" in capsys.readouterr().err
