"""An operator moves the arm: ros2 launch robolearn teleop.launch.py robot:=fr3 teleop:=spacemouse."""

from pathlib import Path
from runpy import run_path

from launch import LaunchDescription

LAUNCHING = run_path(str(Path(__file__).with_name("launching.py")))


def generate_launch_description() -> LaunchDescription:
    """The teleoperator's node and the arm behind its safety filter."""
    teleop = LAUNCHING["Started"]("teleop", renamed=LAUNCHING["TELEOP"], ends="teleoperation has ended")
    return LAUNCHING["described"](
        __file__, teleop, include="arm.launch.py", aliases={"device": ("teleop", "the former name of teleop")}
    )
