"""Patterns that tables and floors may have: wood, stone, cloth, tiles, stripes, specks. Made here, not photographed.

Each is grey between DARKEST and 1: the surface keeps the colour of its geom, which the pattern multiplies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import mujoco
import numpy as np
from numpy.typing import NDArray

Grey = NDArray[Any]
"""(EDGE, EDGE) in [0, 1]."""

EDGE = 128  # pixels of a pattern, which repeats
DARKEST = 0.45
PREFIX = "pattern/"  # of their materials' names
REPEAT_M = 0.4  # a pattern is about that large on a surface


def _noise(rng: np.random.Generator, cells: tuple[int, int]) -> Grey:
    """(EDGE, EDGE) smooth noise in [0, 1] of so many cells, which joins at its edges."""
    coarse = np.pad(rng.random(cells, np.float32), 2, mode="wrap")
    scale = (EDGE / cells[0], EDGE / cells[1])
    size = (round(coarse.shape[1] * scale[1]), round(coarse.shape[0] * scale[0]))
    fine = cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC)
    top, left = round(2 * scale[0]), round(2 * scale[1])
    return np.clip(fine[top : top + EDGE, left : left + EDGE], 0.0, 1.0)


def _wood(rng: np.random.Generator) -> Grey:
    x = np.arange(EDGE, dtype=np.float32)[None] / EDGE
    return 0.5 + 0.5 * np.sin(2 * np.pi * (6 * x + 1.5 * _noise(rng, (2, 6)))) * _noise(rng, (4, 64))


def _stone(rng: np.random.Generator) -> Grey:
    octaves = range(1, 6)
    return np.sum([0.5**octave * _noise(rng, (2 << octave, 2 << octave)) for octave in octaves], axis=0) / 0.97


def _cloth(rng: np.random.Generator) -> Grey:
    y, x = np.mgrid[:EDGE, :EDGE]
    return (0.35 * ((x // 2) % 2 + (y // 2) % 2) + 0.3 * _noise(rng, (32, 32))).astype(np.float32)


def _tiles(rng: np.random.Generator) -> Grey:
    y, x = np.mgrid[:EDGE, :EDGE]
    return (((x // 32) % 2 == (y // 32) % 2) * 0.7 + 0.3 * _noise(rng, (16, 16))).astype(np.float32)


def _stripes(rng: np.random.Generator) -> Grey:
    x = np.arange(EDGE)[None].repeat(EDGE, 0)
    return ((x // 16) % 2 * 0.8 + 0.2 * _noise(rng, (8, 8))).astype(np.float32)


def _specks(rng: np.random.Generator) -> Grey:
    return 1.0 - (_noise(rng, (32, 32)) > 0.72).astype(np.float32)


PATTERNS: dict[str, Callable[[np.random.Generator], Grey]] = {
    "wood": _wood,
    "stone": _stone,
    "cloth": _cloth,
    "tiles": _tiles,
    "stripes": _stripes,
    "specks": _specks,
}


def add_patterns(spec: mujoco.MjSpec) -> None:
    """Give `spec` a material for each pattern; none of its geoms has one of them yet."""
    for number, (name, made) in enumerate(PATTERNS.items()):
        grey = DARKEST + (1.0 - DARKEST) * np.clip(made(np.random.default_rng(number)), 0.0, 1.0)
        texture = spec.add_texture(
            name=f"{PREFIX}{name}", type=mujoco.mjtTexture.mjTEXTURE_2D, width=EDGE, height=EDGE, nchannel=3
        )
        texture.data = np.repeat((255 * grey).astype(np.uint8)[..., None], 3, 2).tobytes()
        material = spec.add_material(name=f"{PREFIX}{name}", texuniform=True, texrepeat=[1 / REPEAT_M] * 2)
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = texture.name


def patterns_of(model: mujoco.MjModel) -> list[int]:
    """Ids of the materials of `add_patterns`."""
    return [i for i in range(model.nmat) if model.mat(i).name.startswith(PREFIX)]
