"""Worlds small enough to know by heart, and policies for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from policies.flow import FlowPolicy
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, Interface

REACH, TOLERANCE = 0.3, 0.15


class Point:
    """A point on a line that must come to 0: it starts at a distance of 0.4 to 0.8 and moves 0.3 at most a step.

    Success terminates with reward 1; the clock truncates after `limit` steps. Observations are written into one
    array that is used again and again, as a world may well do.
    """

    def __init__(self, num_envs: int, *, limit: int = 4, pixels: bool = False, forgetful: bool = False) -> None:
        self.num_envs, self.max_episode_steps = num_envs, limit
        self.task, self.prompt, self.forgetful, self.pixels = "point", "come to 0", forgetful, pixels
        features = {"proprio": ArraySpec((2,))} | ({"images.front": ArraySpec((8, 8, 3), "uint8")} if pixels else {})
        self.interface = Interface(features, ArraySpec((1,)), control_hz=10.0)
        self.position, self.elapsed = np.zeros(num_envs), np.zeros(num_envs, dtype=np.int64)
        self.rng = np.random.default_rng(0)
        self.seeds: list[int | None] = []
        self.executed = 0
        self._buffer = np.zeros((num_envs, 2), dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        self.seeds.append(seed)
        self.rng = np.random.default_rng(seed)
        self._begin(np.ones(self.num_envs, dtype=bool))
        return self._see(), {"success": np.zeros(self.num_envs, dtype=bool)}

    def _begin(self, which: np.ndarray) -> None:
        n = int(which.sum())
        self.position[which] = self.rng.choice([-1.0, 1.0], n) * self.rng.uniform(0.4, 0.8, n)
        self.elapsed[which] = 0

    def _see(self) -> dict[str, np.ndarray]:
        self._buffer[:, 0], self._buffer[:, 1] = self.position, self.elapsed / self.max_episode_steps
        out: dict[str, np.ndarray] = {"proprio": self._buffer}
        if self.pixels:
            columns = np.clip((self.position + 1) * 4, 0, 7).astype(int)
            out["images.front"] = np.zeros((self.num_envs, 8, 8, 3), np.uint8)
            out["images.front"][np.arange(self.num_envs), :, columns] = 255
        return out

    def step(self, actions: np.ndarray) -> tuple:
        return self.step_chunk(actions[:, None])

    def step_chunk(self, chunks: np.ndarray, active: np.ndarray | None = None) -> tuple:
        assert np.isfinite(chunks).all() and np.abs(chunks).max() <= 1 + 1e-6
        n = self.num_envs
        going = np.ones(n, dtype=bool) if active is None else active.copy()
        steps, success, truncated = np.zeros(n, np.int64), np.zeros(n, bool), np.zeros(n, bool)
        for i in range(chunks.shape[1]):
            self.position[going] += REACH * chunks[going, i, 0]
            self.elapsed[going] += 1
            steps += going
            success |= going & (np.abs(self.position) < TOLERANCE)
            truncated |= going & ~success & (self.elapsed >= self.max_episode_steps)
            going &= ~(success | truncated)
        ended = success | truncated
        final = {key: value.copy() for key, value in self._see().items()} if ended.any() else {}
        self._begin(ended)
        self.executed += int(steps.sum())
        infos = {"success": success, "steps": steps, "final_obs": final, "_final_obs": ended}
        return self._see(), success.astype(np.float32), success.copy(), truncated, infos

    def snapshot(self) -> dict[str, np.ndarray] | None:
        if self.forgetful:
            return None
        state = np.frombuffer(json.dumps(self.rng.bit_generator.state).encode(), np.uint8).copy()
        return {"position": self.position.copy(), "elapsed": self.elapsed.copy(), "rng": state}

    def restore(self, snapshot: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.position[:], self.elapsed[:] = snapshot["position"], snapshot["elapsed"]
        self.rng.bit_generator.state = json.loads(snapshot["rng"].tobytes())
        return self._see()

    def frame(self, world: int = 0) -> None:
        return None

    def close(self, **kwargs: Any) -> None:
        pass


def build_policy(interface: Interface, seed: int = 0, gain: float = 1.0, width: int = 32, **settings) -> ChunkPolicy:
    """An untrained flow policy; `gain` widens its output, which begins near zero."""
    torch.manual_seed(seed)
    network = NetworkConfig(width=width, depth=2, image_features=8)
    net = FlowPolicy(FlowConfig(network=network, **settings), interface)
    with torch.no_grad():
        net.field.mlp.last.weight.mul_(gain)  # type: ignore[union-attr, operator]
    return ChunkPolicy(net, Normalizer(interface), interface)


@pytest.fixture
def point() -> Callable[..., Point]:
    return Point


@pytest.fixture
def make_policy() -> Callable[..., ChunkPolicy]:
    return build_policy
