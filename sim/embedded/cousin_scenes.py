"""The scenes of N worlds: shapes, masses and places of `sim.embedded.cousins`, written into their models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from sim.embedded.cousins import Cousin, CousinRange, inertia
from sim.embedded.task import Array, Extent, Start

UPRIGHT, LYING = np.array([1.0, 0.0, 0.0, 0.0]), np.array([np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0])  # along z, along x
AWAY = np.array([0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0])  # under the floor, where nobody sees it
ROLLING = 0.002  # friction of what rolls, like a soft ball's [m]
APART = 0.13  # from the middle of the task's things to that of what stands about: room for a hand [m]
AREA = np.array([(0.25, 0.75), (-0.40, 0.40)])  # where that may stand, of the whole layout [m]
COLOURS = ((0.86, 0.72, 0.30), (0.35, 0.36, 0.55), (0.60, 0.38, 0.30), (0.42, 0.60, 0.58))
GEOMETRY = ("geom_type", "geom_size", "geom_pos", "geom_quat")
_T = mujoco.mjtGeom
TYPES = {
    "box": _T.mjGEOM_BOX, "cylinder": _T.mjGEOM_CYLINDER, "sphere": _T.mjGEOM_SPHERE, "capsule": _T.mjGEOM_CAPSULE,
}  # fmt: skip


def about_names(found: CousinRange | None) -> tuple[str, ...]:
    """The bodies that stand about."""
    return tuple(f"about{k}" for k in range(found.most_about if found else 0))


def prepare_cousins(spec: mujoco.MjSpec, found: CousinRange, thing: str) -> None:
    """Let the model of a scene have what `found` needs; `thing`: the body, of one box, whose shape differs."""
    # MuJoCo leaves out the turn of a geom that has none when the model is compiled.
    geom, body = spec.geom(thing), spec.body(thing)
    geom.quat = LYING
    body.mass, body.inertia, body.ipos, body.iquat = geom.mass, [1e-4] * 3, np.zeros(3), UPRIGHT
    body.explicitinertial = True
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)  # its boxes are those of the model
    for k, name in enumerate(about_names(found)):
        spec.worldbody.add_body(name=name, mocap=True, pos=AWAY[:3]).add_geom(
            name=name, type=_T.mjGEOM_BOX, size=[0.02] * 3, contype=2, conaffinity=3,
            rgba=[*COLOURS[k % len(COLOURS)], 1.0],
        )  # fmt: skip


def size_of(shape: str, half: Array) -> Array:
    """(3,) `geom_size` of a thing with these half sizes (3,)."""
    x, y, z = half
    return np.array({"box": (x, y, z), "cylinder": (y, z, 0.0), "sphere": (y, 0.0, 0.0)}.get(shape, (y, x - y, 0.0)))


def half_of(model: mujoco.MjModel, thing: str) -> Array:
    """(3,) half sizes of the box that is the body `thing` in the model [m]."""
    return model.geom(thing).size.copy()


@dataclass(frozen=True)
class SceneIds:
    """The geoms of a model whose geometry differs."""

    thing: int
    table: int
    about: tuple[int, ...]

    @staticmethod
    def of(model: mujoco.MjModel, found: CousinRange, thing: str) -> SceneIds:
        """Those of a prepared model."""
        about = tuple(int(model.geom(name).id) for name in about_names(found))
        return SceneIds(int(model.geom(thing).id), int(model.geom("table").id), about)

    def write(self, fields: Mapping[str, NDArray[Any]], own: Array, cousin: Cousin) -> None:
        """Write the geometry of `cousin` into `fields`, those of `GEOMETRY` of one model. `own` (ngeom, 3): the
        `geom_pos` of the twin."""
        kind, size, pos, quat = (fields[name] for name in GEOMETRY)
        kind[self.thing], size[self.thing] = TYPES[cousin.shape], size_of(cousin.shape, cousin.half)
        quat[self.thing] = LYING if cousin.shape == "capsule" else UPRIGHT
        pos[self.table] = own[self.table] + np.array([0.0, 0.0, cousin.table])
        for geom, half, rounded in zip(self.about, cousin.about, cousin.round, strict=False):
            shape = "cylinder" if rounded else "box"
            kind[geom], size[geom] = TYPES[shape], size_of(shape, half)


class CousinScenes:
    """The scenes of N worlds.

    Args:
      scale: of the layout before the arm.

    Attributes:
      body: id of the thing's body.
      mass, inertia: (N,) and (N, 3) of the thing in each world [kg, kg m²].
      extent: where the thing lies in each world.
    """

    def __init__(self, found: CousinRange, model: mujoco.MjModel, batch: Batch, thing: str, scale: float) -> None:
        self._range, self._model, self._thing, self._scale = found, model, thing, scale
        self._ids, self.body = SceneIds.of(model, found, thing), int(model.body(thing).id)
        names = (*GEOMETRY, "geom_rbound", "geom_aabb", "geom_condim", "geom_friction")
        self._fields = {name: batch.expand(name) for name in names}
        worlds = len(batch.bind("qpos"))
        self._half = half_of(model, thing)
        self.extent = Extent(np.tile(self._half, (worlds, 1)), np.zeros(worlds))
        self.mass, self.inertia = np.ones(worlds), np.ones((worlds, 3))
        self._drawn: list[Cousin | None] = [None] * worlds

    def draw(self, worlds: NDArray[np.int64], episodes: Sequence[tuple[int, int, int]]) -> None:
        """Draw the scenes of `worlds` (M,) in `episodes` (M); `set_const` is the caller's."""
        for w, key in zip(worlds, episodes, strict=True):
            self._drawn[w] = cousin = self._range.draw(key)
            self._ids.write({name: self._fields[name][w] for name in GEOMETRY}, self._model.geom_pos, cousin)
            self.extent.half[w], self.extent.table[w] = cousin.half, cousin.table
            self.mass[w], self.inertia[w] = cousin.mass, inertia(cousin.shape, cousin.half, cousin.mass)
            rolls = cousin.shape != "box"
            self._fields["geom_condim"][w, self._ids.thing] = 6 if rolls else 4
            self._fields["geom_friction"][w, self._ids.thing, 2] = ROLLING if rolls else 0.0001
            along_z = cousin.half[::-1] if cousin.shape == "capsule" else cousin.half
            self._bound(int(w), self._ids.thing, along_z)
            for geom, half in zip(self._ids.about, cousin.about, strict=False):
                self._bound(int(w), geom, half)

    def _bound(self, w: int, geom: int, half: Array) -> None:
        """Box and ball around a geom, by its half sizes (3,) in its own frame."""
        self._fields["geom_aabb"][w, geom] = [0.0, 0.0, 0.0, *half]
        self._fields["geom_rbound"][w, geom] = np.linalg.norm(half)

    def place(self, w: int, start: Start) -> Start:
        """`start` of the twin, in the scene of world `w`: all lies on its table, and things stand about it."""
        cousin = self._drawn[w]
        assert cousin is not None
        higher = np.array([0.0, 0.0, cousin.table, 0.0, 0.0, 0.0, 0.0])
        bodies = {name: pose + higher for name, pose in start.bodies.items()}
        bodies[self._thing][2] += cousin.half[2] - self._half[2]
        taken = [pose[:2] for pose in bodies.values()]
        for k, name in enumerate(about_names(self._range)):
            bodies[name] = AWAY
            if k < len(cousin.about):
                low, high = (AREA * self._scale).T
                places = low + cousin.places[:, k] * (high - low)
                gaps = np.linalg.norm(places[:, None] - np.array(taken), axis=2).min(1)
                if (free := np.flatnonzero(gaps > APART)).size:
                    x, y = places[free[0]]
                    bodies[name] = np.array([x, y, cousin.table + cousin.about[k, 2], 1.0, 0.0, 0.0, 0.0])
                    taken.append(places[free[0]])
        return replace(start, bodies=bodies)
