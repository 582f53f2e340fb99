"""A small set with two cameras, made once; whoever damages it takes a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import EpisodeWriter

HZ = 10.0
LENGTHS = (14, 9, 16)
SIZE = 64
CAMERAS = ("front", "wrist")


def vectors() -> Interface:
    """proprio (3,), objects (2,), action (2,) with a gripper."""
    return Interface(
        observation={"proprio": ArraySpec((3,), names=("a", "b", "c")), "objects": ArraySpec((2,))},
        action=ArraySpec((2,), names=("dx", "gripper")),
        control_hz=HZ,
        embodiment="panda",
        action_kind="tcp_delta",
        extra={"gripper": [0.0, 0.08]},
    )


def with_cameras() -> Interface:
    plain = vectors()
    images = {f"images.{camera}": ArraySpec((SIZE, SIZE, 3), "uint8") for camera in CAMERAS}
    return Interface({**plain.observation, **images}, plain.action, HZ, "panda", "tcp_delta", plain.extra)


def make_episode(e: int, length: int, *, cameras: bool = True, success: bool | None = None) -> Episode:
    """Numbers and pictures that tell episode and frame: the brightness of a bar grows with the frame."""
    t = np.arange(length)
    success = e % 2 == 0 if success is None else success
    observation = {
        "proprio": np.stack([np.full(length, e), t, np.sin(t + e)], 1).astype(np.float32),
        "objects": np.stack([t * 0.5, np.full(length, e)], 1).astype(np.float32),
    }
    if cameras:
        for c, camera in enumerate(CAMERAS):
            images = np.full((length, SIZE, SIZE, 3), 20, np.uint8)
            for i in t:
                images[i, :, 4 * c : 40] = 30 + 10 * i + 20 * e % 40
            observation[f"images.{camera}"] = images
    return Episode(
        observation=observation,
        action=np.stack([np.sin(t + e) * 0.9, np.where(t < length // 2, 1.0, -1.0)], 1).astype(np.float32),
        reward=(t == length - 1).astype(np.float32) * success,
        success=success,
        terminated=success,
        truncated=not success,
        task="lift the cube" if e < 2 else "place it",
        intervention=t == 3,
        stamps={"proprio": 1000.0 + t / HZ + 0.001 * e, "images.front": 999.9 + t / HZ},
        final={key: values[-1] + 1 for key, values in observation.items()} if e != 1 else {},
    )


def write(path: Path, lengths: tuple[int, ...] = LENGTHS, cameras: bool = False) -> Path:
    interface = with_cameras() if cameras else vectors()
    with EpisodeWriter(path, interface, stamps=["proprio", "images.front"]) as writer:
        for e, length in enumerate(lengths):
            writer.write(make_episode(e, length, cameras=cameras))
    return path


@pytest.fixture(scope="session")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three episodes with two cameras; to be read only."""
    return write(tmp_path_factory.mktemp("filmed") / "set", cameras=True)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without images; to be read only."""
    return write(tmp_path_factory.mktemp("plain") / "set")


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a set to be damaged."""

    def make(path: Path) -> Path:
        return Path(shutil.copytree(path, tmp_path / "copy"))

    return make
