"""To > 1 together with chunks: what a policy looks back on, in the engine and on an arm, beside a ledger of steps."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from test_engine import INTERFACE, Ledger

from hardware.teleop.chunk_player import ChunkPlayer
from policies.kinds.flow import FlowPolicy
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.rollout import Decisions, Engine, PolicyAgent


def looking_back(observe: int, execute: int) -> tuple[ChunkPolicy, list[np.ndarray]]:
    """A policy, and the (N, To, 3) that its network is given at each decision."""
    torch.manual_seed(0)
    config = FlowConfig(observe=observe, execute=execute, horizon=execute, network=NetworkConfig(width=8, depth=1))
    policy = ChunkPolicy(FlowPolicy(config, INTERFACE), Normalizer(INTERFACE), INTERFACE)
    seen: list[np.ndarray] = []
    encode = policy.net.encode

    def noted(observation):
        seen.append(observation["proprio"].numpy().copy())
        return encode(observation)

    policy.net.encode = noted
    return policy, seen


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("execute", [1, 3])
def test_each_decision_sees_the_last_steps_of_its_own_episode(execute: int, together: bool) -> None:
    policy, seen = looking_back(observe=3, execute=execute)
    world = Ledger(4, (7, 2, 5), together=together)
    engine = Engine(world)
    engine.reset(0)
    policy.reset(0)
    checked = episodes = 0
    present = world.page.copy()
    for turn in engine.turns(PolicyAgent(policy), Decisions(18)):
        decisions = seen[-1]
        for w in np.flatnonzero(turn.worlds):
            if together:  # some decide while others go on: only those that have just decided are in the last record
                continue
            _, episode, step = present[w].astype(int)
            wanted = [[w, episode, max(0, step - back)] for back in (2, 1, 0)]
            assert decisions[w].tolist() == wanted
            checked += 1
        present = world.page.copy()
        episodes = int(present[:, 1].max())
    assert episodes > 2
    if not together:
        assert checked == 4 * 18
    for record in seen:  # and none of the records mixes episodes, or leaves a step out
        for w, history in enumerate(record):
            assert (history[:, 0] == w).all()
            if together or execute == 1:
                assert len(set(history[:, 1])) == 1, history
                assert set(np.diff(history[:, 2])) <= {0.0, 1.0} and (np.diff(history[history[:, 2] > 0, 2]) == 1).all()


@pytest.mark.long
def test_on_an_arm_every_control_step_is_remembered() -> None:
    policy, seen = looking_back(observe=3, execute=4)
    now = [0.0]
    player = ChunkPlayer(policy, clock=lambda: now[0])
    player.begin()
    seen.clear()
    try:
        for step in range(12):
            player.action({"proprio": np.array([0.0, 0.0, step], np.float32)})
            time.sleep(0.05)  # for a prediction in the background
            player.later()
            now[0] += 1.0 / INTERFACE.control_hz
    finally:
        player.close()
    assert len(seen) >= 3
    assert seen[0][0, :, 2].tolist() == [0, 0, 0]
    for record in seen[1:]:
        last = record[0, -1, 2]
        assert record[0, :, 2].tolist() == [last - 2, last - 1, last]
