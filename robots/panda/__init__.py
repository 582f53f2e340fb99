"""Franka Emika Panda with the Franka Hand.

Limits: Franka Control Interface documentation, "Robot and interface specifications" (Panda).
"""

from __future__ import annotations

from pathlib import Path

from robots.spec import GripperKind, GripperSpec, RobotSpec

PANDA = RobotSpec(
    name="panda",
    mjcf=Path(__file__).with_name("panda.xml"),
    joints=tuple(f"panda_joint{i}" for i in range(1, 8)),
    tcp_site="tcp",
    home=(0.0, -0.0851, 0.0, -2.2996, 0.0, 2.2145, 0.785398163397448),  # tcp at (0.50, 0, 0.28) m, looking down
    velocity=(2.1750, 2.1750, 2.1750, 2.1750, 2.6100, 2.6100, 2.6100),
    acceleration=(15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0),
    jerk=(7500.0, 3750.0, 5000.0, 6250.0, 7500.0, 10000.0, 10000.0),
    effort=(87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0),
    gripper=GripperSpec(
        GripperKind.PARALLEL,
        joints=("panda_finger_left", "panda_finger_right"),
        max_width=0.08,
        max_speed=0.1,
        max_force=70.0,
    ),
    source="https://frankaemika.github.io/docs/control_parameters.html",
    flange=(0.0, 0.0, 0.107),
)
