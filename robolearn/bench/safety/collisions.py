"""Verification of the filter's geometry by MuJoCo: random postures, and an armed filter driven at the arm itself.

The reference uses the arm's own MJCF and shares nothing with the filter's geometry.

Every geom may touch every other, but for those that MuJoCo itself leaves out (of one body, of bodies that a joint
joins), and: the base and the first link, the fingers of a hand, and what overlaps at home. The gripper may be open or
closed: the nearest of some openings counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.safety.collision import Collision
from hardware.safety.filter import SafetyFilter
from hardware.safety.measured import REST_S
from hardware.safety.states import JointTarget, SafetyRefused
from robots import AnyRobot
from robots.limits import Limits, Plane
from robots.spec import RobotSpec

Array = NDArray[np.float64]

REACH = 0.06  # [m] what is farther apart is not measured
CLEAR = 0.04  # [m] who refuses a posture that is farther than this from any collision is too careful
OPENINGS = 3
SET_POINTS, PERIOD, TRAVEL = 20, 0.005, 0.05  # of a way whose check is timed: number, [s], [rad] of each joint
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


class CollisionReference:
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
                kind, size, pos = mujoco.mjtGeom.mjGEOM_PLANE, [0, 0, 1], obstacle.normal * obstacle.offset
            else:
                turned = np.array([np.cos(0.5 * obstacle.yaw), 0.0, 0.0, np.sin(0.5 * obstacle.yaw)])
                kind, size, pos = mujoco.mjtGeom.mjGEOM_BOX, obstacle.half, obstacle.centre
            spec.worldbody.add_geom(name=obstacle.name, type=kind, size=size, pos=pos, quat=turned)
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
        joined = {*zip(self._model.exclude_signature >> 16, self._model.exclude_signature & 0xFFFF, strict=True)}
        joined |= {(int(parent), body) for body, parent in enumerate(self._model.body_parentid)}
        self._pairs = [
            (a, b)
            for b, second in enumerate(self._model.geom_bodyid)
            for a, first in enumerate(self._model.geom_bodyid[:b])
            if self._model.body_weldid[first] != self._model.body_weldid[second]
            and not {(first, second), (second, first)} & joined
        ]
        self._left_out, self._near_home = np.zeros(0, np.int64), np.zeros(0, np.int64)
        pairs, distances = self._contacts(robot.home)
        at_home = self._model.geom_bodyid[pairs].min(1, initial=1) > 0
        self._left_out = _key(pairs[at_home & (distances < 0.0)])
        self._near_home = _key(pairs[at_home & (distances < CLEAR)])

    def look(self, q: ArrayLike) -> Distances:
        """Distances at `q` (n,) [rad]."""
        return self._look(q, REACH)

    def depth(self, q: ArrayLike) -> float:
        """Depth of the deepest overlap at `q` (n,) [m], 0 without one. Quicker than `look`."""
        found = self._look(q, 0.0)
        return max(-found.own, -found.around, 0.0)

    def pair_distances(self, q: ArrayLike) -> Array:
        """Distance of each pair of geoms that may touch, by `mj_geomDistance` [m], at most `REACH`; gripper open.

        A filter on MuJoCo would compute these for each set-point of a way; see `cost_of_a_check`.
        """
        self._data.qpos[self._joints] = q
        self._data.qpos[self._fingers] = self._openings[-1]
        mujoco.mj_kinematics(self._model, self._data)
        return np.array([mujoco.mj_geomDistance(self._model, self._data, a, b, REACH, None) for a, b in self._pairs])

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


def compare_postures(
    robot: RobotSpec, limits: Limits, postures: int, seed: int, show: Callable[[int], None] = lambda done: None
) -> dict[str, Any]:
    """Random postures inside the joint limits: does the filter's geometry refuse what overlaps, and only what is near?

    Returns:
      ``postures``; ``overlapping`` by MuJoCo; ``let_through`` of those, and how deep the worst one overlaps,
      ``depth_mm``; ``refused`` of all; ``refused_clear`` of those, all of whose distances are more than `CLEAR`;
      ``refused_far`` because of two bodies that MuJoCo finds farther apart than `CLEAR`.
    """
    reference = CollisionReference(robot, limits)
    collision = Collision(robot.chain, robot.pieces, limits, np.array(robot.home))
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(("overlapping", "let_through", "refused", "refused_clear", "refused_far"), 0)
    deepest = 0.0
    for k in range(postures):
        q = rng.uniform(limits.lower, limits.upper)
        depth = reference.depth(q)
        pairs = [pair for pair in collision.look(q[None]) if pair.excess > 0.0]
        counts["overlapping"] += depth > 0.0
        if pairs:
            found = reference.look(q)
            counts["refused"] += 1
            counts["refused_clear"] += found.own >= 0.0 and min(found.free, found.around) > CLEAR
            counts["refused_far"] += any(reference.between(q, *pair.names) > CLEAR for pair in pairs)
        elif depth > 0.0:
            counts["let_through"] += 1
            deepest = max(deepest, depth)
        if (k + 1) % 1000 == 0:
            show(k + 1)
    return {"postures": postures, **counts, "depth_mm": 1e3 * deepest}


def cost_of_a_check(robot: RobotSpec, limits: Limits, postures: int, seed: int) -> dict[str, float]:
    """Median wall time of a collision check, by the filter's geometry and by MuJoCo.

    Returns:
      ``check_us``: the filter's verdict of a posture; ``way_us``: of a way of ``way_set_points`` that ends at rest, and
      of all that lies between them; ``gaps_us``: its distances of all ``pairs``; ``mujoco_us``: distances of all
      ``mujoco_pairs`` by `mj_geomDistance`; ``forward_us``, ``mujoco_forward_us``: kinematics alone.
    """
    reference, chain = CollisionReference(robot, limits), robot.chain
    collision = Collision(chain, robot.pieces, limits, np.array(robot.home))
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    data = mujoco.MjData(model)
    ways: dict[str, Callable[[Array], Any]] = {
        "check_us": lambda q: collision.look(q[None]),
        "way_us": lambda q: collision.look(q + np.linspace(0.0, TRAVEL, SET_POINTS)[:, None], SET_POINTS * PERIOD),
        "gaps_us": collision.gaps,
        "mujoco_us": reference.pair_distances,
        "forward_us": lambda q: chain.forward(q[None]),
        "mujoco_forward_us": lambda q: mujoco.mj_kinematics(model, data),
    }
    rng = np.random.default_rng(seed)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for k in range(postures + 10):  # the first warm up
        q = rng.uniform(limits.lower, limits.upper)
        data.qpos[: len(q)] = q
        for name, way in ways.items():
            begun = time.perf_counter()
            way(q)
            if k >= 10:
                taken[name].append(time.perf_counter() - begun)
    counts = {
        "way_set_points": SET_POINTS,
        "pairs": len(collision.arm.pairs),
        "mujoco_pairs": len(reference.pair_distances(robot.home)),
    }
    return {name: 1e6 * float(np.median(values)) for name, values in taken.items()} | counts


class DrivenFilter:
    """A safety filter with a clock of its own, whose arm, or two of them, is where it was commanded to.

    Args:
      robot, limits: of the filter.
      period: of the filter [s].
      seed: of everything random.
    """

    def __init__(self, robot: AnyRobot, limits: Limits, period: float, seed: int) -> None:
        self.now = 0.0
        self.filter = SafetyFilter(robot, robot.joints, limits, period, lambda: self.now)
        self._limits, self._period = limits, period
        self._joints, self._home = robot.joints, np.array(robot.home)
        self._q = self._home.copy()
        self._rng = np.random.default_rng(seed)

    def armed(self) -> bool:
        """Rest, reset and arm; where that is refused the arm is put at its home."""
        for _ in range(math.ceil(REST_S / self._period) + 2):
            self.pass_period()
        try:
            self.filter.reset()
            self.filter.arm()
        except SafetyRefused:
            self._q = self._home.copy()
            return False
        return True

    def pass_period(self) -> None:
        """A period passes, the dead-man's switch is held and the arm is measured."""
        self.now += self._period
        self.filter.deadman(True)
        self.filter.measured(self._joints, self._q)


class Attack(DrivenFilter):
    """An armed filter, and a driver who wants the arm in itself or in an obstacle; see `DrivenFilter`.

    Attributes:
      overlaps: commands at which something overlaps.
      commands: all of them.
      tries: how often the driver chose a goal that overlaps.
    """

    def __init__(self, robot: RobotSpec, limits: Limits, period: float, seed: int) -> None:
        super().__init__(robot, limits, period, seed)
        self.overlaps = self.commands = self.tries = self.stopped = 0
        self._reference = CollisionReference(robot, limits)

    def run(self, tries: int) -> None:
        """So many goals, from home and from wherever the one before ended."""
        for k in range(tries):
            if k % 3 == 0:
                self._q = self._home.copy()
            self.tries += 1
            self._drive(self._bad_goal(), self._rng.uniform(0.05, 1.0) * self._limits.max_jump)

    def _bad_goal(self) -> Array:
        """A posture that overlaps, near where the arm is if there is one."""
        for size in (0.8, 1.5, 3.0, 6.3, 6.3, 6.3):
            for _ in range(60):
                low = np.maximum(self._limits.lower, self._q - size)
                high = np.minimum(self._limits.upper, self._q + size)
                q = self._rng.uniform(low, high)
                if self._reference.depth(q) > 0.005:
                    return q
        return self._rng.uniform(self._limits.lower, self._limits.upper)

    def _drive(self, goal: Array, step: float) -> None:
        """Towards the goal by the shortest way, until the arm stands or is stopped; perhaps an e-stop on the way."""
        if not self.armed():
            return
        stop_at = self._rng.integers(20, 400) if self._rng.random() < 0.3 else -1
        still = 0
        for k in range(4000):
            self.pass_period()
            if k == stop_at:
                self.filter.estop()
            away = goal - self._q
            self.filter.target(JointTarget(self._joints, self._q + np.clip(away, -step, step)))
            command = self.filter.step()
            if command is None:
                self.stopped += 1
                return
            still = still + 1 if np.array_equal(command.positions, self._q) else 0
            self._q = command.positions.copy()
            self.commands += 1
            self.overlaps += self._reference.depth(self._q) > 0.0
            if still > 20:
                self.stopped += self.filter.reason != ""
                self.filter.disarm()
                self.now += self._period
                self.filter.step()
                return
