"""Facts of an embodiment: model, limits, home pose, kinematics. Depends on no simulator, driver or learning code."""

import robolearn  # noqa: F401  (chooses the GL back end, before anything imports mujoco)
from robots.arms import FR3, PAIRS, PANDA, ROBOTS, SO101, UR5E, robot_named
from robots.chain import Chain
from robots.control import CONTROL_HZ, DELTA_POS, DELTA_ROT, Control, make_control
from robots.ik import IKConfig, solve
from robots.pair import AnyRobot, PairSpec
from robots.spec import NO_GRIPPER, GripperKind, GripperSpec, RobotSpec

__all__ = [
    "CONTROL_HZ",
    "DELTA_POS",
    "DELTA_ROT",
    "FR3",
    "NO_GRIPPER",
    "PAIRS",
    "PANDA",
    "ROBOTS",
    "SO101",
    "UR5E",
    "AnyRobot",
    "Chain",
    "Control",
    "GripperKind",
    "GripperSpec",
    "IKConfig",
    "PairSpec",
    "RobotSpec",
    "make_control",
    "robot_named",
    "solve",
]
