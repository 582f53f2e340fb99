"""N copies of one model and where things lie in their state: what every world of an embedded task is made of.

Positions of free bodies and the arm's forward kinematics are computed from the state itself, because the batch's
derived fields describe the state one step earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError
from numpy.typing import NDArray

from robolearn.core.errors import BadInput
from robolearn.core.se3 import matrix_to_quat, quat_to_matrix, rotvec_to_matrix
from robots import CONTROL_HZ, AnyRobot, RobotSpec, solve
from robots.dynamics import NONE, PARAMETERS, DynamicsConfig
from robots.stations import Contract
from sim.embedded.cousin_scenes import CousinScenes, about_names, half_of
from sim.embedded.distractor import place_distractor
from sim.embedded.dynamics import ArmDynamics, Episode
from sim.embedded.scene import build_model, check_robot
from sim.embedded.task import Array, BodyPose, Extent, Start, State, Task, layout_of
from sim.vector import episode_rng

THINGS = ("contact_friction", "object_mass")  # parameters of a task's things


@dataclass(frozen=True)
class _Nominal:
    """A body whose physics is drawn, and its values in the model."""

    id: int
    geoms: slice
    friction: Array
    mass: float
    inertia: Array

    @staticmethod
    def of(model: mujoco.MjModel, name: str) -> _Nominal:
        body = model.body(name)
        geoms = slice(int(body.geomadr[0]), int(body.geomadr[0] + body.geomnum[0]))
        friction, inertia = model.geom_friction[geoms, 0].copy(), model.body_inertia[body.id].copy()
        return _Nominal(int(body.id), geoms, friction, float(model.body_mass[body.id]), inertia)


class Physics:
    """The state of N worlds with an arm and a task; its owner moves set-points and keeps the time of episodes.

    Args:
      threads: worker threads of the batch.
      randomise: draw friction, mass, delay of commands and all else that `dynamics` has.
      patterns, station: see `build_model`.
      look_s: time between two calls of `look` [s].

    Raises:
      BadInput: an arm that cannot do the task.

    Attributes:
      batch: its N states.
      qpos, qvel: (N, …) views of them; writing moves the worlds.
      arm_q, arm_v, finger_q, finger_v: where the joints of arm and gripper lie in `qpos` and `qvel`.
      delay: (N,) physics steps before a command takes effect, for the owner to apply; 0 with `arms`.
      arms: dynamics of the arms, applied here; None where they are as modelled.
    """

    def __init__(
        self, robot: AnyRobot, task: Task, num_worlds: int, threads: int, *, randomise: bool = True,
        patterns: bool = False, station: Contract | None = None, dynamics: DynamicsConfig = NONE,
        look_s: float = 1.0 / CONTROL_HZ,
    ) -> None:  # fmt: skip
        check_robot(robot, task.name, task.arms)
        self.robot, self.task, self.num_worlds, self.randomise = robot, task, num_worlds, randomise
        self.delay = np.zeros(num_worlds, dtype=np.int64)
        self._things = [dynamics.spreads[name] for name in THINGS]
        differs = randomise and not dynamics.plain
        own = dynamics if differs else NONE
        self.model = m = build_model(robot, task, patterns=patterns, station=station, dynamics=own)
        self.batch = Batch(m, num_worlds, nthread=threads)
        self.qpos, self.qvel, self._ctrl = (self.batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._mocap_pos, self._mocap_quat = self.batch.bind("mocap_pos"), self.batch.bind("mocap_quat")
        self.arm_q = np.array([m.joint(j).qposadr[0] for j in robot.joints])
        self.arm_v = np.array([m.joint(j).dofadr[0] for j in robot.joints])
        self._arm_u = np.array([m.actuator(j).id for j in robot.joints])
        self.finger_q = np.array([m.joint(j).qposadr[0] for j in robot.fingers])
        self.finger_v = np.array([m.joint(j).dofadr[0] for j in robot.fingers])
        self._finger_u = np.array([m.actuator(j).id for j in robot.fingers])
        self._free: dict[str, tuple[int, int]] = {}
        self._mocap: dict[str, int] = {}
        self._about = about_names(task.cousins) if randomise else ()
        for name in (*task.bodies, *self._about):
            body = m.body(name)
            if body.mocapid[0] >= 0:
                self._mocap[name] = int(body.mocapid[0])
            else:
                joint = m.joint(int(body.jntadr[0]))
                self._free[name] = (int(joint.qposadr[0]), int(joint.dofadr[0]))
        self._layout = layout_of(robot)
        homes = [part.chain.placed.forward(np.array([part.robot.home])) for part in robot.parts]
        self._homes = [(self._layout.home(pos[0]), rot[0]) for pos, rot in homes]
        if randomise:
            self._friction, self._mass, self._inertia = (
                self.batch.expand(name) for name in ("geom_friction", "body_mass", "body_inertia")
            )
        self._randomised = [_Nominal.of(m, name) for name in task.randomised]
        self.cousins: CousinScenes | None = None
        if randomise and task.cousins is not None:
            self.cousins = CousinScenes(task.cousins, m, self.batch, task.thing, self._layout.scale)
        self._extent = self.cousins.extent if self.cousins else self._own_extent()
        self.arms: ArmDynamics | None = None
        if differs and not isinstance(robot, RobotSpec):
            raise BadInput("--dynamics", got="drawn dynamics", expected="none: two arms move as they are modelled")
        if differs and isinstance(robot, RobotSpec):
            self.arms = ArmDynamics(dynamics, robot, m, self.batch, task.max_episode_steps, look_s)

    def command_arms(self, rows: NDArray[np.int64], q: Array) -> None:
        """Let the arms of the worlds `rows` (M,) follow the joint set-points `q` (M, n) [rad]."""
        self._ctrl[np.ix_(rows, self._arm_u)] = q

    def push_arms(self, rows: NDArray[np.int64], torque: Array, joints: slice = slice(None)) -> None:
        """Let the motors of these `joints` of the arms of the worlds `rows` (M,) have `torque` (M, n) [Nm] in the next
        step.

        A position servo with gains k_p and k_v (damping of its joint included) gives k_p (u − q) − k_v q̇, so

            u = q + (τ + k_v q̇) / k_p
        """
        q, v, u = self.arm_q[joints], self.arm_v[joints], self._arm_u[joints]
        if self.arms is None:
            gain, bias = self.model.actuator_gainprm[u, 0], self.model.actuator_biasprm[u, 2]
            damping = self.model.dof_damping[v] - bias
        else:
            gain, damping = self.arms.gain[rows][:, joints], self.arms.damping[rows][:, joints]
        speed = self.qvel[np.ix_(rows, v)]
        self._ctrl[np.ix_(rows, u)] = self.qpos[np.ix_(rows, q)] + (torque + damping * speed) / gain

    def command_grippers(self, rows: NDArray[np.int64], width: Array) -> None:
        """Let the grippers of the worlds `rows` (M,) follow the openings `width` (M,) [m], of a pair (M, 2)."""
        self._ctrl[np.ix_(rows, self._finger_u)] = self.robot.fingers_of(width)

    def commanded_widths(self) -> Array:
        """(N,) openings that the grippers follow [m], of a pair (N, 2)."""
        return self.robot.width_of(self._ctrl[:, self._finger_u])

    def step(self) -> NDArray[np.bool_] | None:
        """One time step in all worlds with the set-points as they are; (N,) which diverged, None for no world."""
        try:
            self.batch.step()
        except SimulationError as error:
            broken = np.zeros(self.num_worlds, dtype=bool)
            broken[error.ids] = True
            return broken
        return None

    def command_reached(self, x: Array) -> None:
        """Let all worlds follow the true set-points `x` (N, n + 1) of joints and fingers in the next step."""
        self._ctrl[:, self._arm_u] = x[:, :-1]
        self._ctrl[:, self._finger_u] = x[:, -1:]

    def follow(
        self, rows: NDArray[np.int64], arms: Array, width: Array, elapsed: NDArray[np.int64] | None = None
    ) -> NDArray[np.bool_]:
        """S time steps in the worlds `rows` (M,).

        Args:
          arms: (M, S, n) joint set-points of each step [rad].
          width: (M,) openings of the grippers [m], of a pair (M, 2), which take effect after the `delay` of the world.
          elapsed: (M,) control steps of their episodes, for what is drawn in each.

        Returns:
          (N,) which worlds diverged.
        """
        control = self.controls(rows, arms, width, elapsed)
        before = self.batch.warning[..., 1].copy()
        broken = np.zeros(self.num_worlds, dtype=bool)
        try:
            # One call: a world is loaded and stored once, not at each step.
            self.batch.rollout(control.shape[1], control, record=(), ids=rows)
        except SimulationError as error:
            broken[error.ids] = True
        # A world that MuJoCo warns of (a number that makes no sense, no memory for a contact) has stopped there.
        return broken | np.any(self.batch.warning[..., 1] != before, axis=1)

    def controls(
        self, rows: NDArray[np.int64], arms: Array, width: Array, elapsed: NDArray[np.int64] | None = None
    ) -> Array:
        """(M, S, nu) controls of S time steps, of what `follow` is given."""
        steps, fingers = arms.shape[1], self.robot.fingers_of(width)
        control = np.empty((len(rows), steps, self.model.nu))
        if self.arms is not None:
            assert elapsed is not None
            x = self.arms.reach(rows, arms, fingers[:, 0], elapsed)
            control[..., self._arm_u], control[..., self._finger_u] = x[..., :-1], x[..., -1:]
        else:
            late = np.arange(steps) >= self.delay[rows, None]
            control[..., self._arm_u] = arms
            for k, u in enumerate(self._finger_u):
                control[..., u] = np.where(late, fingers[:, k, None], self._ctrl[rows, u, None])
        return control

    def diverged(self) -> NDArray[np.bool_]:
        """(N,) worlds whose state makes no sense."""
        # NaN and infinity fail this comparison too.
        return ~(np.abs(self.qpos).max(1) < 1e3) | ~(np.abs(self.qvel).max(1) < 1e4)

    def state(self, rows: NDArray[np.int64] | slice = slice(None)) -> State:
        """The truth about the worlds `rows` (M,), by default all, copied."""
        qpos, qvel = self.qpos[rows], self.qvel[rows]
        q = qpos[:, self.arm_q]
        tcp_pos, tcp_rot = self.robot.forward(q)
        bodies: dict[str, BodyPose] = {}
        for name, (a, v) in self._free.items():
            bodies[name] = BodyPose(
                qpos[:, a : a + 3].copy(),
                quat_to_matrix(qpos[:, a + 3 : a + 7]),
                qvel[:, v : v + 3].copy(),
                qvel[:, v + 3 : v + 6].copy(),
            )
        zero = np.zeros((len(q), 3))
        for name, i in self._mocap.items():
            quat = self._mocap_quat[rows, i]
            bodies[name] = BodyPose(self._mocap_pos[rows, i].copy(), quat_to_matrix(quat), zero, zero.copy())
        width = self.robot.width_of(qpos[:, self.finger_q])
        extent = self._extent and Extent(self._extent.half[rows].copy(), self._extent.table[rows].copy())
        return State(q, qvel[:, self.arm_v], width, tcp_pos, tcp_rot, bodies, extent)

    def _own_extent(self) -> Extent | None:
        """Of the twin, in all worlds."""
        if not self.task.thing:
            return None
        return Extent(np.tile(half_of(self.model, self.task.thing), (self.num_worlds, 1)), np.zeros(self.num_worlds))

    def look(self, rows: NDArray[np.int64]) -> None:
        """Take the present positions of the worlds `rows` (M,) as their newest measurement."""
        if self.arms is not None:
            q = self.qpos[rows]
            self.arms.look(rows, q[:, self.arm_q], q[:, self.finger_q].mean(1))

    def measured(self, state: State, elapsed: NDArray[np.int64], rows: NDArray[np.int64]) -> State:
        """`state` of the worlds `rows` (M,) with joints, gripper and tcp as their sensors have them; `elapsed` (M,)
        control steps of their episodes."""
        if self.arms is None:
            return state
        q, finger = self.arms.measured(rows, elapsed)
        return replace_arm(state, self.robot, q, finger)

    def positions(self, world: int) -> tuple[Array, Array, Array]:
        """(nq,) positions of the joints, (nmocap, 3) and (nmocap, 4) wxyz of the mocap bodies of one world."""
        return self.qpos[world], self._mocap_pos[world], self._mocap_quat[world]

    def drawn_state(self, rows: NDArray[np.int64]) -> Array:
        """(M, nq + 7 nmocap) all that a picture of the worlds `rows` (M,) depends on, for `place_state`."""
        parts = (self.qpos[rows], self._mocap_pos[rows], self._mocap_quat[rows])
        return np.concatenate([part.reshape(len(rows), -1) for part in parts], axis=1)

    def external_torque(self) -> Array:
        """(N, n) torque of contacts and joint stops on each joint of the arms in the last step [Nm]."""
        return self.batch.qfrc_constraint[:, self.arm_v]

    def clear(self, worlds: NDArray[np.int64]) -> None:
        """Put `worlds` (M,) back to the model's own pose."""
        self.batch.reset(worlds, stage=mujoco.mjtStage.mjSTAGE_NONE)

    # --- starts --------------------------------------------------------------------------------------------

    def begin(self, worlds: NDArray[np.int64], episodes: list[Episode]) -> Array:
        """Put `worlds` (M,) at the start of `episodes` (M). Returns (M, n) the set-points of the arms: their positions
        as measured [rad]."""
        rngs = self.draw_physics(worlds, episodes)
        starts = [self._layout.place(self.task.start(rng)) for rng in rngs]
        if self.task.distractor:
            scale = self._layout.scale
            starts = [place_distractor(start, key, scale) for start, key in zip(starts, episodes, strict=True)]
        if self.cousins is not None:
            starts = [self.cousins.place(int(w), start) for w, start in zip(worlds, starts, strict=True)]
        self.clear(worlds)
        q, pos, rot = self.posture(starts)
        self.qpos[np.ix_(worlds, self.arm_q)] = q
        self.command_arms(worlds, q)
        for k, (w, start) in enumerate(zip(worlds, starts, strict=True)):
            self.qpos[w, self.finger_q] = self._fingers_of(start.width)
            # What is held is pressed from the first moment on.
            self._ctrl[w, self._finger_u] = self._fingers_of(0.0 if start.held else start.width)
            for name, pose in start.bodies.items():
                self.put(name, w, pose)
            for name, pose in start.held.items():
                quat = matrix_to_quat(rot[k] @ quat_to_matrix(pose[3:]))
                self.put(name, w, np.concatenate([pos[k] + rot[k] @ pose[:3], quat]))
        if self.arms is None:
            return q
        self.arms.begin(worlds, q, self.qpos[np.ix_(worlds, self.finger_q)].mean(1))
        return q + self.arms.offset[worlds]

    def draw_physics(self, worlds: NDArray[np.int64], episodes: list[Episode]) -> list[np.random.Generator]:
        """Draw the dynamics of `worlds` (M,) in `episodes` (M); returns the generators of their starts.

        Things and whole steps of delay are the first numbers of these generators, whatever is done with them: an
        episode has the same start with any dynamics.
        """
        rngs = [episode_rng(*key) for key in episodes]
        if not self.randomise:
            return rngs
        most = round(NONE.most("command_delay") / self.task.timestep)
        draws = np.empty((len(worlds), len(self._randomised), 2))
        for k, rng in enumerate(rngs):
            draws[k] = rng.random(draws.shape[1:])
            whole = rng.integers(most + 1)
            self.delay[worlds[k]] = whole if self.arms is None else 0
        if self.arms is not None:
            self.arms.draw(worlds, episodes)
        if self.cousins is not None:
            self.cousins.draw(worlds, episodes)
        bounds = [(PARAMETERS[name].low, PARAMETERS[name].high) for name in THINGS]
        scales = [spread.at(draws[..., i], *bounds[i]) for i, spread in enumerate(self._things)]
        for b, body in enumerate(self._randomised):
            friction, mass = (scale[:, b, None] for scale in scales)
            self._friction[worlds, body.geoms, 0] = body.friction * friction
            own, turns = body.mass, body.inertia
            if self.cousins is not None and body.id == self.cousins.body:
                own, turns = self.cousins.mass[worlds], self.cousins.inertia[worlds]
            self._mass[worlds, body.id] = own * mass[:, 0]
            self._inertia[worlds, body.id] = turns * mass
        self.batch.set_const(worlds)
        return rngs

    def posture(self, starts: list[Start]) -> tuple[Array, Array, Array]:
        """(M, n) joints [rad], (M, 3) and (M, 3, 3) tcp with which `starts` (M) begin; of a pair (M, 2, …) tcps."""
        n, parts = len(starts), self.robot.parts
        offsets = np.array([s.tcp_offset for s in starts]).reshape(n, len(parts), 3)
        yaws = np.array([np.broadcast_to(s.tcp_yaw, len(parts)) for s in starts])
        found = []
        for k, (part, (home_pos, home_rot)) in enumerate(zip(parts, self._homes, strict=True)):
            turn = np.zeros((n, 3))
            turn[:, 2] = yaws[:, k]
            pos, rot = home_pos + offsets[:, k], rotvec_to_matrix(turn) @ home_rot
            home, config = np.array(part.robot.home), replace(part.robot.ik, iterations=20)
            found.append(solve(part.chain.placed, np.tile(home, (n, 1)), pos, rot, rest=home, config=config))
        q = np.concatenate(found, axis=1)
        return q, *self.robot.forward(q)

    def _fingers_of(self, width: float) -> Array:
        """(fingers,) positions of the joints of all grippers, each open by `width` [m]."""
        return self.robot.fingers_of(np.full(len(self.robot.parts) if len(self.robot.parts) > 1 else (), width))

    def put(self, name: str, world: int, pose: Array) -> None:
        """Put the body `name` of a world at `pose` (7,): position and quaternion in the base frame."""
        if name in self._mocap:
            self._mocap_pos[world, self._mocap[name]] = pose[:3]
            self._mocap_quat[world, self._mocap[name]] = pose[3:]
        else:
            a = self._free[name][0]
            self.qpos[world, a : a + 7] = pose


def replace_arm(state: State, robot: AnyRobot, q: Array, finger: Array) -> State:
    """`state` with its arms at `q` (M, n) [rad] and the joints of their fingers at `finger` (M,)."""
    tcp_pos, tcp_rot = robot.forward(q)
    return replace(state, q=q, width=robot.width_of(finger[:, None]), tcp_pos=tcp_pos, tcp_rot=tcp_rot)
