"""An operator moves the arm: ros2 launch robolearn teleop.launch.py robot:=fr3 teleop:=spacemouse."""

from pathlib import Path
from runpy import run_path


def generate_launch_description():
    """The teleoperator's node and the arm behind its safety filter."""
    launching = run_path(str(Path(__file__).with_name("launching.py")))
    started, described = launching["Started"], launching["described"]
    teleop = started("teleop", renamed=launching["TELEOP"], ends="teleoperation has ended", patience_s=12.0)
    return described(__file__, teleop, include="arm.launch.py", aliases=launching["FORMER"])
