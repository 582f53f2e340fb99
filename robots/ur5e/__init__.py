"""Universal Robots UR5e with a parallel gripper of the Robotiq 2F-85's size.

Universal Robots publishes no limits of acceleration or jerk: the robot is limited by torque. 5 rad/s² is what the
makers of its ROS driver give to MoveIt (Universal_Robots_ROS2_Driver, pull request 645). The jerk is ours: full
acceleration after 50 ms.
"""

from __future__ import annotations

from math import pi
from pathlib import Path

from robots.spec import GripperKind, GripperSpec, RobotSpec

UR5E = RobotSpec(
    name="ur5e",
    mjcf=Path(__file__).with_name("ur5e.xml"),
    joints=(
        "shoulder_pan_joint",
        "shoulder_lift_joint",
        "elbow_joint",
        "wrist_1_joint",
        "wrist_2_joint",
        "wrist_3_joint",
    ),
    tcp_site="tcp",
    home=(-0.269864, -1.584220, 1.732291, -1.718868, -pi / 2, -1.840660),  # tcp at (0.50, 0, 0.28) m, looking down
    velocity=(pi,) * 6,
    acceleration=(5.0,) * 6,
    jerk=(100.0,) * 6,
    effort=(150.0, 150.0, 150.0, 28.0, 28.0, 28.0),
    gripper=GripperSpec(
        GripperKind.PARALLEL,
        joints=("ur5e_finger_left", "ur5e_finger_right"),
        max_width=0.085,
        max_speed=0.075,
        max_force=235.0,
    ),
    source="https://www.universal-robots.com/articles/ur/application-installation/"
    "dh-parameters-for-calculations-of-kinematics-and-dynamics/",
)
