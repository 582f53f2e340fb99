"""Predictions of an arm's motion under many dynamics at once: its model alone, driven by a log's set-points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
from mujoco.batch import Batch

from robots import RobotSpec
from robots.dynamics import DynamicsConfig
from robots.motion_log import MotionLog
from sim.embedded.dynamics import ArmDynamics, prepare
from sim.embedded.scene import set_solver
from sim.embedded.task import Array

SETTLE_S = 1.0  # that the arm holds its first set-point before a log begins


class ArmModel:
    """W copies of an arm with dynamics of their own.

    Args:
      config: the parameters that are set, with their largest delay.
      period: of the logs, and of a time step [s].
      threads: of the physics.
    """

    def __init__(self, robot: RobotSpec, config: DynamicsConfig, copies: int, period: float, threads: int) -> None:
        spec = mujoco.MjSpec.from_file(str(robot.mjcf))
        prepare(spec, robot, config)
        set_solver(spec, period)
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
        model = spec.compile()
        self.robot, self.copies, self._period = robot, copies, period
        self._batch = Batch(model, copies, nthread=threads)
        self._arms = ArmDynamics(config, robot, model, self._batch, 1, period)
        self._qpos, self._nu = self._batch.bind("qpos"), model.nu
        self._q = np.array([model.joint(j).qposadr[0] for j in robot.joints])
        self._u = np.array([model.actuator(j).id for j in robot.joints])
        self._finger_q = np.array([model.joint(j).qposadr[0] for j in robot.gripper.joints], dtype=np.int64)
        self._finger_u = np.array([model.actuator(j).id for j in robot.gripper.joints], dtype=np.int64)

    def predict(self, log: MotionLog, values: Sequence[Mapping[str, Array]]) -> Array:
        """(M, T, n) positions that arms with the M ≤ W `values` would have measured [rad], noise apart."""
        rows = np.arange(len(values))
        for w, own in enumerate(values):
            self._arms.write(w, own)
        self._batch.set_const(rows)
        self._batch.reset(rows, stage=mujoco.mjtStage.mjSTAGE_NONE)
        opened = float(self.robot.gripper.joint_range[1])
        q = np.tile(log.commanded[0], (len(rows), 1))
        self._qpos[np.ix_(rows, self._q)] = q - self._arms.offset[rows]
        self._qpos[np.ix_(rows, self._finger_q)] = opened
        finger = np.full(len(rows), opened)
        self._arms.begin(rows, q - self._arms.offset[rows], finger)
        settle = round(SETTLE_S / self._period)
        way = np.concatenate([np.tile(log.commanded[0], (settle, 1)), log.commanded])
        x = self._arms.reach(rows, np.broadcast_to(way, (len(rows), *way.shape)), finger, np.zeros_like(rows))
        control = np.empty((len(rows), len(way), self._nu))
        control[..., self._u], control[..., self._finger_u] = x[..., :-1], x[..., -1:]
        found = self._batch.rollout(len(way), control, record=("qpos",), ids=rows)["qpos"]
        return found[:, settle:][..., self._q] + self._arms.offset[rows, None]
