"""The arms: a `RobotSpec` each, whose model is `<name>/<name>.xml` beside this file.

FR3: its velocity limit falls towards the ends of each joint's range. Franka's documentation suggests a rectangle of
positions (in the model) and velocities (below) inside which constant limits hold; outside it the arm would stop by a
reflex of its own.

UR5e: Universal Robots publishes no limits of acceleration or jerk: the robot is limited by torque. 5 rad/s² is what the
makers of its ROS driver give to MoveIt (Universal_Robots_ROS2_Driver, pull request 645). The jerk is ours: full
acceleration after 50 ms. The gripper is of the Robotiq 2F-85's size.

SO-101: five joints cannot take every pose of the tcp: tcp motion is a least-squares compromise, joint positions are
exact. The jaw swings by 1.92 rad around an axis 8 cm behind its tip, which then moves 2 · 0.08 m · sin(0.96) = 0.13 m:
that is its opening, taken as linear in the angle (1 cm off at most). Joint limits of the Feetech STS3215 servo: 45
turns a minute without load and 30 kg·cm at a standstill, at 12 V (its data sheet). Its acceleration is not published:
20 rad/s² reaches full speed in a quarter of a second, the jerk full acceleration in 50 ms.
"""

from __future__ import annotations

from math import pi
from pathlib import Path
from typing import Any

from robolearn.core.errors import BadInput
from robolearn.core.plugins import Table
from robots.own import own_robots
from robots.pair import AnyRobot, PairSpec
from robots.spec import ArmPart, Base, GripperKind, GripperSpec, RobotSpec


def _arm(name: str, **facts: Any) -> RobotSpec:
    return RobotSpec(name=name, mjcf=Path(__file__).parent / name / f"{name}.xml", tcp_site="tcp", **facts)


def _fingers(*joints: str, width: float, speed: float, force: float) -> GripperSpec:
    return GripperSpec(GripperKind.PARALLEL, joints, max_width=width, max_speed=speed, max_force=force)


_FRANKA: dict[str, Any] = {
    "home": (0.0, -0.0851, 0.0, -2.2996, 0.0, 2.2145, 0.785398163397448),  # tcp at (0.50, 0, 0.28) m, looking down
    "effort": (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0),
    "flange": (0.0, 0.0, 0.107),
}
_FRANKA_HAND = {"width": 0.08, "speed": 0.1, "force": 70.0}

PANDA = _arm(
    "panda",
    joints=tuple(f"panda_joint{i}" for i in range(1, 8)),
    velocity=(2.1750, 2.1750, 2.1750, 2.1750, 2.6100, 2.6100, 2.6100),
    acceleration=(15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0),
    jerk=(7500.0, 3750.0, 5000.0, 6250.0, 7500.0, 10000.0, 10000.0),
    gripper=_fingers("panda_finger_left", "panda_finger_right", **_FRANKA_HAND),
    source="https://frankaemika.github.io/docs/control_parameters.html",
    **_FRANKA,
)

FR3 = _arm(
    "fr3",
    joints=tuple(f"fr3_joint{i}" for i in range(1, 8)),
    velocity=(2.0, 1.0, 1.5, 1.25, 3.0, 1.5, 3.0),
    acceleration=(10.0,) * 7,
    jerk=(5000.0,) * 7,
    gripper=_fingers("fr3_finger_joint1", "fr3_finger_joint2", **_FRANKA_HAND),
    source="https://frankaemika.github.io/docs/control_parameters.html#limits-for-franka-research-3",
    **_FRANKA,
)

UR5E = _arm(
    "ur5e",
    joints=tuple(
        f"{part}_joint" for part in ("shoulder_pan", "shoulder_lift", "elbow", "wrist_1", "wrist_2", "wrist_3")
    ),
    home=(-0.269864, -1.584220, 1.732291, -1.718868, -pi / 2, -1.840660),  # tcp at (0.50, 0, 0.28) m, looking down
    velocity=(pi,) * 6,
    acceleration=(5.0,) * 6,
    jerk=(100.0,) * 6,
    effort=(150.0, 150.0, 150.0, 28.0, 28.0, 28.0),
    gripper=_fingers("ur5e_finger_left", "ur5e_finger_right", width=0.085, speed=0.075, force=235.0),
    source="https://www.universal-robots.com/articles/ur/application-installation/"
    "dh-parameters-for-calculations-of-kinematics-and-dynamics/",
)

SO101 = _arm(
    "so101",
    joints=("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll"),
    home=(0.0, 0.0, 0.17, 1.4, 0.0487),  # tcp at (0.22, 0, 0.05) m, looking down
    velocity=(4.7,) * 5,
    acceleration=(20.0,) * 5,
    jerk=(400.0,) * 5,
    effort=(2.94,) * 5,
    gripper=GripperSpec(
        GripperKind.REVOLUTE,
        joints=("gripper",),
        max_width=0.13,
        max_speed=0.16,
        max_force=36.0,
        jaw_range=(-0.174533, 1.74533),
        grip=(0.0, 0.032, 0.0),  # 1 cm off the finger that stands still, which ends at the tcp
    ),
    source="https://github.com/TheRobotStudio/SO-ARM100/tree/main/Simulation/SO101",
)

SHIPPED: dict[str, RobotSpec] = {robot.name: robot for robot in (PANDA, FR3, UR5E, SO101)}

ROBOTS = Table(SHIPPED, lambda _: own_robots())
"""Arms by name: the shipped ones, and those of the user's own folders."""


def _side_by_side(robot: RobotSpec, apart: float) -> PairSpec:
    """Two of an arm that look the same way, their bases so far apart [m]; the left one is on its own left."""
    left, right = (
        ArmPart(name, robot, Base((0.0, side * 0.5 * apart, 0.0))) for name, side in (("left", 1), ("right", -1))
    )
    return PairSpec(f"{robot.name}_pair", (left, right))


PAIRS: dict[str, PairSpec] = {
    pair.name: pair for pair in (_side_by_side(PANDA, 0.7), _side_by_side(FR3, 0.7), _side_by_side(SO101, 0.3))
}
"""Robots of two arms, by name."""


def robot_named(name: str) -> AnyRobot:
    """The arm or the pair of arms called `name`."""
    found = ROBOTS.get(name) or PAIRS.get(name)
    if found is None:
        raise BadInput("robot", got=name, available=(*ROBOTS, *PAIRS))
    return found
