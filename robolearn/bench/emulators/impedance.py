"""Emulator of CRISP's Cartesian impedance controller, which follows target poses.

Read in crisp_controllers (`cartesian_controller.cpp` and the defaults of its parameters, of August 2025). It is no
position controller: the tcp is drawn to the pose by a spring and a damper, and the elbow to a posture by a weak one,

    τ = Jᵀ (K e − D J q̇) + N (k (q_ref − q) − d q̇),   e = (x* − x, log(R* Rᵀ)),   N = 1 − J⁺ J,   d = 2 √k

with e, the torques of the posture and the change of τ bounded. Poses are smoothed, whatever their frame and stamp say.
The posture is where the arm was when the controller began, until `target_joint` says another. Gravity is the robot's
own business. Kinematics are MuJoCo's: the emulator is a judge of those by which poses were made.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from robots import RobotSpec

Array = NDArray[np.float64]

STIFFNESS = np.array([500.0, 500.0, 500.0, 30.0, 30.0, 30.0])  # K [N/m], [Nm/rad]
CLIP = np.array([0.1, 0.1, 0.1, 0.5, 0.5, 0.5])  # [m], [rad]
POSTURE_STIFFNESS = 10.0  # k [Nm/rad]; its default is 1, its examples for the FR3 have more
POSTURE_TORQUE = 5.0  # [Nm]
SMOOTHING = 0.1  # share of the target in a period
MOST_CHANGE = 0.5  # of a torque in a period [Nm]
REGULARISATION = 1e-6


class ImpedanceController:
    """One controller, without ROS.

    Args:
      robot: the arm; its tcp is that of its tool.
      q: (n,) where the arm is when it begins [rad].
    """

    def __init__(self, robot: RobotSpec, q: Array) -> None:
        self.robot = robot
        self._model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
        self._data = mujoco.MjData(self._model)
        joints = [self._model.joint(name) for name in robot.joints]
        self._q, self._v = (np.array([getattr(j, at)[0] for j in joints]) for at in ("qposadr", "dofadr"))
        site = self._model.site(robot.tcp_site)
        self._body = int(site.bodyid[0])
        self._offset, rotation = site.pos.copy(), np.zeros(9)
        mujoco.mju_quat2Mat(rotation, site.quat)
        self._turn = rotation.reshape(3, 3)
        if robot.tool is not None:
            self._body = int(self._model.joint(robot.joints[-1]).bodyid[0])
            self._offset = np.array(robot.flange) + np.array(robot.tool.tcp.position)
            self._turn = robot.tool.tcp.rotation
        self.begin(q)

    def begin(self, q: Array) -> None:
        """It is activated where the arm is, (n,) [rad]."""
        self._reference = np.array(q)
        self._target = self._aim = self.tcp(q)
        self._torque = np.zeros(len(q))

    def tcp(self, q: Array) -> tuple[Array, Array]:
        """(3,) position [m] and (3, 3) rotation of the tcp at `q` (n,) [rad], by MuJoCo."""
        self._data.qpos[self._q] = q
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        rotation = self._data.xmat[self._body].reshape(3, 3)
        return self._data.xpos[self._body] + rotation @ self._offset, rotation @ self._turn

    def pose(self, position: Array, rotation: Array) -> None:
        """`target_pose`: (3,) [m], (3, 3)."""
        self._target = np.array(position), np.array(rotation)

    def posture(self, q: Array) -> None:
        """`target_joint`: (n,) [rad]."""
        self._reference = np.array(q)

    def sample(self, q: Array, v: Array) -> Array:
        """(n,) torques beside those that carry the arm [Nm], at `q` (n,) [rad] and `v` (n,) [rad/s]."""
        position, rotation = self.tcp(q)
        (aim, aim_rotation), (target, target_rotation) = self._aim, self._target
        turn = _turn(aim_rotation, target_rotation)
        self._aim = aim + SMOOTHING * (target - aim), _rotation(SMOOTHING * turn) @ aim_rotation
        error = np.concatenate([self._aim[0] - position, _turn(rotation, self._aim[1])])
        error = np.clip(error, -CLIP, CLIP)
        jacobian = np.zeros((6, self._model.nv))
        mujoco.mj_jac(self._model, self._data, jacobian[:3], jacobian[3:], position, self._body)
        j = jacobian[:, self._v]
        # J⁺ = Jᵀ (J Jᵀ + λ 1)⁻¹
        pseudo = np.linalg.solve(j @ j.T + REGULARISATION * np.eye(6), j).T
        # τ_task = Jᵀ (K e − D J q̇)
        task = j.T @ (STIFFNESS * error - 2 * np.sqrt(STIFFNESS) * (j @ v))
        # τ_posture = (1 − J⁺ J) (k (q_ref − q) − d q̇)
        spring = POSTURE_STIFFNESS * (self._reference - q) - 2 * np.sqrt(POSTURE_STIFFNESS) * v
        posture = np.clip(spring - pseudo @ (j @ spring), -POSTURE_TORQUE, POSTURE_TORQUE)
        change = np.clip(task + posture - self._torque, -MOST_CHANGE, MOST_CHANGE)
        self._torque = self._torque + change
        return self._torque


def _turn(a: Array, b: Array) -> Array:
    """(3,) rotation vector that takes the rotation `a` to `b` in the base frame [rad]."""
    quat, vector = np.zeros(4), np.zeros(3)
    mujoco.mju_mat2Quat(quat, (b @ a.T).ravel())
    mujoco.mju_quat2Vel(vector, quat, 1.0)
    return vector


def _rotation(vector: Array) -> Array:
    """(3, 3) of a rotation vector [rad]."""
    quat, matrix, angle = np.zeros(4), np.zeros(9), float(np.linalg.norm(vector))
    mujoco.mju_axisAngle2Quat(quat, vector / max(angle, 1e-12), angle)
    mujoco.mju_quat2Mat(matrix, quat)
    return matrix.reshape(3, 3)
