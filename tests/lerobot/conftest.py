"""These tests need LeRobot, which lives in an environment of its own: `make test-lerobot`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import EpisodeWriter
from robolearn.data.writing import locked_dataset

# Where it is missing nothing is collected, and `make test-lerobot` fails for that.
collect_ignore_glob = [] if importlib.util.find_spec("lerobot") else ["test_*.py"]
if not collect_ignore_glob and importlib.util.find_spec("lerobot.policies.pi_gemma") is None:
    collect_ignore_glob = ["test_lerobot_pi.py"]  # of newer ones: `make test-lerobot-pi`

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched from anywhere

HZ = 20
CAMERAS = {"front": (48, 64), "wrist": (32, 32)}
LENGTHS = (7, 1, 12, 5, 9, 6)


def color(episode: int, step: int, camera: int) -> int:
    """What every pixel of an image says about its place; neighbours differ by more than a video loses."""
    return 20 + (37 * episode + 11 * step + 90 * camera) % 200


@pytest.fixture(scope="session")
def interface() -> Interface:
    pictures = {f"images.{name}": ArraySpec((*size, 3), "uint8") for name, size in CAMERAS.items()}
    vectors = {"proprio": ArraySpec((3,), names=("a", "b", "c")), "objects": ArraySpec((2,))}
    return Interface({**vectors, **pictures}, ArraySpec((2,), names=("x", "y")), HZ, "panda", "tcp_delta")


@pytest.fixture(scope="session")
def episode() -> Callable[[int, int], Episode]:
    """``episode(e, length)``: every number and every picture says where it belongs."""

    def make(e: int, length: int) -> Episode:
        t = np.arange(length, dtype=np.float32)
        same = np.full(length, e, np.float32)
        pictures = {
            f"images.{name}": np.stack([np.full((*size, 3), color(e, step, c), np.uint8) for step in range(length)])
            for c, (name, size) in enumerate(CAMERAS.items())
        }
        return Episode(
            observation={"proprio": np.stack([same, t, -t], 1), "objects": np.stack([t / 2, same], 1), **pictures},
            action=np.stack([same, t], 1) / np.float32(100),
            reward=t,
            success=e % 2 == 0,
            terminated=e % 2 == 0,
            truncated=e % 2 == 1,
            task=("lift the cube", "place it")[e % 2],
            intervention=t == 1,
            stamps={"proprio": 1e9 + t / HZ, "images.front": 1e9 + t / HZ - 0.01},
        )

    return make


@pytest.fixture(scope="session")
def write(interface: Interface, episode) -> Callable[..., Path]:
    """``write(path, lengths)``: episodes as robolearn records them."""

    def make(path: Path, lengths: tuple[int, ...] = LENGTHS) -> Path:
        with EpisodeWriter(path, interface, stamps=["proprio", "images.front"]) as writer:
            for e, length in enumerate(lengths):
                writer.write(episode(e, length))
        return path

    return make


@pytest.fixture(scope="session")
def ours(write, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six episodes in several data files and several files of episodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locked_dataset, "DATA_BYTES", 900)
        patch.setattr(locked_dataset, "META_ROWS", 2)
        root = write(tmp_path_factory.mktemp("ours") / "set")
    assert len(list(root.glob("data/*/*.parquet"))) >= 3 and len(list(root.glob("meta/episodes/*/*.parquet"))) == 3
    return root
