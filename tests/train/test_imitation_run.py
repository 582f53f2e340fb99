"""Episodes on disk → training run that is interrupted → the same policy as without the interruption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from policies.registry import config_to_json
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import load_policy
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.runs import Run
from robolearn.runs.loop import run_loop
from robolearn.train.imitation import ImitationConfig, ImitationTrainer

INTERFACE = Interface({"proprio": ArraySpec((3,)), "objects": ArraySpec((2,))}, ArraySpec((2,)), control_hz=20.0)
CONFIG = ImitationConfig(
    policy=FlowConfig(kind="shortcut", network=NetworkConfig(width=32, depth=2)),
    steps=24,
    steps_per_iteration=3,
    batch=16,
    warmup=4,
    validation=0.2,
)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    rng = np.random.default_rng(0)
    with EpisodeWriter(tmp_path / "data", INTERFACE) as writer:
        for _ in range(6):
            for _ in range(9):
                seen = rng.standard_normal(5).astype(np.float32)
                writer.add({"proprio": seen[:3], "objects": seen[3:]}, 0.5 * np.tanh(seen[:2]))
            writer.end(success=True, terminated=True, task="toy")
    return Dataset.open(tmp_path / "data")


class Killed(Exception):
    pass


def train(dataset: Dataset, folder: Path, *, resume: bool = False, kill_at: int | None = None) -> None:
    trainer = ImitationTrainer.of_dataset(CONFIG, dataset)
    iterate = trainer.iterate

    def until_killed(i: int) -> dict[str, float]:
        if i == kill_at:
            raise Killed
        return iterate(i)

    trainer.iterate = until_killed  # type: ignore[method-assign]
    with Run.create(folder, config_to_json(CONFIG), resume=resume) as run:
        run_loop(run, trainer, checkpoint_every=2)


@pytest.mark.long
def test_an_interrupted_run_ends_with_the_same_policy(tmp_path, dataset):
    train(dataset, tmp_path / "whole")
    with pytest.raises(Killed):
        train(dataset, tmp_path / "killed", kill_at=5)
    train(dataset, tmp_path / "killed", resume=True)
    files = [(tmp_path / name / "policy" / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert files[0] == files[1]
    policy = load_policy(tmp_path / "killed")
    assert policy.interface == dataset.interface
    observation = {"proprio": np.zeros((4, 3), np.float32), "objects": np.zeros((4, 2), np.float32)}
    assert policy.act(observation).shape == (4, 4, 2)


def test_too_few_episodes(tmp_path):
    with EpisodeWriter(tmp_path / "data", INTERFACE) as writer:
        writer.add({"proprio": np.zeros(3), "objects": np.zeros(2)}, np.zeros(2))
        writer.end(success=True, terminated=True, task="toy")
    with pytest.raises(BadInput, match="got 1 episodes, expected at least 2"):
        ImitationTrainer.of_dataset(CONFIG, Dataset.open(tmp_path / "data"))
