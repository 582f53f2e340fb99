"""The driver of an arm of bus servos: ros2 launch robolearn servos.launch.py robot:=so101."""

from pathlib import Path
from runpy import run_path

from launch import LaunchDescription

LAUNCHING = run_path(str(Path(__file__).with_name("launching.py")))


def generate_launch_description() -> LaunchDescription:
    """One node, which is the arm's driver and its controller; beside it start deploy, teleop or record."""
    return LAUNCHING["described"](
        __file__, LAUNCHING["Started"]("servos"), defaults={"robot": "so101", "namespace": "follower/robolearn"}
    )
