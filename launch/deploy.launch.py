"""A policy on an arm: ros2 launch robolearn deploy.launch.py robot:=fr3 policy:=runs/rl."""

from pathlib import Path
from runpy import run_path


def generate_launch_description():
    """The policy node, the streamer and the arm behind its safety filter."""
    launching = run_path(str(Path(__file__).with_name("launching.py")))
    started, described = launching["Started"], launching["described"]
    policy, streamer = started("policy", ends="the policy node has ended"), started("streamer")
    return described(__file__, policy, streamer, include="arm.launch.py", required=["policy"])
