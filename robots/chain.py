"""A serial chain of hinge joints: forward kinematics and geometric Jacobian, batched.

    T_0i = T_0,i−1 · T_offset,i · Rot(axis_i, q_i),      T_0,tcp = T_0n · T_n,tcp

    J_i = [ z_i × (p_tcp − p_i) ;  z_i ]                 (column i; linear above angular, base frame)

with z_i the joint's axis and p_i its origin in the base frame. The loops are compiled by numba: a control
step costs about a microsecond an arm, so simulator and hardware can share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput, check_choice
from robots.compiled import compiled

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Chain:
    """Constant geometry of n hinge joints."""

    offset_pos: Array  # (n, 3) origin of joint i in the frame of link i−1 [m]
    offset_rot: Array  # (n, 3, 3) its orientation there
    axis: Array  # (n, 3) unit rotation axis in the joint's own frame
    tcp_pos: Array  # (3,) tool centre point in the frame of the last link [m]
    tcp_rot: Array  # (3, 3) its orientation there
    # lower, upper: (n,) joint position limits [rad]
    lower: Array
    upper: Array
    # base_pos (3,) [m], base_rot (3, 3): where the base stands in the station
    base_pos: Array = field(default_factory=lambda: np.zeros(3))
    base_rot: Array = field(default_factory=lambda: np.eye(3))

    @cached_property
    def placed(self) -> Chain:
        """The chain station → tcp: its base frame is the station's.

        T_station,1 = T_station,base · T_base,1
        """
        if not self.base_pos.any() and np.array_equal(self.base_rot, np.eye(3)):
            return self
        pos, rot = self.offset_pos.copy(), self.offset_rot.copy()
        pos[0], rot[0] = self.base_pos + self.base_rot @ pos[0], self.base_rot @ rot[0]
        return replace(self, offset_pos=pos, offset_rot=rot, base_pos=np.zeros(3), base_rot=np.eye(3))

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.axis)

    @staticmethod
    def from_mjcf(path: Path, joints: tuple[str, ...], tcp_site: str) -> Chain:
        """Read the chain from a model file. Raises `BadInput`: a joint or the site is missing, a joint is no hinge or
        has no range, or the joints do not form one chain ending at the site."""
        model = mujoco.MjModel.from_xml_path(str(path))
        names = [model.joint(i).name for i in range(model.njnt)]
        for name in joints:
            check_choice(f"joint of {path.name}", name, names)
        if not joints:
            raise BadInput(f"joints of {path.name}", got="nothing", expected="at least one", available=names)
        sites = [model.site(i).name for i in range(model.nsite)]
        check_choice(f"site of {path.name}", tcp_site, sites)
        ids = [model.joint(name).id for name in joints]
        offset_pos, offset_rot, axes = [], [], []
        parent = 0  # the world body
        for i in ids:
            if model.jnt_type[i] != mujoco.mjtJoint.mjJNT_HINGE or np.any(model.jnt_pos[i] != 0):
                raise BadInput(f"joint {model.joint(i).name} of {path.name}", expected="a hinge at its body's origin")
            if not model.jnt_limited[i] or model.qpos0[model.jnt_qposadr[i]] != 0:
                got = "a ref" if model.jnt_limited[i] else "no range"
                raise BadInput(f"joint {model.joint(i).name} of {path.name}", got=got, expected="a range and ref 0")
            body = int(model.jnt_bodyid[i])
            pos, rot = _relative(model, body, parent, joints=1)
            offset_pos.append(pos)
            offset_rot.append(rot)
            axes.append(model.jnt_axis[i])
            parent = body
        site = model.site(tcp_site).id
        pos, rot = _relative(model, int(model.site_bodyid[site]), parent, joints=0)
        tcp_pos = pos + rot @ model.site_pos[site]
        tcp_rot = rot @ _matrix(model.site_quat[site])
        limits = model.jnt_range[ids]
        return Chain(
            offset_pos=np.array(offset_pos),
            offset_rot=np.array(offset_rot),
            axis=np.array(axes),
            tcp_pos=np.ascontiguousarray(tcp_pos),
            tcp_rot=np.ascontiguousarray(tcp_rot),
            lower=limits[:, 0].copy(),
            upper=limits[:, 1].copy(),
        )

    def forward(self, q: Array) -> tuple[Array, Array]:
        """Pose of the tcp in the base frame. `q`: (N, n) joint positions [rad]. Returns (N, 3) positions [m] and (N, 3,
        3) rotation matrices."""
        return self._computed(q)[:2]

    def jacobian(self, q: Array) -> Array:
        """(N, 6, n) geometric Jacobian of the tcp in the base frame, linear [m/rad] above angular [rad/rad]."""
        return self._computed(q)[2]

    def _computed(self, q: Array) -> tuple[Array, Array, Array]:
        """Positions, orientations and Jacobians."""
        q = np.ascontiguousarray(q, dtype=np.float64)
        if q.ndim != 2 or q.shape[1] != self.n:
            raise BadInput("joint positions", got=f"shape {q.shape}", expected=f"(N, {self.n})")
        pos, rot, jac = np.empty((len(q), 3)), np.empty((len(q), 3, 3)), np.empty((len(q), 6, self.n))
        geometry = self.offset_pos, self.offset_rot, self.axis, self.tcp_pos, self.tcp_rot
        _forward_batch(q, *geometry, pos, rot, jac)
        return pos, rot, jac


@compiled()
def forward_one(q, offset_pos, offset_rot, axis, tcp_pos, tcp_rot, pos, rot, jac):
    """Fill `pos` (3,), `rot` (3, 3) and `jac` (6, n) for one arm."""
    n = q.shape[0]
    R = np.eye(3)
    p = np.zeros(3)
    A = np.empty((3, 3))
    B = np.empty((3, 3))
    origin = np.empty((n, 3))
    for i in range(n):
        for r in range(3):
            p[r] += R[r, 0] * offset_pos[i, 0] + R[r, 1] * offset_pos[i, 1] + R[r, 2] * offset_pos[i, 2]
        matmul3(R, offset_rot[i], A)
        for r in range(3):
            origin[i, r] = p[r]
            jac[3 + r, i] = A[r, 0] * axis[i, 0] + A[r, 1] * axis[i, 1] + A[r, 2] * axis[i, 2]
        axis_rotation(axis[i], q[i], B)
        matmul3(A, B, R)
    for r in range(3):
        pos[r] = p[r] + R[r, 0] * tcp_pos[0] + R[r, 1] * tcp_pos[1] + R[r, 2] * tcp_pos[2]
    matmul3(R, tcp_rot, rot)
    for i in range(n):
        dx, dy, dz = pos[0] - origin[i, 0], pos[1] - origin[i, 1], pos[2] - origin[i, 2]
        zx, zy, zz = jac[3, i], jac[4, i], jac[5, i]
        jac[0, i] = zy * dz - zz * dy
        jac[1, i] = zz * dx - zx * dz
        jac[2, i] = zx * dy - zy * dx


@compiled()
def _forward_batch(q, offset_pos, offset_rot, axis, tcp_pos, tcp_rot, pos, rot, jac):
    for w in range(q.shape[0]):
        forward_one(q[w], offset_pos, offset_rot, axis, tcp_pos, tcp_rot, pos[w], rot[w], jac[w])


@compiled(inline="always")
def matmul3(a, b, out):
    """out = a b, all (3, 3)."""
    for r in range(3):
        for c in range(3):
            out[r, c] = a[r, 0] * b[0, c] + a[r, 1] * b[1, c] + a[r, 2] * b[2, c]


@compiled(inline="always")
def axis_rotation(u, angle, out):
    """Fill `out` (3, 3) with the rotation by `angle` [rad] about the unit vector `u` (3,)."""
    # Rodrigues: R = I + sin θ [u] + (1 − cos θ) [u]²
    s, c = np.sin(angle), np.cos(angle)
    v = 1.0 - c
    x, y, z = u[0], u[1], u[2]
    out[0, 0], out[0, 1], out[0, 2] = c + x * x * v, x * y * v - z * s, x * z * v + y * s
    out[1, 0], out[1, 1], out[1, 2] = x * y * v + z * s, c + y * y * v, y * z * v - x * s
    out[2, 0], out[2, 1], out[2, 2] = x * z * v - y * s, y * z * v + x * s, c + z * z * v


def _matrix(quat: Array) -> Array:
    out = np.empty(9)
    mujoco.mju_quat2Mat(out, quat)
    return out.reshape(3, 3)


def _relative(model: mujoco.MjModel, body: int, ancestor: int, *, joints: int) -> tuple[Array, Array]:
    """Pose of `body`, which has so many joints of its own, in `ancestor`; no body in between may have any."""
    pos, rot = np.zeros(3), np.eye(3)
    start = body
    while body != ancestor:
        if body == 0 or model.body_jntnum[body] > (joints if body == start else 0):
            raise BadInput("joints", expected="one chain from base to tcp", got=f"a break at {model.body(start).name}")
        parent_rot = _matrix(model.body_quat[body])
        pos = model.body_pos[body] + parent_rot @ pos
        rot = parent_rot @ rot
        body = int(model.body_parentid[body])
    return pos, rot
