"""A policy on an arm: ros2 launch robolearn deploy.launch.py robot:=fr3 policy:=runs/rl record:=data/deployed."""

from pathlib import Path
from runpy import run_path

from launch.conditions import UnlessCondition
from launch.substitutions import EqualsSubstitution, LaunchConfiguration


def generate_launch_description():
    """The policy node, the streamer and the arm behind its safety filter; with `record` what stores the episode."""
    launching = run_path(str(Path(__file__).with_name("launching.py")))
    started, described = launching["Started"], launching["described"]
    policy, streamer = started("policy", ends="the policy node has ended"), started("streamer")
    rollouts = started(
        "rollouts",
        renamed={"out": "record"},
        fixed={"every_arming": True, "realtime_priority": 0},
        patience_s=70.0,
        condition=UnlessCondition(EqualsSubstitution(LaunchConfiguration("record"), "")),
    )
    task = {"task": ("sim_task", "task of the simulated arm")}
    return described(__file__, policy, streamer, rollouts, include="arm.launch.py", required=["policy"], aliases=task)
