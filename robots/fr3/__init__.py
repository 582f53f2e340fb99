"""Franka Research 3 with the Franka Hand.

The FR3's velocity limit falls towards the ends of each joint's range. Franka's documentation suggests a rectangle of
positions (in the model) and velocities (below) inside which constant limits hold; outside it the arm would stop by a
reflex of its own.
"""

from __future__ import annotations

from pathlib import Path

from robots.spec import GripperKind, GripperSpec, RobotSpec

FR3 = RobotSpec(
    name="fr3",
    mjcf=Path(__file__).with_name("fr3.xml"),
    joints=tuple(f"fr3_joint{i}" for i in range(1, 8)),
    tcp_site="tcp",
    home=(0.0, -0.0851, 0.0, -2.2996, 0.0, 2.2145, 0.785398163397448),  # tcp at (0.50, 0, 0.28) m, looking down
    velocity=(2.0, 1.0, 1.5, 1.25, 3.0, 1.5, 3.0),
    acceleration=(10.0,) * 7,
    jerk=(5000.0,) * 7,
    effort=(87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0),
    gripper=GripperSpec(
        GripperKind.PARALLEL,
        joints=("fr3_finger_joint1", "fr3_finger_joint2"),
        max_width=0.08,
        max_speed=0.1,
        max_force=70.0,
    ),
    source="https://frankaemika.github.io/docs/control_parameters.html#limits-for-franka-research-3",
    flange=(0.0, 0.0, 0.107),
)
