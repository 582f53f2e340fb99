"""A station's cameras in its simulated world: where its contract says that they stand, with the lens that it states.

    T_world_camera = T_world_parent · T_parent_camera · Rx(π)          parent: base or flange

A contract's camera looks along z with y down, as in OpenCV; MuJoCo's along −z with y up. Of the lens the vertical
field of view of what is cut out of the picture is taken, 2 atan(h / 2 f_y): a centre beside the middle and distortion
are not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import mujoco
import numpy as np

from robolearn.core.errors import BadInput
from robots import RobotSpec
from robots.stations import Camera, Contract

HALF_TURN = np.array([0.0, 1.0, 0.0, 0.0])  # Rx(π), wxyz


def check_station(station: Contract, robot: RobotSpec) -> None:
    """Raise `BadInput` for a station of another arm, or one that does not say where any camera is."""
    if station.robot.name != robot.name:
        raise BadInput("--station", got=f"one with {station.robot.name}", expected=f"one with {robot.name}")
    if not any(camera.pose for camera in station.cameras.values()):
        raise BadInput(
            f"--station {station.name}", got="no camera with a pose",
            expected="cameras.<name>.pose in its contract, which `robolearn calibrate` measures",
        )  # fmt: skip


def mount(spec: mujoco.MjSpec, robot: RobotSpec, cameras: Mapping[str, Camera]) -> None:
    """Put the `cameras` that have a pose into `spec`, in the place of its own of the same names."""
    flange = spec.joint(robot.joints[-1]).parent
    for name, camera in cameras.items():
        if camera.pose is None:
            continue
        own = spec.camera(name)
        fovy = field_of_view(camera) if camera.intrinsics else (own.fovy if own is not None else 45.0)
        if own is not None:
            spec.delete(own)
        on_arm = camera.pose.parent == "flange"
        at = np.array(camera.pose.pose.position) + (np.array(robot.flange) if on_arm else 0.0)
        quat = np.empty(4)
        mujoco.mju_mulQuat(quat, np.array(camera.pose.pose.quaternion), HALF_TURN)
        (flange if on_arm else spec.worldbody).add_camera(name=name, pos=at, quat=quat, fovy=fovy)


def field_of_view(camera: Camera) -> float:
    """Vertical field of view [degrees] of what the policy gets of the picture."""
    assert camera.intrinsics is not None
    height, width = camera.intrinsics.size
    if camera.crop == "center":  # the largest part in the middle that has the shape of `size`
        height = min(height, round(width * camera.size[0] / camera.size[1]))
    elif camera.crop is not None:
        height = int(camera.crop[2])
    return math.degrees(2.0 * math.atan(0.5 * height / camera.intrinsics.fy))
