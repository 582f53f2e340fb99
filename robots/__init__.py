"""Facts of an embodiment: model, limits, home pose, kinematics. Depends on no simulator, driver or learning code."""

import robolearn  # noqa: F401  (chooses the GL back end, before anything imports mujoco)
from robots.arms import FR3, PANDA, ROBOTS, SO101, UR5E
from robots.chain import Chain
from robots.control import CONTROL_HZ, DELTA_POS, DELTA_ROT, Control, make_control
from robots.ik import IKConfig, solve
from robots.spec import NO_GRIPPER, GripperKind, GripperSpec, RobotSpec

__all__ = [
    "CONTROL_HZ",
    "DELTA_POS",
    "DELTA_ROT",
    "FR3",
    "NO_GRIPPER",
    "PANDA",
    "ROBOTS",
    "SO101",
    "UR5E",
    "Chain",
    "Control",
    "GripperKind",
    "GripperSpec",
    "IKConfig",
    "RobotSpec",
    "make_control",
    "solve",
]
