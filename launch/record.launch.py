"""Demonstrations: ros2 launch robolearn record.launch.py robot:=fr3 out:=data/fr3 task:="stack the cups"."""

from pathlib import Path
from runpy import run_path

from launch import LaunchDescription

LAUNCHING = run_path(str(Path(__file__).with_name("launching.py")))


def generate_launch_description() -> LaunchDescription:
    """The recorder and the arm behind its safety filter."""
    recorder = LAUNCHING["Started"]("record", renamed=LAUNCHING["TELEOP"], ends="the recording has ended")
    return LAUNCHING["described"](
        __file__,
        recorder,
        include="arm.launch.py",
        required=["out"],
        aliases={"device": ("teleop", "the former name of teleop"), "words": ("task", "the former name of task")},
    )
