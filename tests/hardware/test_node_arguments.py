"""Flags of the node programs, and bad input, which ends them with exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hardware.ros2.process import ros_arguments
from robolearn.core import BadInput
from robolearn.deploy.nodes import main


def test_flags_become_parameters() -> None:
    argv = ["--contract", "sim", "--grace-ms=20", "--ros-args", "-r", "a:=b"]
    assert ros_arguments(argv, ("contract", "grace_ms"))[1:] == [
        "--ros-args", "-p", "contract:=sim", "-p", "grace_ms:=20", "--", "--ros-args", "-r", "a:=b",
    ]  # fmt: skip
    with pytest.raises(BadInput, match="did you mean --contract"):
        ros_arguments(["--contrast", "x"], ("contract",))
    with pytest.raises(BadInput, match="no value"):
        ros_arguments(["--contract"], ("contract",))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "argv", "why"),
    [
        ("streamer", ["--contract", "simm"], "did you mean sim"),
        ("streamer", ["--grace-ms", "soon"], "expected a float"),
        ("streamer", ["--bogus", "1"], "got --bogus"),
        ("policy", ["--contract", "sim"], "parameter policy"),
        ("policy", ["--policy", "/nowhere"], "/nowhere"),
    ],
)
def test_bad_input_ends_a_node_with_2(capsys: pytest.CaptureFixture[str], name: str, argv: list[str], why: str) -> None:
    assert main(name, argv) == 2
    assert why in capsys.readouterr().err


START = {
    "a node": "import sys; from robolearn.deploy.nodes import main; sys.exit(main('safety', ['--contract', 'sim']))",
    "a client": "from hardware.ros2.process import Background; Background()",
}


@pytest.mark.long
@pytest.mark.parametrize("who", START)
def test_logs_that_this_user_may_not_write_are_one_line(who: str, tmp_path: Path) -> None:
    """Who started anything of ROS with sudo once owns ~/.ros no more; a process has one folder of logs, so a child."""
    (tmp_path / "logs").touch()
    env = {**os.environ, "ROS_LOG_DIR": str(tmp_path / "logs")}
    done = subprocess.run([sys.executable, "-c", START[who]], env=env, capture_output=True, text=True, timeout=60)
    said = done.stderr.strip().splitlines()[-1]
    assert "ROS's logs: got RCLError" in said and "ROS_LOG_DIR=FOLDER" in said
    assert done.returncode == (2 if who == "a node" else 1)
