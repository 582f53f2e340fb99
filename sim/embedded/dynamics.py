"""Dynamics drawn for N worlds: written into their models, and applied to what is commanded and measured.

Servos carry the weight of the arm as modelled. Where masses or their centres differ from it, the weight that is
compensated stays that of the model: a body without mass of its own carries it at the modelled centre.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from robots import RobotSpec
from robots.dynamics import PARAMETERS, DynamicsConfig
from robots.transmission import transmit
from sim.embedded.task import Array

CARRIER = 1e-6  # mass of a body that stands for a compensated weight [kg]
PAYLOAD = "dynamics_payload"
MASSES = ("link_mass", "link_centre", "payload")

Episode = tuple[int, int, int]  # seed, start id, number


def prepare(spec: mujoco.MjSpec, robot: RobotSpec, config: DynamicsConfig) -> None:
    """Give the model of an arm what the parameters of `config` need."""
    if config.has(*MASSES):
        _carry_as_modelled(spec, robot)
    if config.has("joint_friction"):
        for name in robot.joints:  # as hard as it gets: with MuJoCo's default a held joint creeps away in a second
            spec.joint(name).solimp_friction = [0.999, 0.9999, 0.001, 0.5, 2.0]


def _carry_as_modelled(spec: mujoco.MjSpec, robot: RobotSpec) -> None:
    """Compensate the arm's modelled weight, whatever its links weigh, and add a payload of no mass at the tcp.

    F = −g · m_carrier · gravcomp = −g · m_modelled, at the modelled centre
    """
    model = spec.copy().compile()
    for body in [body for body in spec.bodies if body.gravcomp > 0.0]:
        modelled = model.body(body.name)
        weight = float(modelled.mass[0]) * body.gravcomp
        body.gravcomp = 0.0
        if weight > 0.0:
            _point(body, f"{body.name}_carried", modelled.ipos).gravcomp = weight / CARRIER
    tcp = spec.site(robot.tcp_site)
    _point(tcp.parent, PAYLOAD, tcp.pos)


def _point(parent: mujoco.MjsBody, name: str, at: Array) -> mujoco.MjsBody:
    body = parent.add_body(name=name, pos=at)
    body.mass, body.inertia, body.ipos = CARRIER, np.full(3, 1e-9), np.zeros(3)
    body.explicitinertial = True
    return body


class ArmDynamics:
    """The arms of N worlds with dynamics of their own.

    Args:
      steps: control steps that an episode may have, for what is drawn in each.
      period: between two calls of `look` [s].

    Attributes:
      delay: (N,) physics steps before a command takes effect, whole or not.
      offset: (N, n) measured minus true joint positions [rad].
    """

    def __init__(
        self, config: DynamicsConfig, robot: RobotSpec, model: mujoco.MjModel, batch: Batch, steps: int, period: float
    ) -> None:
        config.check(robot)
        self.config, self.robot, self.model, self._batch = config, robot, model, batch
        self._n = n = len(robot.joints)
        worlds, dt = len(batch.bind("qpos")), model.opt.timestep
        self._dt, self._period, self._steps = dt, period, steps
        self._links = np.array([int(model.joint(j).bodyid[0]) for j in robot.joints])
        self._v = np.array([model.joint(j).dofadr[0] for j in robot.joints])
        self._u = np.array([model.actuator(j).id for j in robot.joints])
        self._finger_u = np.array([model.actuator(j).id for j in robot.gripper.joints])
        self.gain = np.tile(model.actuator_gainprm[self._u, 0], (worlds, 1))
        self.damping = np.tile(model.dof_damping[self._v] - model.actuator_biasprm[self._u, 2], (worlds, 1))
        expand = {
            "body_mass": config.has(*MASSES), "body_inertia": config.has(*MASSES), "body_ipos": config.has(*MASSES),
            "actuator_gainprm": config.has("gain"), "actuator_biasprm": config.has("gain", "damping"),
            "dof_damping": config.has("damping"), "dof_armature": config.has("armature"),
            "dof_frictionloss": config.has("joint_friction"), "actuator_forcerange": config.has("gripper_force"),
        }  # fmt: skip
        self._fields = {name: batch.expand(name) for name, wanted in expand.items() if wanted}
        longest = config.most("command_delay") + 4.0 * config.most("command_jitter")
        self._depth = math.ceil(longest / dt) + 2
        self.offset, self._play = np.zeros((worlds, n)), np.zeros((worlds, n + 1))
        self.delay, self._jitter, self._noise = np.zeros((3, worlds))
        self._line, self._last = np.zeros((worlds, self._depth, n + 1)), np.zeros((worlds, n + 1))
        # Measurements of the control steps before, the newest last, and how far back in them one looks.
        self._age = np.zeros(worlds)
        self._seen = np.zeros((worlds, math.ceil(config.most("observation_delay") / period) + 2, n + 1))
        self._errors = np.zeros((worlds, steps + 1, n + 1), dtype=np.float32)  # standard normal

    def draw(self, worlds: NDArray[np.int64], episodes: list[Episode]) -> None:
        """Draw the dynamics of `worlds` (M,) in `episodes` (M) and write them into their models."""
        for w, key in zip(worlds, episodes, strict=True):
            self.write(int(w), self.config.draw(self.robot, key))
            errors = np.random.default_rng([4, *key])
            self._errors[w] = errors.standard_normal(self._errors.shape[1:], dtype=np.float32)

    def write(self, w: int, values: Mapping[str, Array]) -> None:
        """Give world `w` these values of its parameters; what is missing is nominal. `set_const` is the caller's."""
        m, f, n = self.model, self._fields, self._n

        def value(name: str) -> Array:
            return values.get(name, np.full(PARAMETERS[name].count(n), PARAMETERS[name].nominal))

        links, v, u = self._links, self._v, self._u
        if self.config.has(*MASSES):
            mass = value("link_mass")
            f["body_mass"][w, links] = m.body_mass[links] * mass
            f["body_inertia"][w, links] = m.body_inertia[links] * mass[:, None]
            f["body_ipos"][w, links] = m.body_ipos[links] + value("link_centre").reshape(n, 3)
            f["body_mass"][w, m.body(PAYLOAD).id] = CARRIER + value("payload")[0]
        gain, damping = value("gain"), value("damping")
        if "actuator_gainprm" in f:
            f["actuator_gainprm"][w, u, 0] = m.actuator_gainprm[u, 0] * gain
        if "actuator_biasprm" in f:
            f["actuator_biasprm"][w, u, 1] = m.actuator_biasprm[u, 1] * gain
            f["actuator_biasprm"][w, u, 2] = m.actuator_biasprm[u, 2] * damping
        if "dof_damping" in f:
            f["dof_damping"][w, v] = m.dof_damping[v] * damping
        if "dof_armature" in f:
            f["dof_armature"][w, v] = m.dof_armature[v] * value("armature")
        if "dof_frictionloss" in f:
            effort = np.array(self.robot.effort)
            f["dof_frictionloss"][w, v] = m.dof_frictionloss[v] + effort * value("joint_friction")
        if "actuator_forcerange" in f:
            f["actuator_forcerange"][w, self._finger_u] = m.actuator_forcerange[self._finger_u] * value("gripper_force")
        self.gain[w] = m.actuator_gainprm[u, 0] * gain
        self.damping[w] = (m.dof_damping[v] - m.actuator_biasprm[u, 2]) * damping
        self.offset[w] = value("joint_offset")
        self._play[w, :n] = value("backlash")
        self._noise[w] = value("joint_noise")[0]
        self.delay[w], self._jitter[w] = value("command_delay")[0] / self._dt, value("command_jitter")[0] / self._dt
        oldest = self._seen.shape[1] - 2  # a normal distribution has no longest delay
        self._age[w] = min(value("observation_delay")[0] / self._period, oldest)

    def begin(self, worlds: NDArray[np.int64], q: Array, finger: Array) -> None:
        """Let the arms of `worlds` (M,) have rested at `q` (M, n) [rad], their fingers at `finger` (M,)."""
        at = np.concatenate([q + self.offset[worlds], finger[:, None]], axis=1)
        self._line[worlds], self._last[worlds], self._seen[worlds] = at[:, None], at, at[:, None]

    def reach(self, rows: NDArray[np.int64], arms: Array, finger: Array, elapsed: NDArray[np.int64]) -> Array:
        """Set-points that reach the motors of the worlds `rows` (M,) in S steps of the physics.

        Args:
          arms: (M, S, n) commanded joint set-points, as measured [rad].
          finger: (M,) commanded joint position of the fingers.
          elapsed: (M,) control steps of their episodes.

        Returns:
          (M, S, n + 1) true set-points of joints and fingers.
        """
        m, steps = arms.shape[:2]
        x = np.concatenate([arms, np.broadcast_to(finger[:, None, None], (m, steps, 1))], axis=2)
        jitter = self._jitter[rows] * self._errors[rows, elapsed % (self._steps + 1), self._n]
        delay = np.clip(self.delay[rows] + jitter, 0.0, self._depth - 1.0)
        transmit(x, self._line, delay, self._play, self._last, rows)
        x[..., : self._n] -= self.offset[rows, None]
        return x

    def look(self, rows: NDArray[np.int64], q: Array, finger: Array) -> None:
        """Take the true positions `q` (M, n) and `finger` (M,) of `rows` (M,) as the newest measurement."""
        self._seen[rows, :-1] = self._seen[rows, 1:]
        self._seen[rows, -1] = np.concatenate([q + self.offset[rows], finger[:, None]], axis=1)

    def measured(self, rows: NDArray[np.int64], elapsed: NDArray[np.int64]) -> tuple[Array, Array]:
        """(M, n) joints and (M,) fingers as measured in the worlds `rows` (M,)."""
        found = self._late(rows)
        noise = self._noise[rows, None] * self._errors[rows, elapsed % (self._steps + 1), : self._n]
        return found[:, : self._n] + noise, found[:, self._n]

    def sensed(self, rng: np.random.Generator) -> Array:
        """(n,) joints of world 0 as measured now, with noise from `rng` [rad]."""
        return self._late(np.zeros(1, np.int64))[0, : self._n] + self._noise[0] * rng.standard_normal(self._n)

    def _late(self, rows: NDArray[np.int64]) -> Array:
        """(M, n + 1) measurements as old as those of the worlds `rows` (M,) are; between two, on a line."""
        whole = np.floor(self._age[rows]).astype(np.int64)
        part = (self._age[rows] - whole)[:, None]
        newer = self._seen[rows, -1 - whole]
        older = self._seen[rows, np.maximum(-2 - whole, -self._seen.shape[1])]
        return (1.0 - part) * newer + part * older

    def state(self) -> dict[str, Array]:
        """All that the future depends on, but for the draws."""
        return {"line": self._line, "last": self._last, "seen": self._seen}

    def load_state(self, state: dict[str, Array]) -> None:
        """Continue from `state`."""
        for name, value in self.state().items():
            value[:] = state[name]
