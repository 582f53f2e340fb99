"""Checkpoints: there and back, and one line for everything that can be wrong with them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy, WorldNoise
from policies.settings import DiffusionConfig, FlowConfig, NetworkConfig
from policies.storage.checkpoint import load_policy, save_policy
from policies.storage.loading import open_policy
from robolearn.core import ArraySpec, BadInput, Interface, NonFinite

SMALL = NetworkConfig(width=32, depth=2, channels=(8, 16))
INTERFACE = Interface(
    {"robot.state": ArraySpec((3,), names=("x", "y", "z"))},
    ArraySpec((2,)),
    control_hz=20.0,
    embodiment="panda",
    action_kind="tcp_delta",
)
STATISTICS = {
    "robot.state": {"mean": [1, 2, 3], "std": [0.1, 0.2, 0.3]},
    "action": {"min": [-0.1, 0.0], "max": [0.5, 1.0]},
}


def make(config=None) -> ChunkPolicy:
    config = FlowConfig(kind="shortcut", network=SMALL) if config is None else config
    return ChunkPolicy(config.build(INTERFACE), Normalizer.from_statistics(INTERFACE, STATISTICS), INTERFACE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_policy(make(), tmp_path / "run" / "policy")


@pytest.mark.parametrize(
    "config",
    [
        FlowConfig(network=SMALL),
        FlowConfig(network=NetworkConfig(kind="unet1d", channels=(8, 16)), horizon=6),
        DiffusionConfig(network=SMALL, steps=3, eta=1.0),
    ],
)
def test_there_and_back(tmp_path, config):
    policy = make(config)
    save_policy(policy, tmp_path / "p")
    save_policy(policy, tmp_path / "p")  # over itself
    loaded = load_policy(tmp_path / "p")
    assert loaded.interface == INTERFACE
    assert loaded.net.config == config
    seen = {"robot.state": np.ones((4, 3), np.float32)}
    np.testing.assert_array_equal(loaded.act(seen), policy.act(seen))
    assert sorted(f.name for f in (tmp_path / "p").iterdir()) == ["config.json", "model.safetensors"]


def test_a_policy_opens_on_the_device_that_was_asked_for(folder):
    assert open_policy(folder).device.type == "cpu"
    # "meta" is a device that every machine has: tensors without values.
    assert open_policy(folder, device="meta").device.type == "meta"


def test_a_run_folder_will_do(folder):
    (folder.parent / "config.json").write_text("{}")  # the run's own
    assert load_policy(folder.parent).interface == load_policy(folder).interface


def edit(folder: Path, **changes) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def weights(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def reshape(folder: Path, shape: object) -> None:
    interface = json.loads((folder / "config.json").read_text())["interface"]
    interface["observation"]["robot.state"]["shape"] = shape
    edit(folder, interface=interface)


def rate(folder: Path, control_hz: float) -> None:
    edit(folder, interface=json.loads((folder / "config.json").read_text())["interface"] | {"control_hz": control_hz})


# What of the messages names no file, because the configuration itself is asked.
NAMELESS = ("executed steps", "activation", "network size", "at most 1000 layers")

DAMAGE = {
    "config.json and model": lambda f: (f / "config.json").unlink(),
    "unreadable": lambda f: (f / "config.json").write_text('{"format": '),
    '"robolearn.policy"': lambda f: (f / "config.json").write_text('{"format": "another"}'),
    "got list": lambda f: (f / "config.json").write_text("[]"),
    "version: got 99": lambda f: edit(f, version=99),
    "available: flow, diffusion": lambda f: edit(f, kind="flaw"),
    "setting: got layers": lambda f: edit(f, settings={"network": {"layers": 3}}),
    "expected int": lambda f: edit(f, settings={"steps": "four"}),
    "executed steps": lambda f: edit(f, settings={"execute": 40}),
    "interface: got [], expected a dict": lambda f: edit(f, interface=[]),
    "kind: got ['flow'], expected a str": lambda f: edit(f, kind=["flow"]),
    "interface": lambda f: edit(f, interface={"action": 3}),
    "got [-3], expected a list of whole numbers": lambda f: reshape(f, [-3]),
    "got x, expected a list of whole numbers": lambda f: reshape(f, "x"),
    "control rate: got nan Hz": lambda f: rate(f, float("nan")),
    "control rate: got 0": lambda f: rate(f, 0),
    "activation: got gelu": lambda f: edit(f, settings={"network": {"activation": "gelu"}}),
    "network size": lambda f: edit(f, settings={"network": {"channels": ["a"]}}),
    "unreadable (nested too deeply": lambda f: (f / "config.json").write_text("[" * 100_000),
    "unreadable (larger than": lambda f: os.truncate(f / "config.json", 3_000_000_000),
    "at most 100,000,000 components": lambda f: reshape(f, [1_000_000, 1_000_000]),
    "the weights of its config": lambda f: edit(f, settings={"network": {"width": 60_000, "depth": 900}}),  # 13 TB
    "at most 1000 layers": lambda f: edit(f, settings={"network": {"depth": 1_000_000_000}}),
    "expected float": lambda f: edit(f, settings={"initial_noise_std": 10**400}),
    "OverflowError": lambda f: rate(f, 10**400),
    "got config.json, expected config.json and model.safetensors": lambda f: (f / "model.safetensors").unlink(),
    "a damaged file": lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
    "a damaged file ": lambda f: (f / "model.safetensors").write_bytes(b"not weights"),
    "no tensor 'net.field": lambda f: weights(f, lambda t: t.pop("net.field.mlp.first.weight")),
    "a tensor 'more'": lambda f: weights(f, lambda t: t.update(more=torch.ones(1))),
    "robot/state/mean: got": lambda f: weights(f, lambda t: t.update({"normalizer.robot/state/mean": torch.ones(9)})),
    "NaN or infinity": lambda f: weights(f, lambda t: t["net.field.mlp.last.bias"].fill_(torch.nan)),
}


@pytest.mark.long
@pytest.mark.parametrize("words", DAMAGE)
def test_damage_is_named_in_one_line(folder, words):
    DAMAGE[words](folder)
    with pytest.raises(BadInput) as caught:
        load_policy(folder)
    message = str(caught.value)
    assert words.strip() in message
    assert str(folder) in message or words.startswith(NAMELESS)
    assert "\n" not in message


def test_no_folder_and_a_file(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput, match="folder"):
            load_policy(path)
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="a file"):
        load_policy(tmp_path / "file")


def test_weights_that_are_not_finite_are_not_written(folder):
    before = (folder / "model.safetensors").read_bytes()
    policy = make()
    policy.net.field.mlp.last.bias.data.fill_(torch.inf)
    with pytest.raises(NonFinite):
        save_policy(policy, folder)
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.long
def test_what_a_policy_is_for_is_known_without_torch(folder):
    script = f"""
import dataclasses, sys
from policies.storage.loading import check_policy
from policies.storage.config_file import read_config, interface_of
from robolearn.core import BadInput
from pathlib import Path
file = Path({str(folder)!r}) / "config.json"
offered = interface_of(read_config(file), file)
check_policy(file.parent, offered, what="policy")
try:
    check_policy(file.parent, dataclasses.replace(offered, control_hz=50.0), what="policy")
except BadInput as error:
    print(error)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "policy: control rate: got 50.0 Hz, expected 20.0 Hz\n"


def test_settings_under_the_names_that_they_once_had(tmp_path):
    """A checkpoint of before says `start_noise`, and nothing of the spacing, which was "leading" then."""
    flow = save_policy(make(FlowConfig(network=SMALL)), tmp_path / "flow")
    settings = json.loads((flow / "config.json").read_text())["settings"]
    del settings["initial_noise_std"]
    edit(flow, settings=settings | {"start_noise": 0.5})
    assert load_policy(flow).net.config == FlowConfig(network=SMALL, initial_noise_std=0.5)
    diffusion = save_policy(make(DiffusionConfig(network=SMALL, steps=3)), tmp_path / "diffusion")
    settings = json.loads((diffusion / "config.json").read_text())["settings"]
    assert settings.pop("spacing") == "trailing"
    edit(diffusion, settings=settings)
    loaded = load_policy(diffusion).net
    assert loaded.config.spacing == "leading" and loaded.scheduler.config.timestep_spacing == "leading"


@pytest.mark.parametrize("config", [FlowConfig(network=SMALL), DiffusionConfig(network=SMALL, prediction="sample")])
def test_the_initial_noise_of_a_checkpoint_is_what_it_acts_with(tmp_path, config):
    seen = {"robot.state": np.ones((2, 3), np.float32)}
    policies = []
    for std in (0.0, 0.5):
        save_policy(make(dataclasses.replace(config, initial_noise_std=std)), tmp_path / f"{std}")
        policies.append(load_policy(tmp_path / f"{std}"))
    still, half = policies
    assert np.array_equal(still.act(seen), still.act(seen)) and not np.array_equal(half.act(seen), half.act(seen))
    begun = []
    sample = half.net.sample
    half.net.sample = lambda cond, x0: (begun.append(x0.clone()), sample(cond, x0))[1]
    half.reset(3)
    half.act(seen)
    drawn = WorldNoise(half.net.noise_shape, 3).draw(2)
    np.testing.assert_array_equal(begun[0].numpy(), 0.5 * drawn)
