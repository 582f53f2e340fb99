"""Imitation from images, and by sampling weights."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml

from policies.networks.encoder_settings import EncoderConfig
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import load_policy
from policies.storage.loading import check_policy
from robolearn.cli.train import Train
from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.reading.loading import write_weights
from robolearn.train.imitation import ImitationConfig, ImitationTrainer

INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((64, 64, 3), "uint8")}, ArraySpec((2,)), 20.0
)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Two episodes; what is to be done stands in the image alone."""
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    with EpisodeWriter(tmp_path / "set", INTERFACE) as writer:
        for e in range(2):
            images = np.zeros((12, 64, 64, 3), np.uint8)
            images[:, :, 32 * e : 32 * e + 32] = 200
            action = np.full((12, 2), 2.0 * e - 1.0, np.float32)
            zeros = np.zeros((12, 2), np.float32)
            episode = Episode({"proprio": zeros, "images.front": images}, action, zeros[:, 0], True, True, False, "go")
            writer.write(episode)
    return tmp_path / "set"


@pytest.mark.long
@pytest.mark.parametrize(
    "encoder",
    [{}, {"random_shift": 2, "colour_jitter": 0.1}, {"kind": "efficientnet_lite0", "freeze": True}],
    ids=["cnn", "augmented", "frozen"],
)
def test_a_policy_learns_from_the_image(root, encoder):
    flow = FlowConfig(horizon=2, execute=2, network=NetworkConfig(encoder=EncoderConfig(**encoder)))
    steps = 240 if flow.network.encoder.freeze else 60  # with features that are kept, they cost little
    config = ImitationConfig(flow, steps=steps, steps_per_iteration=20, batch=8, warmup=1)
    dataset = Dataset.open(root)
    trainer = ImitationTrainer.of_dataset(config, dataset)
    losses = [trainer.iterate(i)["loss"] for i in range(config.iterations)]
    assert losses[-1] < 0.7 * losses[0]
    policy = trainer.policy()
    policy.reset(0)
    seen = {"proprio": np.zeros((2, 2), np.float32), "images.front": dataset.images("front")[[0, 12]]}
    with torch.no_grad():
        chosen = policy.act(seen)[:, 0, 0]
    assert chosen[0] < -0.3 and chosen[1] > 0.3


def test_the_command_takes_images_and_weights(root, tmp_path):
    small = {"data": (str(root),), "settings": ImitationConfig(steps=2, batch=4), "json": True}
    with pytest.raises(BadInput, match="no sampling weights"):
        Train(out=tmp_path / "a", weights=True, **small).run()
    write_weights(root, [0.0, 1.0], 2, "a test")
    assert Train(out=tmp_path / "b", weights=True, **small).run()["frames"] == 24
    assert Train(out=tmp_path / "c", images=False, **small).run()["frames"] == 24
    assert '"images.front"' not in (tmp_path / "c/config.json").read_text()


def test_a_batch_is_smaller_by_default_where_pictures_are_seen(root, tmp_path):
    """The run's configuration and its flags have the number; one that is given stays."""
    small = {"data": (str(root),), "json": True}
    for name, images, given, batch in (("a", True, None, 64), ("b", False, None, 256), ("c", True, 8, 8)):
        Train(out=tmp_path / name, images=images, settings=ImitationConfig(steps=1, batch=given), **small).run()
        assert json.loads((tmp_path / name / "config.json").read_text())["imitation"]["batch"] == batch
        assert yaml.safe_load((tmp_path / name / "flags.yaml").read_text())["batch"] == batch
    few = ImitationConfig(steps=1, accumulate=65)
    with pytest.raises(BadInput, match="--accumulate: got 65, expected at most the 64 windows of a batch"):
        Train(out=tmp_path / "d", settings=few, **small).run()
    assert not (tmp_path / "d").exists()


def test_what_the_policy_sees_is_chosen_and_stored(tmp_path, monkeypatch):
    """A set with pictures and the simulator's truth: the truth is left out unless somebody asks for it by name."""
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    interface = replace(INTERFACE, observation={**INTERFACE.observation, "objects": ArraySpec((1,))})
    with EpisodeWriter(tmp_path / "set", interface) as writer:
        zeros = np.zeros((8, 2), np.float32)
        seen = {"proprio": zeros, "objects": zeros[:, :1], "images.front": np.zeros((8, 64, 64, 3), np.uint8)}
        writer.write(Episode(seen, zeros, zeros[:, 0], True, True, False, "go"))
    small = {"data": (str(tmp_path / "set"),), "settings": ImitationConfig(steps=2, batch=4), "json": True}
    for name, observe, sees, privileged in (
        ("usual", (), {"proprio", "images.front"}, []),
        ("truth", ("proprio", "objects"), {"proprio", "objects"}, ["objects"]),
        ("camera", ("images",), {"images.front"}, []),
    ):
        result = Train(out=tmp_path / name, observe=observe, **small).run()
        assert set(result["observes"]) == sees and result["privileged"] == privileged
        stored = json.loads((tmp_path / name / "policy/config.json").read_text())["interface"]["observation"]
        assert set(stored) == sees
        assert [key for key, spec in stored.items() if spec.get("privileged")] == privileged
        assert set(load_policy(tmp_path / name).interface.observation) == sees
    assert Dataset.open(tmp_path / "set").seeing(("proprio",)).cameras == []  # whose frames nobody decodes
    with pytest.raises(
        BadInput, match=r"observation of data set .*: got no 'images.wrist'.*available: proprio, images.front, obj"
    ):
        Train(out=tmp_path / "x", observe=("images.wrist",), **small).run()
    offered = Interface(interface.observation, ArraySpec((2,)), 20.0)
    check_policy(tmp_path / "truth", offered, what="policy")
    with pytest.raises(
        BadInput, match=r"got objects, the simulator's own truth, beside proprio, expected what a real arm"
    ):
        check_policy(tmp_path / "truth", offered, what="policy", simulated=False)
    check_policy(tmp_path / "usual", offered, what="policy", simulated=False)


def test_weights_choose_the_windows(root):
    config = ImitationConfig(FlowConfig(horizon=2, execute=2), steps=1, batch=8)
    trainer = ImitationTrainer.of_dataset(config, Dataset.open(root), weights=[0.0, 1.0])
    drawn = trainer.windows.gather(trainer.windows.order(0, 0))
    assert (drawn.action == 1.0).all()
