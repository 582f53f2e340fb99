"""Policies are made, act, are saved and loaded on the device that is asked for, never on torch's default one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import (
    ActConfig,
    DiffusionConfig,
    FlowConfig,
    NetworkConfig,
    PolicyConfig,
    RegressionConfig,
)
from policies.storage.checkpoint import load_policy, save_policy
from robolearn.core import ArraySpec, Interface

INTERFACE = Interface(
    {"proprio": ArraySpec((3,)), "images.front": ArraySpec((16, 16, 3), "uint8")}, ArraySpec((2,)), control_hz=20.0
)
STATISTICS = {"proprio": {"mean": [0.0] * 3, "std": [1.0] * 3}, "action": {"min": [-1.0] * 2, "max": [1.0] * 2}}
SMALL = NetworkConfig(width=16, depth=2, image_features=4)
CONFIGS: dict[str, PolicyConfig] = {
    "rectified": FlowConfig(network=SMALL),
    "shortcut": FlowConfig(kind="shortcut", steps=3, network=SMALL),
    "unet": FlowConfig(network=NetworkConfig(kind="unet1d", channels=(8, 16), image_features=4)),
    "history": FlowConfig(network=SMALL, observe=2),
    "transformer": FlowConfig(network=NetworkConfig(kind="transformer", width=16, depth=1, heads=2, image_features=4)),
    "regression": RegressionConfig(network=SMALL),
    "act": ActConfig(network=NetworkConfig("transformer", width=16, depth=1, heads=2, image_features=4)),
    "diffusion": DiffusionConfig(network=SMALL, steps=3),
    "ddpm": DiffusionConfig(network=SMALL, steps=3, eta=1.0, schedule="linear"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CONFIGS)
def test_a_policy_acts_where_it_is_told_to(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    torch.manual_seed(0)
    usual = ChunkPolicy(CONFIGS[name].build(INTERFACE), Normalizer(INTERFACE), INTERFACE)
    request.getfixturevalue("no_default_device")
    torch.manual_seed(0)
    normalizer = Normalizer.from_statistics(INTERFACE, STATISTICS)
    policy = ChunkPolicy(CONFIGS[name].build(INTERFACE), normalizer, INTERFACE).to("cpu")
    save_policy(policy, tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy", "cpu")
    assert loaded.device == torch.device("cpu") and all(t.device.type == "cpu" for t in loaded.state_dict().values())
    seen = {"proprio": np.zeros((5, 3), np.float32), "images.front": np.zeros((5, 16, 16, 3), np.uint8)}
    for _ in range(2):
        assert np.isfinite(loaded.act(seen)).all()
    loaded.normalizer.load_state_dict(usual.normalizer.state_dict())
    for policy in (loaded, usual):
        policy.reset(7)
    np.testing.assert_array_equal(loaded.act(seen), usual.act(seen))  # the same numbers as without the guard
    if loaded.config.denoises:
        assert np.isfinite(loaded.with_initial_noise(0.0).act(seen)).all()


@pytest.mark.usefixtures("no_default_device")
def test_the_guard_itself() -> None:
    assert torch.zeros(1).device.type == "meta" and torch.zeros(1, device="cpu").device.type == "cpu"
