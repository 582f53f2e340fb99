"""Visual randomisation: colours, patterns, light, cameras, exposure, blur and distractors, drawn for each episode.

It changes pictures alone: starts and physics are those without it. Patterns are made here, not photographed: grey
between DARKEST and 1, which multiplies the colour of a geom.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import cv2
import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import look_up
from sim.embedded.cousin_scenes import GEOMETRY, SceneIds
from sim.embedded.cousins import CousinRange

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


Array = NDArray[np.float64]
_ARRAYS = (*GEOMETRY, "geom_rgba", "geom_matid", "light_pos", "light_diffuse", "cam_pos", "cam_quat", "cam_fovy")
SURFACES = ("table", "floor")  # what may have a pattern
RANDOMISATION_STREAM = 0x100C  # apart from the numbers that starts and physics are drawn from


@dataclass(frozen=True)
class VisualRandomisation:
    """Widths of the distributions; 0 for none."""

    background: float = 0.0  # hue of table, floor and arm, as a share of the colour circle on either side
    objects: float = 0.0  # hue of the task's own things
    shade: float = 0.0  # saturation and value of every colour, relative
    light: float = 0.0  # strength of each light, relative, and where it stands [m]
    # camera_m, camera_deg: position [m] and direction [degrees] of the cameras that stand; of one on the arm a fifth of
    # the position, for its mount is stiff
    camera_m: float = 0.0
    camera_deg: float = 0.0
    lens_deg: float = 0.0  # field of view [degrees]
    exposure: float = 0.0  # brightness of the picture, relative, and a third of it for each colour channel
    blur_px: float = 0.0  # standard deviation of a Gaussian blur in a picture of 84 px, at most
    distractors: int = 0  # things that lie about, at most; they are seen and not felt
    textures: float = 0.0  # probability that table, and floor, have a pattern
    cousins: CousinRange | None = None  # shapes that the physics has
    thing: str = ""  # the body of theirs


RANDOMISATIONS: dict[str, VisualRandomisation] = {
    "none": VisualRandomisation(),
    "mild": VisualRandomisation(0.05, 0.02, 0.1, 0.15, 0.01, 1.0, 1.0, 0.1, 0.4, 0),
    "wild": VisualRandomisation(0.5, 0.06, 0.3, 0.5, 0.05, 5.0, 3.0, 0.3, 0.8, 3, 0.7),
}


def randomisation_named(name: str) -> VisualRandomisation:
    """The randomisation of ``--looks NAME``; raises `BadInput` for another name."""
    return look_up("looks", name, RANDOMISATIONS)


@dataclass(frozen=True)
class Distractor:
    """A box or ball on the table."""

    kind: mujoco.mjtGeom
    position: Array
    size: Array
    rgba: NDArray[np.float32]


@dataclass(frozen=True)
class Appearance:
    """Appearance of a model; the arrays are those of `mujoco.MjModel` with the same names."""

    geom_type: NDArray[np.int32]
    geom_size: Array
    geom_pos: Array
    geom_quat: Array
    geom_rgba: NDArray[np.float32]
    geom_matid: NDArray[np.int32]
    light_pos: Array
    light_diffuse: NDArray[np.float32]
    cam_pos: Array
    cam_quat: Array
    cam_fovy: Array
    # ambient, diffuse: (3,) of the headlight
    ambient: NDArray[np.float32]
    diffuse: NDArray[np.float32]
    gain: Array  # (3,) factors of the picture's channels
    blur: float = 0.0  # standard deviation in a picture of 84 px
    distractors: tuple[Distractor, ...] = ()

    @staticmethod
    def of(model: mujoco.MjModel) -> Appearance:
        """The model's own appearance."""
        head = model.vis.headlight
        arrays = {name: getattr(model, name).copy() for name in _ARRAYS}
        return Appearance(**arrays, ambient=head.ambient.copy(), diffuse=head.diffuse.copy(), gain=np.ones(3))

    def apply_to(self, model: mujoco.MjModel) -> None:
        """Write it into `model`, for the next `mj_kinematics`."""
        for name in _ARRAYS:
            getattr(model, name)[:] = getattr(self, name)
        model.vis.headlight.ambient, model.vis.headlight.diffuse = self.ambient, self.diffuse

    def add_distractors(self, scene: mujoco.MjvScene) -> None:
        """Lay the distractors into an updated scene."""
        for thing in self.distractors:
            if scene.ngeom >= scene.maxgeom:
                return
            mujoco.mjv_initGeom(
                scene.geoms[scene.ngeom], thing.kind, thing.size, thing.position, np.eye(3).reshape(9), thing.rgba
            )
            scene.ngeom += 1

    def expose_and_blur(self, picture: NDArray[np.uint8]) -> None:
        """Expose and blur `picture` (H, W, 3) in place."""
        if self.blur > 0.0:
            cv2.GaussianBlur(picture, (0, 0), max(self.blur * picture.shape[0] / 84.0, 1e-3), dst=picture)
        if np.any(self.gain != 1.0):
            np.copyto(picture, np.clip(picture * self.gain + 0.5, 0, 255).astype(np.uint8))


def draw_appearance(
    config: VisualRandomisation,
    own: Appearance,
    model: mujoco.MjModel,
    things: Collection[int],
    rng: np.random.Generator,
) -> Appearance:
    """One episode's appearance. `things`: ids of the bodies that are the task's own."""

    def around(width: float, *shape: int) -> Array:
        return width * rng.uniform(-1.0, 1.0, shape)

    bodies = model.geom_bodyid
    hue = np.where(np.isin(bodies, list(things)), config.objects, config.background)
    turned = around(1.0, model.nbody)[bodies] * hue  # a body keeps one colour
    shades = 1.0 + around(config.shade, model.nbody, 2)[bodies]
    rgba = own.geom_rgba.copy()
    for i in range(model.ngeom):
        rgba[i, :3] = _recoloured(rgba[i, :3], turned[i], *shades[i], grey_to=config.background)
    still = np.array([model.body(int(b)).weldid[0] == 0 for b in model.cam_bodyid])
    quat = own.cam_quat.copy()
    for i in range(model.ncam):
        turn = np.zeros(4)
        mujoco.mju_axisAngle2Quat(turn, _direction(rng), float(np.radians(around(config.camera_deg, 1)[0])))
        mujoco.mju_mulQuat(quat[i], own.cam_quat[i], turn)
    strength = 1.0 + around(config.light, model.nlight, 1)
    appearance = replace(
        own,
        geom_rgba=rgba,
        light_pos=own.light_pos + around(config.light, model.nlight, 3),
        light_diffuse=(own.light_diffuse * strength).astype(np.float32),
        cam_pos=own.cam_pos + around(config.camera_m, model.ncam, 3) * np.where(still, 1.0, 0.2)[:, None],
        cam_quat=quat,
        cam_fovy=own.cam_fovy + around(config.lens_deg, model.ncam),
        ambient=(own.ambient * (1.0 + around(0.5 * config.light, 1))).astype(np.float32),
        diffuse=(own.diffuse * (1.0 + around(config.light, 1))).astype(np.float32),
        gain=(1.0 + around(config.exposure, 1)) * (1.0 + around(config.exposure / 3.0, 3)),
        blur=float(rng.uniform(0.0, config.blur_px)) if config.blur_px else 0.0,
        distractors=tuple(_distractor(rng) for _ in range(rng.integers(config.distractors + 1))),
    )
    return replace(appearance, geom_matid=_patterned(config, own, model, rng)) if config.textures else appearance


def _patterned(
    config: VisualRandomisation, own: Appearance, model: mujoco.MjModel, rng: np.random.Generator
) -> NDArray[np.int32]:
    """The materials of the model's geoms, with a pattern for table and floor where the draw says so."""
    materials, patterns = own.geom_matid.copy(), patterns_of(model)
    for name in SURFACES if patterns else ():
        if rng.random() < config.textures:
            materials[model.geom(name).id] = rng.choice(patterns)
    return materials


def _recoloured(rgb: NDArray, turn: float, saturation: float, value: float, *, grey_to: float) -> Array:
    """`rgb` (3,) with its hue turned; what is grey gets up to half of `grey_to` of a colour."""
    h, s, v = colorsys.rgb_to_hsv(*map(float, rgb))
    s = s * saturation if s > 0.15 else s + abs(turn) * grey_to
    return np.array(colorsys.hsv_to_rgb((h + turn) % 1.0, min(max(s, 0.0), 1.0), min(max(v * value, 0.0), 1.0)))


def _direction(rng: np.random.Generator) -> Array:
    axis = rng.normal(size=3)
    return axis / np.linalg.norm(axis)


def _distractor(rng: np.random.Generator) -> Distractor:
    kind = (mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_SPHERE)[int(rng.integers(2))]
    size = rng.uniform(0.01, 0.03, 3)
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        size[1:] = size[0]
    # At the table's edges, where no task puts anything.
    place = np.array([rng.uniform(0.0, 0.8), rng.choice([-1.0, 1.0]) * rng.uniform(0.3, 0.45), size[2]])
    colour = colorsys.hsv_to_rgb(float(rng.random()), float(rng.uniform(0.3, 1.0)), float(rng.uniform(0.3, 1.0)))
    return Distractor(kind, place, size, np.array([*colour, 1.0], np.float32))


class VisualRandomiser:
    """The appearances of N worlds."""

    def __init__(
        self, model: mujoco.MjModel, config: VisualRandomisation, num_envs: int, bodies: Collection[str]
    ) -> None:
        self._model, self._config, self._own = model, config, Appearance.of(model)
        self._things = {int(model.body(name).id) for name in bodies}
        self._scene = SceneIds.of(model, config.cousins, config.thing) if config.cousins else None
        self._drawn: list[tuple[tuple[int, ...], Appearance] | None] = [None] * num_envs

    def appearance(self, world: int, episode: Iterable[int]) -> Appearance | None:
        """Of a world in the episode (seed, start id, number); None for the model's own."""
        if replace(self._config, thing="") == VisualRandomisation():
            return None
        key, drawn = tuple(int(part) for part in episode), self._drawn[world]
        if drawn is None or drawn[0] != key:
            rng = np.random.default_rng([*key, RANDOMISATION_STREAM])
            drawn = (key, self._shaped(draw_appearance(self._config, self._own, self._model, self._things, rng), key))
            self._drawn[world] = drawn
        return drawn[1]

    def _shaped(self, appearance: Appearance, key: tuple[int, ...]) -> Appearance:
        """`appearance` with the shapes of the episode `key`."""
        if self._scene is None or self._config.cousins is None:
            return appearance
        fields = {name: getattr(appearance, name).copy() for name in GEOMETRY}
        self._scene.write(fields, self._own.geom_pos, self._config.cousins.draw((key[0], key[1], key[2])))
        return replace(appearance, **fields)
