"""A human in the loop: ros2 launch robolearn hil.launch.py robot:=fr3 policy:=runs/bc out:=runs/hil."""

from pathlib import Path
from runpy import run_path

from launch import LaunchDescription

LAUNCHING = run_path(str(Path(__file__).with_name("launching.py")))


def generate_launch_description() -> LaunchDescription:
    """The actor, which starts its learner, and the arm behind its safety filter."""
    actor = LAUNCHING["Started"]("hil", renamed=LAUNCHING["TELEOP"], ends="the loop has ended")
    return LAUNCHING["described"](
        __file__,
        actor,
        include="arm.launch.py",
        required=["policy", "out"],
        aliases={"device": ("teleop", "the former name of teleop")},
    )
