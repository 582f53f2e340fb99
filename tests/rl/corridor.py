"""What tests of off-policy learning share: a small base, windows, and a corridor that is learned in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, Interface
from robolearn.data.replay import PlayedEpisode, ReplayBatch
from robolearn.rl.algorithms.off_policy import OffPolicy

INTERFACE = Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,), names=("dx",)), 20.0, action_kind="tcp_delta")
SMALL: dict[str, Any] = {"width": 32, "depth": 2, "critics": 4, "batch": 64}


def base(horizon: int = 2, execute: int | None = None, **settings: Any) -> ChunkPolicy:
    torch.manual_seed(0)
    config = FlowConfig(
        horizon=horizon, execute=execute or horizon, network=NetworkConfig(width=16, depth=2), **settings
    )
    return ChunkPolicy(config.build(INTERFACE), Normalizer(INTERFACE), INTERFACE)


def windows(n: int = 8, *, ends: bool = False, merit: bool = True) -> ReplayBatch:
    rng = torch.Generator().manual_seed(1)
    seen, action = torch.randn(n, 2, generator=rng), torch.rand(n, 2, 1, generator=rng) * 2 - 1
    return ReplayBatch(
        observation={"proprio": seen},
        action=action,
        executed=torch.ones(n, 2, dtype=torch.bool),
        plan=torch.cat((action, action.flip(1)), 1),  # of two chunks
        planned=torch.ones(n, 4, dtype=torch.bool),
        reward=torch.linspace(0, 1, n),
        to_go=torch.linspace(0, 1, n),
        discount=torch.full((n,), 0.0 if ends else 0.9),
        next_observation={"proprio": torch.randn(n, 2, generator=rng)},
        intervention=torch.full((n,), merit),
        merit=torch.full((n,), merit),
    )


class Corridor:
    """x moves by 0.25 a; beyond 1 the task is solved, after 12 steps the clock ends it. Starts near −0.6."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def play(self, act: Callable[[float], float]) -> PlayedEpisode:
        """An episode in which `act` says what to do at x."""
        x, seen, actions = self.rng.uniform(-0.9, -0.3), [], []
        while len(actions) < 12 and x < 1:
            seen.append([x, 1.0])
            actions.append(act(x))
            x += 0.25 * actions[-1]
        seen.append([x, 1.0])
        reward = np.zeros(len(actions), np.float32)
        reward[-1] = x >= 1
        return PlayedEpisode(
            {"proprio": np.array(seen, np.float32)}, np.array(actions, np.float32)[:, None], reward,
            np.zeros(len(actions), bool), bool(x >= 1), bool(x >= 1),
        )  # fmt: skip


def acting(algorithm: OffPolicy, *, explore: bool) -> Callable[[float], float]:
    return lambda x: float(algorithm.act({"proprio": np.array([[x, 1.0]], np.float32)}, explore=explore)[0, 0, 0])


def solved(algorithm: OffPolicy) -> tuple[float, float]:
    """(success, mean steps) of 50 episodes."""
    world = Corridor(99)
    episodes = [world.play(acting(algorithm, explore=False)) for _ in range(50)]
    return float(np.mean([e.success for e in episodes])), float(np.mean([len(e) for e in episodes]))
