"""The hand's say in *done*: where pictures show two ends alike, the arm's own state parts them."""

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
from robolearn.core import ArraySpec, BadInput, Episode, Interface, Window
from robolearn.data import Dataset
from robolearn.data.writing.writer import EpisodeWriter
from robolearn.rewards.critic import ProgressCritic, load_critic, save_critic
from robolearn.rewards.metrics import window_of
from robolearn.rewards.settings import CriticConfig
from robolearn.rewards.training import CriticTrainer
from robolearn.rl.model_reward import check_seen

sys.path.insert(0, str(Path(__file__).parent))
from controls import PICTURES, TASK, episode

NAMES = ("joint", "gripper_width", "tcp_x", "tcp_y", "tcp_z")
SEEN = Interface(
    {**PICTURES.observation, "proprio": ArraySpec((5,), names=NAMES)}, ArraySpec((1,)), 20.0
)  # fmt: skip
SMALL = CriticConfig(steps=120, steps_per_iteration=20, batch=64, width=16, channels=4, picture=48, views=1, members=2)
RAISED, NEARLY = 0.06, 0.03  # of the hand at the end [m]; a camera shows both alike


def embed(sentences: Sequence[str]) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(len(sentences), 384)).astype(np.float32) / 20


def ended(at: float, success: bool, seed: int) -> Episode:
    """A square that is pushed all the way, by a hand that rises to `at`; pictures are those of a success."""
    shown = episode(True, seed)
    steps = len(shown.reward)
    rng = np.random.default_rng(seed)
    state = np.zeros((steps, 5), np.float32)
    state[:, 0], state[:, 1], state[:, 2] = rng.normal(size=steps), 0.04, rng.uniform(0.3, 0.5)
    state[:, 4] = np.linspace(0.0, at, steps)
    return replace(
        shown, observation=shown.observation | {"proprio": state}, success=success, terminated=success,
        truncated=not success, failure="" if success else "nearly",
    )  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hand") / "data"
    with EpisodeWriter(path, SEEN, failures=True) as writer:
        writer.write_all(ended(RAISED, True, i) for i in range(8))
        writer.write_all(ended(NEARLY, False, 1000 + i) for i in range(8))
    return path


def trained(config: CriticConfig, data: Path) -> CriticTrainer:
    trainer = CriticTrainer(config, [Dataset.open(data)], embed=embed, pretrained=False)
    for i in range(trainer.iterations):
        trainer.iterate(i)
    return trainer


@pytest.fixture(scope="module")
def begun(data: Path) -> ProgressCritic:
    """It reads the hand, and has learned little."""
    return trained(replace(SMALL, steps=2, steps_per_iteration=2), data).critic


@pytest.fixture(scope="module")
def critic(data: Path) -> ProgressCritic:
    return trained(SMALL, data).critic


def called(critic: ProgressCritic, at: float, seeds: range) -> int:
    windows = [window_of(ended(at, True, seed)) for seed in seeds]
    return sum(bool(score.done.any()) for score in critic.score(windows, [TASK] * len(windows)))


@pytest.mark.long
def test_ends_that_look_alike_are_told_apart(data: Path, critic: ProgressCritic) -> None:
    assert called(critic, NEARLY, range(7000, 7010)) == 0
    assert called(critic, RAISED, range(7000, 7010)) >= 8
    blind = trained(replace(SMALL, hand=False), data).critic
    assert blind.state == () and blind.reads == ("images.front",)
    same = [called(blind, at, range(7000, 7010)) for at in (NEARLY, RAISED)]
    assert same[0] == same[1], "the pictures are the same"


def test_both_have_to_say_done(begun: ProgressCritic) -> None:
    window = window_of(ended(RAISED, True, 7000))
    before = begun.score([window], [TASK])[0]
    bias = [member.hand.done[-1].bias for member in begun.members]
    kept = [value.detach().clone() for value in bias]
    try:
        with torch.no_grad():
            bias[1].fill_(-1000.0)
        assert not begun.score([window], [TASK])[0].done.any(), "one member's hand is enough to deny it"
        with torch.no_grad():
            for value in bias:
                value.fill_(1000.0)
        seen = begun.score([window], [TASK])[0]
    finally:
        with torch.no_grad():
            for value, old in zip(bias, kept, strict=True):
                value.copy_(old)
    np.testing.assert_array_equal(seen.progress, before.progress)
    maps = begun.encoder.encode(begun.seen(window))
    _, by_pictures = begun.judged(maps, begun.words([TASK]))
    np.testing.assert_array_equal(seen.done, by_pictures >= 0.5)


def test_the_columns_are_found_by_their_names(begun: ProgressCritic) -> None:
    state = np.arange(10, dtype=np.float32).reshape(2, 5)
    hand = begun.hand({"proprio": state})
    assert hand is not None
    np.testing.assert_array_equal(hand.numpy(), state[:, [1, 2, 3, 4]])
    for member in begun.members:
        assert float(member.hand.centre[0]) == pytest.approx(0.04) and float(member.hand.scale[0]) == pytest.approx(
            1e-3
        )


def test_a_checkpoint_keeps_the_hand_and_an_older_one_has_none(begun: ProgressCritic, tmp_path: Path) -> None:
    folder = save_critic(begun, tmp_path / "critic")
    window = window_of(ended(RAISED, True, 7000))
    again = load_critic(folder)
    np.testing.assert_array_equal(
        again.score([window], [TASK])[0].confidence, begun.score([window], [TASK])[0].confidence
    )
    assert json.loads((folder / "config.json").read_text())["state"] == list(NAMES)
    without = ProgressCritic(replace(SMALL, hand=False), begun.pictures, begun.sentences, begun.vectors)
    older = save_critic(without, tmp_path / "older")
    config = json.loads((older / "config.json").read_text())
    del config["state"], config["settings"]["hand"]
    (older / "config.json").write_text(json.dumps(config))
    assert load_critic(older).state == ()


def test_another_state_is_refused_before_anything_is_scored(begun: ProgressCritic) -> None:
    begun.check(SEEN)
    turned = ArraySpec((5,), names=(*NAMES[:3], "tcp_z", "tcp_y"))
    for spec, got in ((turned, "tcp_z, tcp_y"), (ArraySpec((5,)), "no names")):
        with pytest.raises(BadInput, match=f"proprio: got .*{got}, expected joint, gripper_width"):
            begun.check(replace(SEEN, observation=SEEN.observation | {"proprio": spec}))
    with pytest.raises(BadInput, match="proprio"):
        begun.check(PICTURES)
    window = window_of(ended(RAISED, True, 7000))
    for state in ({}, {"proprio": np.zeros((len(window), 4), np.float32)}):
        pictures = {"images.front": window.observation["images.front"]}
        with pytest.raises(BadInput, match="critic: proprio: got"):
            begun.score([Window(pictures | state, window.action)], [TASK])
    with pytest.raises(BadInput, match="a policy that does not see proprio, expected what the model reads"):
        check_seen(begun, ["images.front"])


@pytest.mark.long
def test_sets_without_a_hand_go_without_and_it_is_said(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EpisodeWriter(tmp_path / "plain", PICTURES, failures=True) as writer:
        writer.write_all([episode(True, 1), episode(True, 2), episode(False, 3, "frozen")])
    small = ["--steps", "2", "--batch", "16", "--width", "8", "--channels", "2", "--picture", "48", "--views", "1"]
    assert main(["reward", "train", "--data", str(tmp_path / "plain"), "--out", str(tmp_path / "a"), *small]) == 0
    assert "no gripper_width, tcp_x, tcp_y, tcp_z in their proprio" in " ".join(capsys.readouterr().out.split())
    assert main(["reward", "train", "--data", str(data), "--out", str(tmp_path / "b"), *small, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["reads"] == ["images.front", "proprio"]
