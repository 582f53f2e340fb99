"""Our tasks on Isaac Lab's physics: the version and the device are checked before anything of it is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .errors import BadInput
from .stepped import SteppedTask, facts

MAJOR = "3"  # of isaaclab: names, quaternions and physics of 2 are others, and importing it starts Isaac Sim
INSTALL = "Run: robolearn worlds install isaaclab"


def build(task: str, timestep: float, device: str, **scene: Any) -> SteppedTask:
    """The worlds of a scene; `scene` is the rest of what `isaaclab_scene.open_scene` takes.

    Args:
      timestep: of the physics [s].
      device: ``auto`` (a GPU where there is one), ``cpu`` or ``cuda``.
    """
    check_version()
    os.environ.setdefault("WARP_CACHE_PATH", str(Path(sys.prefix) / "warp"))  # its kernels go with the environment
    device = device_for(device)
    from .isaaclab_scene import open_scene

    made = open_scene(timestep=timestep, device=device, **scene)
    joints: Mapping[str, Any] = scene["joints"]
    said = f"Isaac Lab {version('isaaclab')}, Newton {version('newton')}, on {device}"
    return SteppedTask(made, facts(task, len(joints), len(scene["things"]), 1.0 / timestep, said), len(joints))


def check_version() -> None:
    """Raise `BadInput` where Isaac Lab is not there, or is of another major version."""
    try:
        found = version("isaaclab")
    except PackageNotFoundError:
        found = "no isaaclab"
    if found.partition(".")[0] != MAJOR:
        raise BadInput(f"isaaclab of {sys.executable}", got=found, expected=f"{MAJOR}.x", hint=INSTALL)


def device_for(wanted: str) -> str:
    """The device that is meant. Raises `BadInput`: a GPU where there is none."""
    import torch

    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise BadInput("--sim-device", got=wanted, expected="cpu: the worlds' interpreter finds no GPU")
    return "cuda:0" if there and wanted != "cpu" else "cpu"
