"""A policy whose initial noise an actor chooses."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from numpy.testing import assert_allclose

from policies.kinds.gaussian import NoiseSteeredConfig, NoiseSteeredPolicy
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import load_policy, save_policy
from robolearn.core import ArraySpec, Interface

INTERFACE = Interface({"proprio": ArraySpec((2,))}, ArraySpec((3,)), 20.0, "none", "none")


def test_the_flow_begins_at_m_tanh_mu(tmp_path: Path) -> None:
    """M = 0.3, tanh μ = 0.5 and a flow without velocity: every action is 0.15."""
    config = FlowConfig(horizon=2, execute=2, network=NetworkConfig(width=8, depth=1))
    flow = config.build(INTERFACE)
    policy = NoiseSteeredPolicy(
        ChunkPolicy(flow, Normalizer(INTERFACE), INTERFACE), NoiseSteeredConfig(execute=2, width=8, magnitude=0.3)
    )
    with torch.no_grad():
        for last, bias in ((flow.field.mlp.last, 0.0), (policy.actor.net.last, math.atanh(0.5))):
            last.weight.zero_()
            last.bias.fill_(bias)
    loaded = load_policy(save_policy(policy, tmp_path))
    actions = loaded.act({"proprio": np.ones((4, 2), np.float32)})
    assert actions.shape == (4, 2, 3)
    assert_allclose(actions, 0.15, rtol=1e-6)
