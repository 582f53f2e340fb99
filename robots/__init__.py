"""Facts of an embodiment: model, limits, home pose, kinematics. Knows nothing of simulators, drivers or learning."""

import robolearn  # noqa: F401  (chooses the GL back end, before anything imports mujoco)
from robots.chain import Chain
from robots.control import CONTROL_HZ, DELTA_POS, DELTA_ROT, Control, make_control
from robots.ik import IKConfig, solve
from robots.panda import PANDA
from robots.spec import GripperSpec, RobotSpec

ROBOTS: dict[str, RobotSpec] = {"panda": PANDA}

__all__ = [
    "CONTROL_HZ",
    "DELTA_POS",
    "DELTA_ROT",
    "PANDA",
    "ROBOTS",
    "Chain",
    "Control",
    "GripperSpec",
    "IKConfig",
    "RobotSpec",
    "make_control",
    "solve",
]
