"""SO-101 follower: five joints and a revolute jaw, driven by Feetech STS3215 servos.

Five joints cannot take every pose of the tcp: tcp motion is a least-squares compromise, joint positions are exact.

The jaw swings by 1.92 rad around an axis 8 cm behind its tip, which then moves 2 · 0.08 m · sin(0.96) = 0.13 m: that
is its opening, taken as linear in the angle (1 cm off at most). Joint limits of the servo: 45 turns a minute without
load and 30 kg·cm at a standstill, at 12 V (its data sheet). Its acceleration is not published: 20 rad/s² reaches full
speed in a quarter of a second, the jerk full acceleration in 50 ms.
"""

from __future__ import annotations

from pathlib import Path

from robots.spec import GripperKind, GripperSpec, RobotSpec

SO101 = RobotSpec(
    name="so101",
    mjcf=Path(__file__).with_name("so101.xml"),
    joints=("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll"),
    tcp_site="tcp",
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
