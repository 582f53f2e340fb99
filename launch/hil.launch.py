"""A human in the loop: ros2 launch robolearn hil.launch.py robot:=fr3 policy:=runs/bc out:=runs/hil."""

from pathlib import Path
from runpy import run_path


def generate_launch_description():
    """The actor, which starts its learner and waits half a minute for its checkpoint, and the arm behind its filter."""
    launching = run_path(str(Path(__file__).with_name("launching.py")))
    started, described = launching["Started"], launching["described"]
    actor = started("hil", renamed=launching["TELEOP"], ends="the loop has ended", patience_s=40.0)
    required, former = ["policy", "out"], launching["FORMER"]
    return described(__file__, actor, include="arm.launch.py", required=required, aliases=former)
