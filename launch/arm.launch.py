"""The arm behind its safety filter: what deploy, teleop and record have in common, each of which includes it.

What streams targets to the filter is theirs: the streamer those of a policy, teleoperation its own.
"""

from functools import reduce
from pathlib import Path
from runpy import run_path

from launch.conditions import IfCondition, UnlessCondition
from launch.substitutions import EqualsSubstitution, LaunchConfiguration, OrSubstitution


def generate_launch_description():
    """The safety node, what passes openings on to grippers that take only actions, a simulated station."""
    launching = run_path(str(Path(__file__).with_name("launching.py")))
    started, described = launching["Started"], launching["described"]
    robot, names = LaunchConfiguration("robot"), launching["node_parameters"]().SIMULATED
    simulated = reduce(OrSubstitution, (EqualsSubstitution(robot, name) for name in names))
    # Never restarted: whoever looks why it ended also looks at the arm.
    safety = started("safety", ends="the safety node has ended, and nothing may move without it")
    # Whether the gripper knows only actions stands in the contract, which is not read here.
    gripper = started(
        "gripper",
        fixed={"if_needed": True, "realtime_priority": 0},  # nobody waits for it: the filter's cores stay free
        condition=UnlessCondition(OrSubstitution(simulated, LaunchConfiguration("dry_run"))),
    )
    return described(__file__, safety, gripper, include="sim_arm.launch.py", include_if=IfCondition(simulated))
