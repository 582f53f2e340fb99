"""The driver of an arm of bus servos: ros2 launch robolearn servos.launch.py robot:=so101."""

from pathlib import Path
from runpy import run_path


def generate_launch_description():
    """One node, which is the arm's driver and its controller; beside it start deploy, teleop or record."""
    launching = run_path(str(Path(__file__).with_name("launching.py")))
    started, described = launching["Started"], launching["described"]
    return described(__file__, started("servos"), defaults={"robot": "so101", "namespace": "follower/robolearn"})
