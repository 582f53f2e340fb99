"""Imitation makes every tensor where it is told to, never on torch's default device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from policies.settings import ActConfig, DiffusionConfig, FlowConfig, NetworkConfig, PolicyConfig, RegressionConfig
from policies.storage.checkpoint import load_policy
from robolearn.core import ArraySpec, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.train.imitation import ImitationConfig, ImitationTrainer

pytestmark = pytest.mark.long

INTERFACE = Interface({"proprio": ArraySpec((3,)), "objects": ArraySpec((2,))}, ArraySpec((2,)), control_hz=20.0)
SMALL = NetworkConfig(width=16, depth=2)
CONFIGS: dict[str, PolicyConfig] = {
    "rectified": FlowConfig(network=SMALL),
    "beta": FlowConfig(network=SMALL, time_sampling="beta"),
    "logit-normal": FlowConfig(network=SMALL, time_sampling="logit_normal", mask_padding=False),
    "shortcut": FlowConfig(kind="shortcut", network=SMALL),
    "diffusion": DiffusionConfig(network=SMALL, steps=3),
    "history": FlowConfig(network=SMALL, observe=3),
    "regression": RegressionConfig(network=SMALL),
    "act": ActConfig(network=NetworkConfig("transformer", width=16, depth=1, heads=2, image_features=4)),
    "velocity": DiffusionConfig(network=SMALL, steps=3, prediction="v_prediction"),
}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    with EpisodeWriter(tmp_path / "data", INTERFACE) as writer:
        for _ in range(4):
            for _ in range(9):
                writer.add({"proprio": np.zeros(3), "objects": np.zeros(2)}, np.zeros(2))
            writer.end(success=True, terminated=True, task="toy")
    return Dataset.open(tmp_path / "data")


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("weights", [None, [1.0, 0.5, 0.0, 2.0]], ids=["plain", "weighted"])
def test_a_trainer_learns_where_it_is_told_to(dataset: Dataset, tmp_path: Path, name: str, weights, request) -> None:
    config = ImitationConfig(policy=CONFIGS[name], steps=4, steps_per_iteration=2, batch=8, validation=0.25)
    usual = ImitationTrainer.of_dataset(config, dataset, "cpu", weights=weights).iterate(0)
    request.getfixturevalue("no_default_device")
    trainer, again = (ImitationTrainer.of_dataset(config, dataset, "cpu", weights=weights) for _ in range(2))
    assert trainer.iterate(0) == usual  # the same numbers as with the CPU for a default
    again.load_state(*trainer.state())
    assert again.iterate(1)["validation_loss"] == trainer.iterate(1)["validation_loss"]
    trainer.export(tmp_path / "policy")
    seen = {"proprio": np.zeros((4, 3), np.float32), "objects": np.zeros((4, 2), np.float32)}
    assert np.isfinite(load_policy(tmp_path / "policy", "cpu").act(seen)).all()
