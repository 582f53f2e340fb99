"""An independent witness of collisions: MuJoCo, on the arm's own MJCF. It shares nothing with the filter's geometry.

Every geom may touch every other, but for those that MuJoCo itself leaves out (of one body, of bodies that a joint
joins), and: the base and the first link, the fingers of a hand, and what overlaps at home. The gripper may be open or
closed: the nearest of some openings counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from robots.limits import Limits
from robots.obstacles import Plane
from robots.spec import RobotSpec

Array = NDArray[np.float64]

REACH = 0.06  # [m] what is farther apart is not measured
CLEAR = 0.04  # [m] who refuses a posture that is farther than this from any collision is too careful
OPENINGS = 3
HELD = "what the gripper holds"


class Distances(NamedTuple):
    """Smallest distances at a posture [m], at most `REACH`; negative: overlap.

    Attributes:
      own: between two links.
      free: the same without pairs that are nearer than `CLEAR` at home and so, by design, mostly stay.
      around: between a link, or what the gripper holds, and an obstacle.
    """

    own: float
    free: float
    around: float


class CollisionJudge:
    """Measures distances between the links of an arm, and to obstacles.

    Args:
      robot: the arm.
      limits: their obstacles and the box that the gripper holds count, nothing else.
    """

    def __init__(self, robot: RobotSpec, limits: Limits) -> None:
        spec = mujoco.MjSpec.from_file(str(robot.mjcf))
        first = spec.joint(robot.joints[0]).parent
        fingers = [spec.joint(name).parent for name in robot.gripper.joints]
        base = first.parent
        while base.name != "world":
            spec.add_exclude(bodyname1=base.name, bodyname2=first.name)
            base = base.parent
        if len(fingers) == 2:
            spec.add_exclude(bodyname1=fingers[0].name, bodyname2=fingers[1].name)
        site = spec.site(robot.tcp_site)
        if limits.held is not None:
            lower, upper = limits.held
            turned = np.empty(4)
            mujoco.mju_mat2Quat(turned, _frame(robot)[1].ravel())
            site.parent.add_geom(
                name=HELD, type=mujoco.mjtGeom.mjGEOM_BOX, size=0.5 * (upper - lower), quat=turned,
                pos=_frame(robot)[0] + _frame(robot)[1] @ (0.5 * (lower + upper)),
            )  # fmt: skip
        for obstacle in limits.obstacles:
            if isinstance(obstacle, Plane):
                turned = np.empty(4)
                mujoco.mju_quatZ2Vec(turned, obstacle.normal)
                shape: dict[str, Any] = {
                    "type": mujoco.mjtGeom.mjGEOM_PLANE,
                    "size": [0, 0, 1],
                    "pos": obstacle.normal * obstacle.offset,
                    "quat": turned,
                }
            else:
                half = 0.5 * obstacle.yaw
                shape = {
                    "type": mujoco.mjtGeom.mjGEOM_BOX,
                    "size": obstacle.half,
                    "pos": obstacle.centre,
                    "quat": [np.cos(half), 0, 0, np.sin(half)],
                }
            spec.worldbody.add_geom(name=obstacle.name, **shape)
        for geom in spec.geoms:
            geom.contype = geom.conaffinity = 1
            geom.margin, geom.gap = REACH, 0.0
        self._model = spec.compile()
        self._data = mujoco.MjData(self._model)
        bodies = [self._model.body(body).name for body in self._model.geom_bodyid]
        things = {HELD, *(obstacle.name for obstacle in limits.obstacles)}
        geoms = [self._model.geom(i).name for i in range(len(bodies))]
        self._names = [geom if geom in things else body for geom, body in zip(geoms, bodies, strict=True)]
        self._joints = [int(self._model.joint(name).qposadr[0]) for name in robot.joints]
        fingers_at = [int(self._model.joint(name).qposadr[0]) for name in robot.gripper.joints]
        ranges = [self._model.joint(name).range for name in robot.gripper.joints]
        shares = np.linspace(0.0, 1.0, OPENINGS) if fingers_at else np.zeros(1)
        self._fingers = fingers_at
        self._openings = [[low + share * (high - low) for low, high in ranges] for share in shares]
        self._left_out, self._near_home = np.zeros(0, np.int64), np.zeros(0, np.int64)
        pairs, distances = self._contacts(robot.home)
        at_home = self._model.geom_bodyid[pairs].min(1, initial=1) > 0
        self._left_out = _key(pairs[at_home & (distances < 0.0)])
        self._near_home = _key(pairs[at_home & (distances < CLEAR)])

    def look(self, q: ArrayLike) -> Distances:
        """Distances at `q` (n,) [rad]."""
        return self._look(q, REACH)

    def depth(self, q: ArrayLike) -> float:
        """How deep anything overlaps at `q` (n,) [m]; 0: nothing does. Quicker than `look`."""
        found = self._look(q, 0.0)
        return max(-found.own, -found.around, 0.0)

    def _look(self, q: ArrayLike, reach: float) -> Distances:
        pairs, distances = self._contacts(q, reach)
        key = _key(pairs)
        around = self._model.geom_bodyid[pairs].min(1, initial=1) == 0
        own = ~around & ~np.isin(key, self._left_out)
        free = own & ~np.isin(key, self._near_home)
        return Distances(*(float(distances[which].min(initial=reach)) for which in (own, free, around)))

    def between(self, q: ArrayLike, first: str, second: str) -> float:
        """Distance of two bodies, or of a body and an obstacle, by their names [m], at most `REACH`."""
        pairs, distances = self._contacts(q)
        names = [{self._names[a], self._names[b]} == {first, second} for a, b in pairs]
        return float(distances[names].min(initial=REACH))

    def _contacts(self, q: ArrayLike, reach: float = REACH) -> tuple[NDArray[np.int64], Array]:
        """(m, 2) geoms and (m,) distances [m] of all that are nearer than `reach`, at all openings."""
        self._model.geom_margin[:] = reach
        pairs, distances = [], []
        for opening in self._openings:
            self._data.qpos[self._joints] = q
            self._data.qpos[self._fingers] = opening
            mujoco.mj_kinematics(self._model, self._data)
            mujoco.mj_collision(self._model, self._data)
            pairs.append(self._data.contact.geom.reshape(-1, 2).copy())
            distances.append(self._data.contact.dist.copy())
        return np.concatenate(pairs), np.concatenate(distances)


def _key(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.sort(pairs, axis=1) @ np.array([10_000, 1])


def _frame(robot: RobotSpec) -> tuple[Array, Array]:
    """Position and orientation of the tcp's site in its body."""
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    rot = np.empty(9)
    mujoco.mju_quat2Mat(rot, model.site(robot.tcp_site).quat)
    return model.site(robot.tcp_site).pos.copy(), rot.reshape(3, 3)
