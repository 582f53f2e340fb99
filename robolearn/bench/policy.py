"""``robolearn benchmark policy``: how long one decision takes, per network and backend."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.settings import DiffusionConfig, FlowConfig, NetworkConfig
from policies.storage.backends import BACKENDS, check_backend, use_backend
from robolearn.core import BadInput
from robolearn.core.machine import torch_threads
from robolearn.core.specs import ArraySpec, Interface
from robolearn.core.switches import Count
from robolearn.runs import Progress
from robolearn.runs.command import Command, print_table

if TYPE_CHECKING:
    from policies.policy import TorchPolicy

log = logging.getLogger(__name__)

UNET = NetworkConfig(kind="unet1d", channels=(64, 128))
CHUNK: dict[str, Any] = {"horizon": 16, "execute": 8, "network": UNET}
NETWORKS: dict[str, tuple[FlowConfig | DiffusionConfig, tuple[str, ...]]] = {
    "flow_mlp_1": (FlowConfig(steps=1), ("proprio", "objects")),
    "flow_unet_4": (FlowConfig(steps=4, **CHUNK), ("proprio", "objects")),
    "flow_two_cameras_4": (FlowConfig(steps=4), ("proprio", "images.front", "images.wrist")),
    "ddim_unet_10": (DiffusionConfig(steps=10, **CHUNK), ("proprio", "objects")),
    "ddpm_unet_100": (DiffusionConfig(steps=100, eta=1.0, **CHUNK), ("proprio", "objects")),
}
"""Name → settings, and what of `SEEN` the policy sees. The last number is K, the denoising steps."""
SEEN = {
    "proprio": ArraySpec((17,)),
    "objects": ArraySpec((12,)),
    "images.front": ArraySpec((84, 84, 3), "uint8"),
    "images.wrist": ArraySpec((84, 84, 3), "uint8"),
}  # as of the task lift
ACTION = ArraySpec((7,))
MOST_UNROLLED = 16  # denoising steps that a graph unrolls in seconds; of more the table has torch alone
CALLS = 20  # decisions of one kind before it is another's turn


@dataclass(frozen=True, kw_only=True)
class BenchmarkPolicy(Command):
    """Latency of one decision for one world on one core: features in, normalised, encoded, denoised, actions out.

    Every network by every backend, in turn, so that a busy machine treats all alike.
    """

    policy: Path | None = None
    """Measure this policy (a run or checkpoint folder) in the place of untrained networks of typical sizes."""
    networks: tuple[str, ...] = tuple(NETWORKS)
    """Of the untrained ones."""
    backends: tuple[str, ...] = tuple(BACKENDS)
    """torch (eager), trace (its operations, recorded), compile (torch's compiler), onnx (onnxruntime)."""
    reduced: bool = False
    """Measure bfloat16 and int8, too, where a backend has them."""
    repeats: Count = 10
    """Turns of each kind, of 20 decisions each."""

    def run(self) -> dict[str, Any]:
        if not self.backends:
            raise BadInput("--backends", got="nothing", available=BACKENDS)
        for backend in self.backends:
            check_backend(backend, "float32")
        if unknown := [name for name in self.networks if name not in NETWORKS] or (not self.networks and ["none"]):
            raise BadInput("--networks", got=unknown[0], available=NETWORKS)
        begun = time.perf_counter()
        with torch_threads(1):
            rows, decide = self._prepare()
            prepared_s = time.perf_counter() - begun
            for row, times in zip(rows, _measure(decide, self.repeats, quiet=self.json), strict=True):
                row["latency_ms"] = _percentiles(times)
        return {
            "threads": 1,
            "worlds": 1,
            "decisions": self.repeats * CALLS,
            "latencies": rows,
            "wall_s": {"prepare": prepared_s, "total": time.perf_counter() - begun},
        }

    def _prepare(self) -> tuple[list[dict[str, Any]], list[Callable[[], Any]]]:
        """The rows of the table without their latencies, and for each what is measured."""
        from policies.storage.onnx_export import example_inputs

        rows: list[dict[str, Any]] = []
        decide: list[Callable[[], Any]] = []
        for name, make, steps in self._policies():
            for backend in self.backends:
                if backend != "torch" and steps > MOST_UNROLLED:
                    log.info("%s: %d steps in one graph take minutes to compile: torch alone", name, steps)
                    continue
                for precision in BACKENDS[backend].precisions if self.reduced else ("float32",):
                    policy = make()
                    observation = {key: value.numpy() for key, value in example_inputs(policy, 1)[0].items()}
                    reference = _first(policy, observation)
                    started = time.perf_counter()
                    use_backend(policy, backend, precision)
                    difference = abs(_first(policy, observation) - reference).max()
                    start_s = time.perf_counter() - started
                    cameras = sum(key.startswith("images.") for key in observation)
                    row = {"network": name, "steps": steps, "cameras": cameras, "backend": backend}
                    rows.append(row | {"precision": precision, "start_s": start_s, "max_difference": float(difference)})
                    decide.append(lambda policy=policy, observation=observation: policy.act(observation))
        return rows, decide

    def _policies(self) -> list[tuple[str, Callable[[], TorchPolicy], int]]:
        """Name, a fresh policy, and its denoising steps (0: it has none)."""
        from policies.policy import ChunkPolicy
        from policies.storage.checkpoint import load_policy

        if self.policy is None:
            return [(name, lambda name=name: _untrained(name), NETWORKS[name][0].steps) for name in self.networks]
        path = self.policy
        policy = load_policy(path)
        steps = getattr(policy.net.config, "steps", 0) if isinstance(policy, ChunkPolicy) else 0
        return [(str(path), lambda: load_policy(path), steps)]

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        heads = ("network", "backend", "precision", "p50, ms", "p99, ms", "start, s")
        rows = [
            (row["network"], row["backend"], row["precision"], *(f"{row['latency_ms'][p]:.3f}" for p in ("p50", "p99")),
             f"{row['start_s']:.1f}")
            for row in result["latencies"]
        ]  # fmt: skip
        print_table(console, heads, rows, title="one decision for one world on one core")


def _untrained(name: str) -> TorchPolicy:
    """One of `NETWORKS`, with the same random weights each time: how long it takes does not depend on them."""
    import torch

    from policies.normalize import Normalizer
    from policies.policy import ChunkPolicy

    config, seen = NETWORKS[name]
    interface = Interface({key: SEEN[key] for key in seen}, ACTION, control_hz=20.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ChunkPolicy(config.build(interface), Normalizer(interface), interface).eval()


def _first(policy: TorchPolicy, observation: Mapping[str, Any]) -> Any:
    policy.reset(0)
    return policy.act(observation)


def _measure(decide: list[Callable[[], Any]], repeats: int, *, quiet: bool) -> list[list[float]]:
    """Seconds of every decision of each kind; one turn of each more than counts, to warm up."""
    times: list[list[float]] = [[] for _ in decide]
    with Progress("measuring", total=repeats, unit="turns", quiet=quiet) as progress:
        for turn in range(repeats + 1):
            for one, found in zip(decide, times, strict=True):
                one()  # what another kind left in the caches is not its own
                for _ in range(CALLS):
                    begun = time.perf_counter()
                    one()
                    if turn:
                        found.append(time.perf_counter() - begun)
            progress(turn)
    return times


def _percentiles(seconds: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(seconds, (50, 99))
    return {"p50": 1e3 * float(p50), "p99": 1e3 * float(p99)}
