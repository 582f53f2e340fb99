"""Deployments and trials whose nodes a launch file starts: by the machine's `ros2`, else by the double of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from running import PROGRAM, ROOT, WAIT_S
from untrained import make_constant

from robolearn.cli.main import main
from robolearn.cli.trial_hashes import changed
from robolearn.core import BadInput
from robolearn.deploy import NodeDied
from robolearn.deploy.launched import LaunchedNodes, arguments_of, launch_program, own_launch_file
from robolearn.eval.trials.plan import TrialPlan
from robots.stations import load_contract

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 6
WATCHER = """\
import os, sys
import rclpy
from sensor_msgs.msg import JointState

rclpy.init()
node = rclpy.create_node("watcher")
node.declare_parameter("out", "")
out = open(node.get_parameter("out").value, "a")


def hear(message):
    print(os.getpid(), node.get_fully_qualified_name(), message.name[0], file=out, flush=True)


node.create_subscription(JointState, "heard", hear, rclpy.qos.qos_profile_sensor_data)
try:
    rclpy.spin(node)
except (KeyboardInterrupt, rclpy.executors.ExternalShutdownException):
    pass
"""
ADDED = """\
    from launch import LaunchDescription
    from launch_ros.actions import Node

    watcher = Node(
        package="cell", executable="watcher", namespace="cell", name="watcher", output="screen",
        parameters=[{{"out": {out!r}}}], remappings=[("heard", "/joint_states")],
    )
    return LaunchDescription([watcher, described("""


@pytest.fixture
def ros2(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A prefix with our nodes and a site's node, and a `ros2` on the PATH, that of the machine where there is one."""
    place = tmp_path / "prefix"
    shutil.copytree(prefix, place, symlinks=True)
    if shutil.which("ros2") is None:
        program(place / "bin" / "ros2", f'exec {sys.executable} {Path(__file__).with_name("ros2_double.py")} "$@"\n')
        monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    (place / "lib" / "cell").mkdir()
    (place / "lib" / "cell" / "watcher.py").write_text(WATCHER)
    program(place / "lib" / "cell" / "watcher", f'exec {sys.executable} "$(dirname "$0")/watcher.py" "$@"\n')
    (place / "share" / "ament_index" / "resource_index" / "packages" / "cell").touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{place}:{sys.prefix}")
    arguments_of.cache_clear()
    yield place
    arguments_of.cache_clear()
    for left in running_of(place):
        os.kill(left, signal.SIGKILL)


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    """A site's copy of our launch files, whose deploy.launch.py starts a node more, which writes what it hears."""
    place = tmp_path / "cell"
    shutil.copytree(ROOT / "launch", place, ignore=shutil.ignore_patterns("executables", "ament_index", "Dockerfile"))
    file = place / "deploy.launch.py"
    text = file.read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("    return described(")]
    added = ADDED.format(out=str(tmp_path / "heard")) + line.removeprefix("    return described(") + "])"
    file.write_text(text.replace(line, added))
    return file


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Two policies, as flags."""
    monkeypatch.chdir(tmp_path)
    interface = load_contract("sim").interface
    made = {name: make_constant(tmp_path / name, interface, dz=dz) for name, dz in (("up", -0.2), ("rest", 0.0))}
    return tuple(f"{name}={path}" for name, path in made.items())


def command(*words: object) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen([*PROGRAM, *map(str, words)], text=True, env=env, start_new_session=True, **pipes)


def rows(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    return [row for row in found if row["outcome"] != "begun"]


def running_of(prefix: Path) -> dict[int, str]:
    """Process id → command line, of all that was started with this prefix in its environment."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"AMENT_PREFIX_PATH={prefix}:" in (place / "environ").read_text():
                found[int(place.name)] = (place / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


@pytest.mark.long
@pytest.mark.realtime
def test_a_trial_of_a_sites_launch_file_runs_exactly_that(
    ros2: Path, cell: Path, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """Both policies are started through the file, beside the site's own node; a node that is killed is an outcome."""
    trial, logs = tmp_path / "trial", tmp_path / "logs"
    words = ("--policies", *flags, "--arm", "sim", "--blocks", 2, "--launch", cell, "--out", trial)
    assert main([str(word) for word in ("trial", "plan", *words)]) == 0
    running = command("trial", "run", trial, "--episodes", 2, "--domain", DOMAIN, "--logs", logs, "--json")
    _, err = running.communicate(timeout=WAIT_S)
    assert running.returncode == 0, err
    assert [row["outcome"] for row in rows(trial)] == ["timeout", "timeout"], err
    heard = [line.split() for line in (tmp_path / "heard").read_text().splitlines()]
    assert len({pid for pid, *_ in heard}) == 2 and {tuple(rest) for _, *rest in heard} == {
        ("/cell/watcher", "panda_joint1")
    }
    for number in (1, 2):
        said = (logs / f"episode-{number}" / "launch.log").read_text()
        started = re.findall(r"\[INFO\] \[(\w+)-\d+\]: process started with pid", said)
        assert sorted(started) == ["policy_node", "safety_node", "sim_arm_node", "streamer_node", "watcher"], said
        assert said.count("process has finished cleanly") == 5 and "emergency stop" not in said, said
    assert not running_of(ros2)

    (tmp_path / "heard").unlink()
    running = command("trial", "run", trial, "--episodes", 1, "--domain", DOMAIN, "--logs", logs, "--json")
    log, end = logs / "episode-3" / "launch.log", time.monotonic() + WAIT_S
    try:
        while not (tmp_path / "heard").exists() and time.monotonic() < end:
            time.sleep(0.05)
        (streamer,) = re.findall(r"\[streamer_node-\d+\]: process started with pid \[(\d+)\]", log.read_text())
        os.kill(int(streamer), signal.SIGKILL)
        _, err = running.communicate(timeout=WAIT_S)
    finally:
        running.kill()
    died = rows(trial)[2]
    assert (died["outcome"], died["reason"]) == ("died", "the streamer node was killed by SIGKILL"), err
    assert not running_of(ros2)

    cell.write_text(cell.read_text() + "\n")
    running = command("trial", "run", trial)
    _, err = running.communicate(timeout=WAIT_S)
    assert running.returncode == 2 and "trial: launch file has changed" in err, err


@pytest.mark.long
@pytest.mark.realtime
def test_a_deployment_that_is_killed_takes_its_launch_along(
    ros2: Path, cell: Path, flags: tuple[str, ...], tmp_path: Path
) -> None:
    policy = flags[0].partition("=")[2]
    words = ("--policy", policy, "--episodes", 1, "--launch", cell, "--logs", tmp_path / "logs")
    running = command("deploy", *words, "--domain", DOMAIN)
    end = time.monotonic() + WAIT_S
    try:
        while not (tmp_path / "heard").exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert len(running_of(ros2)) >= 7, "the command, launch and five nodes"
    finally:
        running.kill()
        running.communicate(timeout=WAIT_S)
    while running_of(ros2) and time.monotonic() < end:
        time.sleep(0.05)
    assert not running_of(ros2)


@pytest.mark.long
def test_a_launch_file_that_cannot_be_is_named_before_anything_is_planned(
    ros2: Path, cell: Path, flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def plan(*words: object, arm: str = "sim") -> tuple[int, str]:
        station = ("--arm", arm) if arm else ("--task", "lift")
        given = ("trial", "plan", "--policies", *flags, *station, "--blocks", 2, *words, "--out", tmp_path / "trial")
        code = main([str(word) for word in given])
        return code, capsys.readouterr().err

    assert plan("--launch", tmp_path / "no.launch.py") == (
        2, f"robolearn: error: --launch: got no file {tmp_path / 'no.launch.py'}, expected a launch file\n"
    )  # fmt: skip
    assert plan("--launch", cell, arm="")[1].startswith("robolearn: error: --launch: got no --arm")
    (tmp_path / "torn.launch.py").write_text("import no_such_module\n")
    code, said = plan("--launch", tmp_path / "torn.launch.py")
    assert code == 2 and "No module named 'no_such_module'" in said and said.count("\n") == 1
    (tmp_path / "slow.launch.py").write_text("import time\n\ntime.sleep(60)\n")
    monkeypatch.setattr("robolearn.deploy.launched.SHOW_S", 5.0)
    code, said = plan("--launch", tmp_path / "slow.launch.py")
    assert code == 2 and "got no answer of ros2 launch --show-args within 5 s" in said and said.count("\n") == 1
    monkeypatch.setenv("PATH", os.defpath)
    arguments_of.cache_clear()
    if shutil.which("ros2") is None:
        assert "--launch: got no ros2 on the PATH, expected a ROS 2 that has been sourced" in plan("--launch", cell)[1]
        assert own_launch_file() is None
    assert not (tmp_path / "trial").exists()


@pytest.mark.long
def test_a_plan_takes_our_launch_file_where_ros2_finds_it(
    ros2: Path, flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ros2 / "share" / "robolearn" / "launch" / "deploy.launch.py"
    assert own_launch_file() == ours

    def planned(name: str, *words: object) -> dict[str, Any]:
        given = ("--policies", *flags, "--arm", "sim", "--blocks", 2, *words, "--out", tmp_path / name)
        assert main([str(word) for word in ("trial", "plan", *given)]) == 0
        return json.loads((tmp_path / name / "plan.json").read_text())

    found = planned("by-itself")
    assert found["setting"]["launch"] == str(ours) and found["hashes"]["launch file"]
    found = planned("none", "--launch", "none")
    assert found["setting"]["launch"] == "" and "launch file" not in found["hashes"]
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    assert planned("elsewhere")["setting"]["launch"] == ""


@pytest.mark.long
def test_a_launch_file_that_has_changed_is_named_and_so_is_one_that_it_includes(
    ros2: Path, cell: Path, flags: tuple[str, ...], tmp_path: Path
) -> None:
    words = ("--policies", *flags, "--arm", "sim", "--blocks", 2, "--launch", cell, "--out", tmp_path / "trial")
    assert main([str(word) for word in ("trial", "plan", *words)]) == 0
    plan = TrialPlan.read(tmp_path / "trial")
    assert not changed(plan)
    for file in (cell, cell.with_name("arm.launch.py")):
        text = file.read_text()
        file.write_text(f"{text}\n")
        assert set(changed(plan)) == {"launch file"}
        file.write_text(text)
    assert not changed(plan)


def test_an_argument_that_the_file_does_not_know_is_named(ros2: Path, cell: Path) -> None:
    contract = load_contract("sim")
    known = arguments_of(cell)
    assert {"robot", "policy", "reward", "dynamics", "dry_run", "namespace"} <= set(known)
    made = launch_program(cell, contract, "sim", 0, policy="runs/7", by_key=False)
    assert made.command[-4:] == (str(cell), "robot:=sim", "policy:=runs/7", "by_key:=false")
    with pytest.raises(BadInput, match=r"deploy.launch.py: got a file without plicy:=, .*available: .*policy"):
        launch_program(cell, contract, "sim", 0, plicy="runs/7")


Started = Callable[[str], LaunchedNodes]


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: Path) -> Iterator[Started]:
    """``launched(script)`` → what is launched by a `ros2` that is this script."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    made: list[LaunchedNodes] = []

    def start(script: str) -> LaunchedNodes:
        program(tmp_path / "bin" / "ros2", 'if [ "$4" = --show-args ]; then exit 0; fi\n' + script)
        monkeypatch.setattr("robolearn.deploy.launched.arguments_of", lambda file: ("robot",))
        nodes = LaunchedNodes([launch_program(cell, load_contract("sim"), "sim", 0)], tmp_path / "logs")
        made.append(nodes)
        nodes.__enter__()
        return nodes

    yield start
    for one in made:
        one.stop(1.0)


def raised(nodes: LaunchedNodes) -> BaseException:
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        try:
            nodes.check()
        except Exception as error:
            return error
        time.sleep(0.02)
    pytest.fail("nothing is raised")


@pytest.mark.long
def test_what_launch_says_of_a_node_is_what_its_end_is_called(launched: Started) -> None:
    says = """echo '[INFO] [policy_node-1]: process started with pid [7]'
echo '[policy_node-1] error: policy x: missing'
echo "[ERROR] [policy_node-1]: process has died [pid 7, exit code 2, cmd 'a [b] c']."
echo "[ERROR] [their.py-12]: process has died [pid 8, exit code -9, cmd 'd']."
exec sleep 60
"""
    nodes = launched(says)
    error = raised(nodes)
    assert isinstance(error, NodeDied) and (error.name, error.code, error.exit_code) == ("policy", 2, 2)
    assert str(error) == "the policy node ended with exit code 2: policy x: missing"
    assert nodes.codes == {"policy": 2, "their.py": -9}


@pytest.mark.long
@pytest.mark.parametrize(
    ("says", "line"),
    [
        ("echo '[ERROR] [launch]: Caught exception in launch (see debug for traceback): no x:=; available: y'\n"
         "exec sleep 60\n", "no x:=; available: y"),
        ("echo '[ERROR] [launch]: Caught exception in launch (see debug for traceback): Caught multiple:'\n"
         "echo ' - ModuleNotFoundError: cups'\nexit 1\n", "ModuleNotFoundError: cups"),
        ("echo malformed >&2\nexit 1\n", "malformed"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_start_is_nobodys_failure(launched: Started, says: str, line: str) -> None:
    """`NodeDied` would count against the policy whose turn it is."""
    error = raised(launched(says))
    assert isinstance(error, BadInput) and f"ros2 launch: got {line}, expected" in str(error)


@pytest.mark.long
def test_what_a_launch_leaves_behind_is_ended_too(launched: Started, tmp_path: Path) -> None:
    left = tmp_path / "left"
    nodes = launched(f"echo '[INFO] [x-1]: process started with pid [1]'\n(sleep 300 & echo $! > {left}; wait) &\n"
                     "trap 'exit 0' INT\nsleep 300 & wait\n")  # fmt: skip
    while not left.exists() or not left.read_text().strip():
        time.sleep(0.02)
    began = time.monotonic()
    nodes.stop(5.0)
    assert time.monotonic() - began < 12.0
    place = Path(f"/proc/{left.read_text().strip()}/stat")
    while place.exists() and " Z " not in place.read_text():  # a zombie has ended; its new parent has not noticed that
        assert time.monotonic() - began < 60.0
        time.sleep(0.05)
