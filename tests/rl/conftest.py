"""Worlds small enough to know by heart, policies for them, and runners whose settings are all written down."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import DiffusionConfig, FlowConfig, NetworkConfig, PolicyConfig
from robolearn.core import ArraySpec, Interface
from robolearn.rl.algorithms import OnPolicyConfig, algorithms
from robolearn.rl.runner import Runner
from robolearn.rl.settings import NoiseConfig

REACH, TOLERANCE = 0.3, 0.15


class Point:
    """A point on a line that must come to 0: it starts at a distance of 0.4 to 0.8 and moves 0.3 at most a step.

    Success terminates with reward 1; the clock truncates after `limit` steps. Observations are written into one
    array that is used again and again, as a world may well do. `seeds` and `ids` keep what `reset` was asked for.
    """

    def __init__(
        self,
        num_envs: int,
        *,
        limit: int = 4,
        pixels: bool = False,
        forgetful: bool = False,
        mute: bool = False,
        together: bool = False,
    ) -> None:
        self.num_envs, self.max_episode_steps, self.steps_together = num_envs, limit, together
        self.reports_success, self.continuing = not mute, False
        self.task, self.prompt, self.forgetful, self.pixels = "point", "come to 0", forgetful, pixels
        features = {"proprio": ArraySpec((2,))} | ({"images.front": ArraySpec((8, 8, 3), "uint8")} if pixels else {})
        self.interface = Interface(features, ArraySpec((1,)), control_hz=10.0)
        self.position, self.elapsed = np.zeros(num_envs), np.zeros(num_envs, dtype=np.int64)
        self.rng = [np.random.default_rng(0)] * num_envs
        self.seeds: list[int | None] = []
        self.ids: list[list[int] | None] = []
        self.executed = 0
        self.mute = mute
        self._buffer = np.zeros((num_envs, 2), dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        ids = None if options is None else options["start_ids"].tolist()
        self.seeds.append(seed)
        self.ids.append(ids)
        self.rng = [np.random.default_rng([seed or 0, w]) for w in (ids or range(self.num_envs))]
        self._begin(np.ones(self.num_envs, dtype=bool))
        return self._see(), {} if self.mute else {"success": np.zeros(self.num_envs, dtype=bool)}

    def _begin(self, which: np.ndarray) -> None:
        for w in np.flatnonzero(which):
            self.position[w] = self.rng[w].choice([-1.0, 1.0]) * self.rng[w].uniform(0.4, 0.8)
        self.elapsed[which] = 0

    def _see(self) -> dict[str, np.ndarray]:
        self._buffer[:, 0], self._buffer[:, 1] = self.position, self.elapsed / max(self.max_episode_steps, 1)
        out: dict[str, np.ndarray] = {"proprio": self._buffer}
        if self.pixels:
            columns = np.clip((self.position + 1) * 4, 0, 7).astype(int)
            out["images.front"] = np.zeros((self.num_envs, 8, 8, 3), np.uint8)
            out["images.front"][np.arange(self.num_envs), :, columns] = 255
        return out

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> tuple:
        assert active is None or not self.steps_together
        going = np.ones(self.num_envs, dtype=bool) if active is None else active
        assert np.isfinite(actions[going]).all() and np.abs(actions[going]).max() <= 1 + 1e-6
        self.position[going] += REACH * actions[going, 0]
        self.elapsed[going] += 1
        self.executed += int(going.sum())
        success = going & (np.abs(self.position) < TOLERANCE)
        truncated = going & ~success & (self.elapsed >= (self.max_episode_steps or 4))
        ended = success | truncated
        final = {key: value.copy() for key, value in self._see().items()} if ended.any() else {}
        self._begin(ended)
        infos = {"final_obs": final, "_final_obs": ended} | ({} if self.mute else {"success": success})
        return self._see(), success.astype(np.float32), success.copy(), truncated, infos

    def snapshot(self) -> dict[str, np.ndarray] | None:
        if self.forgetful:
            return None
        state = json.dumps([rng.bit_generator.state for rng in self.rng]).encode()
        rng = np.frombuffer(state, np.uint8).copy()
        return {"position": self.position.copy(), "elapsed": self.elapsed.copy(), "rng": rng}

    def restore(self, snapshot: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.position[:], self.elapsed[:] = snapshot["position"], snapshot["elapsed"]
        self.rng = [np.random.default_rng() for _ in range(self.num_envs)]
        for rng, state in zip(self.rng, json.loads(snapshot["rng"].tobytes()), strict=True):
            rng.bit_generator.state = state
        return self._see()

    def frame(self, world: int = 0) -> None:
        return None

    def close(self, **kwargs: Any) -> None:
        pass


class ChunkPoint(Point):
    """With a fast path, written without `step`."""

    def step_chunk(self, chunks: np.ndarray, active: np.ndarray | None = None) -> tuple:
        n = self.num_envs
        going = np.ones(n, dtype=bool) if active is None else active.copy()
        assert np.isfinite(chunks[going]).all() and np.abs(chunks[going]).max() <= 1 + 1e-6
        steps, success, truncated = np.zeros(n, np.int64), np.zeros(n, bool), np.zeros(n, bool)
        rewards = np.zeros(chunks.shape[:2], np.float32)
        for i in range(chunks.shape[1]):
            self.position[going] += REACH * chunks[going, i, 0]
            self.elapsed[going] += 1
            steps += going
            rewards[:, i] = going & (np.abs(self.position) < TOLERANCE)
            success |= rewards[:, i] > 0
            truncated |= going & ~success & (self.elapsed >= (self.max_episode_steps or 4))
            going &= ~(success | truncated)
        ended = success | truncated
        final = {key: value.copy() for key, value in self._see().items()} if ended.any() else {}
        self._begin(ended)
        self.executed += int(steps.sum())
        infos = {"steps": steps, "step_rewards": rewards, "final_obs": final, "_final_obs": ended}
        infos |= {} if self.mute else {"success": success}
        return self._see(), success.astype(np.float32), success.copy(), truncated, infos


def make_point(num_envs: int, *, chunks: bool = True, **settings: Any) -> Point:
    """A `Point`, with the fast path unless told otherwise."""
    return (ChunkPoint if chunks and not settings.get("together") else Point)(num_envs, **settings)


def build_policy(
    interface: Interface, seed: int = 0, gain: float = 1.0, width: int = 32, family: str = "flow", **settings: Any
) -> ChunkPolicy:
    """An untrained flow (or diffusion) policy; `gain` widens its output, which begins near zero."""
    torch.manual_seed(seed)
    network = settings.pop("network", NetworkConfig(width=width, depth=2, image_features=8))
    config: PolicyConfig = (
        FlowConfig(network=network, **settings)
        if family == "flow"
        else DiffusionConfig(network=network, **({"steps": 4} | settings))
    )
    net: Any = config.build(interface)
    with torch.no_grad():
        (net.field.leave if network.kind == "transformer" else net.field.mlp.last).weight.mul_(gain)
    return ChunkPolicy(net, Normalizer(interface), interface)


NOISE = NoiseConfig(sigma_min=0.05, sigma_max=0.2, steps="last", hold=0.35)
EVERYWHERE = replace(NOISE, steps="all")
CALIBRATED = NoiseConfig(sigma_max=0.0, steps="last", min_share=0.5, hold=0.35)
COMMON: dict[str, Any] = {
    "gamma": 0.99,
    "actor_lr": 5e-4,
    "epochs": 3,
    "minibatch": 16,
    "clip": 0.1,
    "target_kl": 0.04,
    "entropy": 0.0,
    "regulariser": "none",
    "regularisation": 0.0,
    "max_grad_norm": 1.0,
    "average": 0.8,
    "exponent": "root",
    "lr_schedule": "kl",
    "noise": NOISE,
    "threads": 1,
}  # all of them: the tests do not move with the defaults
CRITIC: dict[str, Any] = {
    "chunks_per_rollout": 5,
    "lam": 0.9,
    "critic_lr": 1e-3,
    "critic_epochs": 2,
    "critic_warmup": 0,
    "time_limit": "auto",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "reinflow": COMMON | CRITIC,
    "dppo": COMMON | CRITIC | {"noise": EVERYWHERE, "gamma_denoising": 0.9, "clip_first": 0.02},
    "grpo": COMMON | {"group": 4, "weigh": "decision", "divide_by_std": False, "dual_clip": None},
}
SETTINGS["srpo"] = SETTINGS["grpo"] | {"latent": "vectors"}


def make_runner(
    world: Any,
    policy: ChunkPolicy | None = None,
    algo: str = "reinflow",
    env_steps: int = 2000,
    seed: int = 0,
    **settings: Any,
) -> Runner:
    """A runner of `algo` in `world`, with `settings` on top of those above."""
    if policy is None:
        policy = build_policy(world.interface, horizon=2, execute=2, gain=20.0)
    config = algorithms(OnPolicyConfig)[algo](num_envs=world.num_envs, **(SETTINGS[algo] | settings))  # type: ignore[arg-type]
    return Runner(policy, world, config, env_steps, seed)


def run(runner: Runner, first: int, last: int) -> list[dict[str, float]]:
    """The rows of iterations `first` to `last`, times apart."""
    rows = [runner.iterate(i) for i in range(first, last)]
    return [{key: value for key, value in row.items() if not key.startswith("wall")} for row in rows]


def tensors(runner: Runner) -> dict[str, torch.Tensor]:
    """Copies of the tensors of its state."""
    return {key: value.clone() for key, value in runner.state()[0].items()}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    """Bit for bit."""
    assert a.keys() == b.keys()
    assert not [key for key in a if not torch.equal(a[key], b[key])]


def assert_goes_on(whole: Any, again: Any, first: int, last: int) -> None:
    """`again` goes on as `whole` does, bit for bit, from its state after iteration `first`, up to `last`."""
    run(whole, 0, first)
    state, meta = whole.state()
    state = {key: value.clone() for key, value in state.items()}
    expected = run(whole, first, last)
    again.load_state(state, meta)
    np.testing.assert_equal(run(again, first, last), expected)
    assert_same(whole.state()[0], again.state()[0])


_KIT = SimpleNamespace(
    runner=make_runner,
    run=run,
    tensors=tensors,
    assert_same=assert_same,
    assert_goes_on=assert_goes_on,
    NOISE=NOISE,
    EVERYWHERE=EVERYWHERE,
    CALIBRATED=CALIBRATED,
    SETTINGS=SETTINGS,
)


@pytest.fixture
def kit() -> SimpleNamespace:
    """The names above, for test files, which cannot import each other."""
    return _KIT


@pytest.fixture
def point() -> Callable[..., Point]:
    return make_point


@pytest.fixture
def make_policy() -> Callable[..., ChunkPolicy]:
    return build_policy
