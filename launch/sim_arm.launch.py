"""The simulated arm alone, or two, behind the topics that a real arm's controller has."""

from pathlib import Path
from runpy import run_path


def generate_launch_description():
    """One node: the arms of MuJoCo and their task in real time."""
    launching = run_path(str(Path(__file__).with_name("launching.py")))
    started, described = launching["Started"], launching["described"]
    arm = started("sim_arm", renamed={"task": "sim_task"}, ends="the simulated arm has ended")
    # Where `task` is a task in words, as for record, the task of the arm is `sim_task`.
    return described(__file__, arm, aliases={"task": ("sim_task", "task of the simulated arm")})
