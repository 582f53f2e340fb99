"""Facts of an embodiment: model, limits, home pose, kinematics. Knows nothing of simulators, drivers or learning."""

import robolearn  # noqa: F401  (chooses the GL back end, before anything imports mujoco)
from robots.chain import Chain
from robots.ik import IKConfig, solve
from robots.panda import PANDA
from robots.spec import GripperSpec, RobotSpec

ROBOTS: dict[str, RobotSpec] = {"panda": PANDA}

__all__ = ["PANDA", "ROBOTS", "Chain", "GripperSpec", "IKConfig", "RobotSpec", "solve"]
