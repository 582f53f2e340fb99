"""A policy on an arm: ros2 launch robolearn deploy.launch.py robot:=fr3 policy:=runs/rl."""

from pathlib import Path
from runpy import run_path

from launch import LaunchDescription

LAUNCHING = run_path(str(Path(__file__).with_name("launching.py")))


def generate_launch_description() -> LaunchDescription:
    """The policy node, the streamer and the arm behind its safety filter."""
    policy = LAUNCHING["Started"]("policy", ends="the policy node has ended")
    streamer = LAUNCHING["Started"]("streamer")
    return LAUNCHING["described"](__file__, policy, streamer, include="arm.launch.py", required=["policy"])
