"""Demonstrations: ros2 launch robolearn record.launch.py robot:=fr3 out:=data/fr3 task:="stack the cups"."""

from pathlib import Path
from runpy import run_path


def generate_launch_description():
    """The recorder and the arm behind its safety filter."""
    launching = run_path(str(Path(__file__).with_name("launching.py")))
    started, described = launching["Started"], launching["described"]
    recorder = started("record", renamed=launching["TELEOP"], ends="the recording has ended")
    former = {**launching["FORMER"], "words": ("task", "the former name of task")}
    return described(__file__, recorder, include="arm.launch.py", required=["out"], aliases=former)
