"""Policies that nobody trained, for tests of what carries policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import save_policy
from robolearn.core import Interface


def make_policy(folder: Path, interface: Interface, **config: Any) -> Path:
    """An untrained flow policy with the settings `config`, written as training writes it."""
    net = FlowConfig(network=NetworkConfig(width=32, depth=2), **config).build(interface)
    statistics = {
        name: {"mean": np.zeros(spec.shape), "std": np.ones(spec.shape)} for name, spec in interface.observation.items()
    }
    size = interface.action.size
    statistics["action"] = {"min": -np.ones(size), "max": np.ones(size)}
    return save_policy(ChunkPolicy(net, Normalizer.from_statistics(interface, statistics), interface), folder)


def make_constant(folder: Path, offered: Interface, cameras: tuple[str, ...] = (), /, **parts: float) -> Path:
    """A policy that always asks for the same, with a little noise: a flow whose velocity field is 0.

    Args:
      offered: of the world; the policy sees its proprioception alone, and looks through `cameras`.
      parts: component of the action → its value; 0 where none is given.
    """
    seen = ("proprio", *(f"images.{camera}" for camera in cameras))
    needed = replace(offered, observation={name: offered.observation[name] for name in seen})
    size = needed.observation["proprio"].size
    action = [parts.get(name, 0.0) for name in needed.action.names]
    statistics = {
        "proprio": {"mean": [0.0] * size, "std": [1.0] * size},
        "action": {"min": action, "max": action},
    }
    net = FlowConfig(network=NetworkConfig(width=16, depth=1)).build(needed)
    with torch.no_grad():
        for weight in net.parameters():
            weight.zero_()
    return save_policy(ChunkPolicy(net, Normalizer.from_statistics(needed, statistics), needed), folder)
