"""Policies that nobody trained, for tests of what carries policies."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from policies.checkpoint import save_policy
from policies.kinds import build_net
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import Interface


def make_policy(folder: Path, interface: Interface) -> Path:
    """An untrained flow policy, written as training writes it."""
    net = build_net(FlowConfig(network=NetworkConfig(width=32, depth=2)), interface)
    statistics = {
        name: {"mean": np.zeros(spec.shape), "std": np.ones(spec.shape)} for name, spec in interface.observation.items()
    }
    size = interface.action.size
    statistics["action"] = {"min": -np.ones(size), "max": np.ones(size)}
    return save_policy(ChunkPolicy(net, Normalizer.from_statistics(interface, statistics), interface), folder)
