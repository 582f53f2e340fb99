"""Conversion of actions in [-1, 1] to joint set-points, for N arms at once. Simulator and real arm share it.

`tcp_delta` (default): the action is a small motion of the tcp in its own frame, plus the gripper opening,

    T*_base,tcp = T_base,tcp · [ exp(Δr) | Δp ],   Δp = a[0:3] · 0.02 m,   Δr = a[3:6] · 0.10 rad
    gripper opening = (a[6] + 1)/2 · max width

measured from where the tcp *is*, so that the same observation and action lead to the same motion whatever was
commanded before. `joint_position`: a[0:n] spans the joint limits, a[n] the gripper.

`actions` goes the other way: which action leads to set-points that something behind the policy (a safety filter, a
leader arm) has chosen. For `tcp_delta` that is T_base,tcp(q)⁻¹ · T_base,tcp(goal), refined until the inverse kinematics
leads there: damped as it is, it falls short by some millionths of an action.

Set-points move to their goal within the arm's limits of speed and acceleration. On the arm the safety filter moves them
with jerk-limited motion. A simulator whose set-points jump teaches policies a quicker arm than there is: one that lifts
97 of 100 cubes there lifts 75 behind the filter. This is the same motion without the jerk phases (a few milliseconds,
below a step of the physics):

    v* = sign(e) · min(v_max,  a (√(Δt²/4 + 2|e|/a) − Δt/2),  |e|/Δt),   e = goal − q
    v ← v + clip(v* − v, ±a Δt),   q ← q + v Δt

v* is the highest speed from which steps of a Δt come to rest at the goal, Δt (v + (v − aΔt) + …) = e, or past it by
less than a Δt².
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, check_choice
from robolearn.core.se3 import matrix_to_rotvec, rotvec_to_matrix
from robots.chain import Array
from robots.compiled import compiled
from robots.ik import solve
from robots.pair import AnyRobot, PairSpec
from robots.spec import RobotSpec

CONTROL_HZ = 20.0  # of the simulated worlds; a contract states its own
TRANSLATION = ("dx", "dy", "dz")  # names of components
GRIPPER = "gripper"  # of the opening, among the components of an action and among targets
DELTA_POS = 0.02  # [m] a step at full deflection
DELTA_ROT = 0.10  # [rad] a step at full deflection
REFINEMENTS = 3  # of an inverse; each takes three digits off its error


class Control:
    """Turns actions into joint set-points; no joint moves more than velocity / `control_hz` in a step. Of a pair of
    arms openings are (N, 2), and all else that has n or Da columns has those of both, one after the other."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.spec = ArraySpec((len(names),), names=names)

    def targets(self, q: Array, tcp: tuple[Array, Array] | None, action: NDArray) -> tuple[Array, Array]:
        """Joint set-points and gripper openings.

        Args:
          q: (N, n) measured joint positions [rad].
          tcp: (N, 3) and (N, 3, 3) pose of the tcp at `q`, if it is known already.
          action: (N, Da), clipped to [-1, 1].

        Returns:
          (N, n) [rad] and (N,) [m].
        """
        raise NotImplementedError

    def actions(self, q: Array, goal: Array, width: Array) -> NDArray[np.float64]:
        """The inverse of `targets`: actions that lead from `q` to `goal` and `width`.

        Where no action does (the goal is too far, or no tcp motion leads to exactly these joints), one that leads the
        tcp as near as can be.

        Args:
          q: (N, n) measured joint positions [rad].
          goal: (N, n) joint set-points [rad].
          width: (N,) gripper openings [m].

        Returns:
          (N, Da) in [-1, 1].
        """
        raise NotImplementedError


class TcpDelta(Control):
    """Motion of the tcp in its own frame, by inverse kinematics."""

    def __init__(self, robot: RobotSpec, control_hz: float = CONTROL_HZ) -> None:
        super().__init__((*TRANSLATION, "rx", "ry", "rz", GRIPPER))
        self.robot, self._max_step = robot, np.asarray(robot.velocity) / control_hz
        self._rest = np.asarray(robot.home)

    def targets(self, q: Array, tcp: tuple[Array, Array] | None, action: NDArray) -> tuple[Array, Array]:
        a = np.clip(action.astype(np.float64), -1.0, 1.0)
        tcp_pos, tcp_rot = self.robot.chain.forward(q) if tcp is None else tcp
        pos = tcp_pos + np.einsum("nij,nj->ni", tcp_rot, a[:, :3] * DELTA_POS)
        rot = tcp_rot @ rotvec_to_matrix(a[:, 3:6] * DELTA_ROT)
        goal = solve(self.robot.chain, q, pos, rot, rest=self._rest, max_step=self._max_step, config=self.robot.ik)
        return goal, 0.5 * (a[:, 6] + 1.0) * self.robot.gripper.max_width

    def actions(self, q: Array, goal: Array, width: Array) -> NDArray[np.float64]:
        grip = _gripper_action(width, self.robot)
        tcp = self.robot.chain.forward(q)
        wanted = self._motion(tcp, goal)
        best, least = np.clip(wanted, -1.0, 1.0), np.full(len(q), np.inf)
        a = best
        for _ in range(REFINEMENTS + 1):
            reached, _ = self.targets(q, tcp, np.concatenate([a, grip], -1))
            missed = wanted - self._motion(tcp, reached)
            error = np.abs(missed).max(-1)
            better = error < least
            best, least = np.where(better[:, None], a, best), np.where(better, error, least)
            a = np.clip(a + missed, -1.0, 1.0)
        return np.concatenate([best, grip], -1)

    def _motion(self, tcp: tuple[Array, Array], goal: Array) -> Array:
        """(N, 6) from the pose `tcp` to that at the joint positions `goal`, in steps at full deflection."""
        pos, rot = self.robot.chain.forward(goal)
        step = np.einsum("nji,nj->ni", tcp[1], pos - tcp[0]) / DELTA_POS
        return np.concatenate([step, matrix_to_rotvec(np.swapaxes(tcp[1], -1, -2) @ rot) / DELTA_ROT], -1)


class JointPosition(Control):
    """Joint positions over their whole range."""

    def __init__(self, robot: RobotSpec, control_hz: float = CONTROL_HZ) -> None:
        super().__init__((*robot.joints, GRIPPER))
        self.robot, self._max_step = robot, np.asarray(robot.velocity) / control_hz

    def targets(self, q: Array, tcp: tuple[Array, Array] | None, action: NDArray) -> tuple[Array, Array]:
        a = np.clip(action.astype(np.float64), -1.0, 1.0)
        lower, upper = self.robot.lower, self.robot.upper
        goal = lower + 0.5 * (a[:, :-1] + 1.0) * (upper - lower)
        goal = q + np.clip(goal - q, -self._max_step, self._max_step)
        return goal, 0.5 * (a[:, -1] + 1.0) * self.robot.gripper.max_width

    def actions(self, q: Array, goal: Array, width: Array) -> NDArray[np.float64]:
        lower, upper = self.robot.lower, self.robot.upper
        a = 2.0 * (goal - lower) / (upper - lower) - 1.0
        return np.concatenate([np.clip(a, -1.0, 1.0), _gripper_action(width, self.robot)], -1)


class PairControl(Control):
    """The controls of two arms, side by side: an action is that of the first arm and then that of the second.

    Each moves its tcp in the tcp's own frame, so it does not matter where the arms stand.
    """

    def __init__(self, pair: PairSpec, arms: tuple[Control, ...]) -> None:
        super().__init__(
            tuple(p.named(name) for p, arm in zip(pair.parts, arms, strict=True) for name in arm.spec.names)
        )
        self.robot, self._arms = pair, arms
        self._ends = np.cumsum([arm.spec.size for arm in arms])[:-1]

    def targets(self, q: Array, tcp: tuple[Array, Array] | None, action: NDArray) -> tuple[Array, Array]:
        apart = np.split(action, self._ends, axis=-1)
        found = [
            arm.targets(np.ascontiguousarray(q[:, at]), None, one)
            for arm, at, one in zip(self._arms, self.robot.slices, apart, strict=True)
        ]
        return np.concatenate([goal for goal, _ in found], -1), np.stack([width for _, width in found], -1)

    def actions(self, q: Array, goal: Array, width: Array) -> NDArray[np.float64]:
        return np.concatenate(
            [
                arm.actions(q[:, at], goal[:, at], width[:, k])
                for k, (arm, at) in enumerate(zip(self._arms, self.robot.slices, strict=True))
            ],
            -1,
        )


def _gripper_action(width: Array, robot: RobotSpec) -> Array:
    """(N,) openings [m] → (N, 1) in [-1, 1]; an arm without a gripper commands 0."""
    most = robot.gripper.max_width
    share = np.zeros_like(width) if most <= 0 else 2.0 * width / most - 1.0
    return np.clip(share, -1.0, 1.0)[:, None]


CONTROLS: dict[str, type[TcpDelta] | type[JointPosition]] = {"tcp_delta": TcpDelta, "joint_position": JointPosition}


def make_control(kind: str, robot: AnyRobot, control_hz: float = CONTROL_HZ) -> Control:
    """The control called `kind`; no joint moves more than velocity / `control_hz` in a step."""
    check_choice("action kind", kind, CONTROLS)
    if isinstance(robot, PairSpec):
        return PairControl(robot, tuple(CONTROLS[kind](part.robot, control_hz) for part in robot.parts))
    return CONTROLS[kind](robot, control_hz)


@compiled()
def advance(q: Array, v: Array, goal: Array, v_max: Array, a_max: Array, dt: float, rows: NDArray[np.int64]) -> None:
    """Move set-points by one step of time, in place.

    Args:
      q: (N, n) set-points [rad].
      v: (N, n) their velocities [rad/s].
      goal: (N, n) where they shall come to rest [rad].
      v_max, a_max: (n,) limits [rad/s], [rad/s²].
      dt: Δt [s].
      rows: (M,) int64, which arms.
    """
    for w in rows:
        for i in range(q.shape[1]):
            e = goal[w, i] - q[w, i]
            d, a = abs(e), a_max[i]
            wanted = min(v_max[i], a * (np.sqrt(0.25 * dt * dt + 2.0 * d / a) - 0.5 * dt), d / dt)
            change = (wanted if e > 0 else -wanted) - v[w, i]
            v[w, i] += min(max(change, -a * dt), a * dt)
            q[w, i] += v[w, i] * dt


@compiled()
def travel(
    q: Array, v: Array, goal: Array, latest: Array, delay: NDArray[np.int64], v_max: Array, a_max: Array, dt: float,
    rows: NDArray[np.int64], out: Array,
) -> None:  # fmt: skip
    """`advance` step by step, with goals that take effect late; everything but `latest` is changed in place.

    Args:
      q, v, goal, v_max, a_max, dt, rows: see `advance`; S steps are taken.
      latest: (M, n) what the goals of `rows` become [rad],
      delay: (M,) before this step, from 0.
      out: (M, S, n) set-points after each step [rad].
    """
    for i in range(out.shape[1]):
        for k in range(len(rows)):
            if delay[k] == i:
                goal[rows[k]] = latest[k]
        advance(q, v, goal, v_max, a_max, dt, rows)
        for k in range(len(rows)):
            out[k, i] = q[rows[k]]
