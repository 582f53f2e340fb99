"""``robolearn benchmark encoders``: what a gradient step of imitation costs, by the encoder of its cameras."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from policies.networks.encoder_settings import EncoderConfig
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import BadInput
from robolearn.core.machine import keep_freed_memory, resolve_device
from robolearn.core.switches import Count, Within
from robolearn.runs.command import Command, print_table
from robolearn.train.settings import ImitationConfig

if TYPE_CHECKING:
    from rich.console import Console

FRAMES = 128  # of noise, or as many as a batch has; a step costs the same whatever is seen


@dataclass(frozen=True, kw_only=True)
class BenchmarkEncoders(Command):
    """Measure gradient steps of a flow policy on cameras' pictures, by encoder: trained, frozen, and frozen with cached
    features. The pictures are noise, and a step costs the same whatever they show."""

    encoders: tuple[str, ...] = ("cnn", "resnet18", "efficientnet_lite0")
    """As --encoder of `robolearn train`; timm:FOLDER and transformers:FOLDER as well."""
    encoder_size: int = 0
    """As of `robolearn train`; not for cnn."""
    cameras: Count = 2
    """Number of cameras."""
    image_size: Annotated[int, Within(8)] = 84
    """Edge of their square pictures [px]."""
    batch: Count = 64
    """Windows of a gradient step."""
    threads: Count = 1
    """Threads of torch."""
    steps: Count = 5
    """Gradient steps, whose median counts; one more warms up."""
    device: str = "cpu"
    """Where: auto, cpu, cuda or cuda:<i>."""

    def run(self) -> dict[str, Any]:
        import torch

        if not self.encoders:
            raise BadInput("--encoders", got="nothing", expected="e.g. cnn resnet18")
        device = torch.device(resolve_device(self.device))
        keep_freed_memory()  # as `robolearn train` does
        found: dict[str, Any] = {}
        for kind in self.encoders:
            config = EncoderConfig(kind=kind, resize=0 if kind == "cnn" else self.encoder_size)
            found[kind] = self._measure(config, False, device)
            if config.of_kind.pretrained:
                frozen = replace(config, freeze=True)
                found[kind]["frozen_ms"] = self._measure(frozen, False, device)["trained_ms"]
                found[kind]["cached_ms"] = self._measure(frozen, True, device)["trained_ms"]
        return {
            "batch": self.batch,
            "cameras": self.cameras,
            "image_size": self.image_size,
            "threads": self.threads,
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "encoders": found,
        }

    def _measure(self, encoder: EncoderConfig, cache: bool, device: Any) -> dict[str, Any]:
        """The median step [ms]: of processor time, or on a GPU of time; and by the clock."""
        import numpy as np
        import torch

        from robolearn.core import ArraySpec, Interface
        from robolearn.train.distill import LabelledWindows
        from robolearn.train.imitation import ImitationTrainer

        frames = max(FRAMES, self.batch)  # a batch is never larger than the set
        names = [f"images.{i}" for i in range(self.cameras)]
        picture = ArraySpec((self.image_size, self.image_size, 3), "uint8")
        interface = Interface({"proprio": ArraySpec((16,))} | dict.fromkeys(names, picture), ArraySpec((7,)), 20.0)
        windows = LabelledWindows(interface, 4, frames)
        rng = np.random.default_rng(0)
        shown = {key: rng.integers(0, 256, (frames, *picture.shape), dtype=np.uint8) for key in names}
        vector = rng.normal(size=(frames, 16)).astype(np.float32)
        windows.add({"proprio": vector} | shown, rng.uniform(-1, 1, (frames, 4, 7)).astype(np.float32))
        statistics = {
            "proprio": {"mean": np.zeros(16), "std": np.ones(16)},
            "action": {"min": -np.ones(7), "max": np.ones(7)},
        }
        config = ImitationConfig(
            FlowConfig(network=NetworkConfig(encoder=encoder)),
            steps=self.steps + 1,
            steps_per_iteration=1,
            batch=self.batch,
            threads=self.threads,
            cache_features=cache,
        )
        trainer = ImitationTrainer(config, windows, interface, statistics, device=device)
        if cache:
            trainer.windows.gather(torch.arange(frames))
        clock = time.perf_counter if device.type == "cuda" else time.process_time
        taken, passed = [], []
        for i in range(config.iterations):
            begun, at = clock(), time.perf_counter()
            trainer.iterate(i)
            taken.append(1e3 * (clock() - begun))
            passed.append(1e3 * (time.perf_counter() - at))
        parameters = sum(value.numel() for value in trainer.net.encoder.parameters())
        return {"encoder_parameters": parameters, "trained_ms": median(taken[1:]), "clock_ms": median(passed[1:])}

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        heads = ("encoder", "parameters", "trained [ms]", "by the clock [ms]", "frozen [ms]", "frozen, cached [ms]")
        names = ("trained_ms", "clock_ms", "frozen_ms", "cached_ms")
        rows = [
            (kind, f"{row['encoder_parameters']:,}", *(f"{row[name]:.1f}" if name in row else "" for name in names))
            for kind, row in result["encoders"].items()
        ]
        print_table(console, heads, rows, title=f"a step of {result['batch']} windows")
