"""What each launch file starts, with which parameters, and what it refuses."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robots.stations import load_contract

ROOT = Path(__file__).parents[2]
FILES = sorted(path.name.removesuffix(".launch.py") for path in (ROOT / "launch").glob("*.launch.py"))
REQUIRED = {"deploy": {"policy": "runs/rl"}, "record": {"out": "data/x"}, "hil": {"policy": "runs/bc", "out": "runs/x"}}
PROGRAMS = {"deploy": "policy_node", "teleop": "teleop_node", "record": "record_node", "hil": "hil_node"}
ROBOTS = ("sim", "fr3")
Launch = Callable[..., Any]


def test_the_files_are_those_that_the_readers_are_told_of() -> None:
    assert FILES == ["arm", "deploy", "hil", "record", "servos", "sim_arm", "teleop"]


@pytest.mark.parametrize("name", FILES)
def test_every_program_that_a_file_starts_is_installed_and_has_its_entry(
    launch: Launch, prefix: Path, name: str
) -> None:
    """Read from the file itself, whatever its arguments switch on; nothing is put in place for the test."""
    import ast

    tree = ast.parse((ROOT / "launch" / f"{name}.launch.py").read_text(encoding="utf-8"))
    named = [
        keyword.value.value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Node"
        for keyword in call.keywords
        if keyword.arg == "executable" and isinstance(keyword.value, ast.Constant)
    ]
    started = {
        process.executable
        for robot in ROBOTS
        for process in launch(name, robot=robot, **REQUIRED.get(name, {})).started
    }
    assert named and started >= set(named)
    for program in named:
        installed = prefix / "lib" / "robolearn" / program
        assert installed.resolve() == ROOT / "launch" / "executables" / program and os.access(installed, os.X_OK)
        found = re.search(r"from ([\w.]+) import (\w+)", installed.read_text(encoding="utf-8"))
        assert found is not None and callable(getattr(importlib.import_module(found[1]), found[2]))


def test_every_installed_program_is_started_by_some_file(launch: Launch, prefix: Path) -> None:
    started = {
        process.executable
        for name in FILES
        for robot in ROBOTS
        for process in launch(name, robot=robot, **REQUIRED.get(name, {})).started
    }
    assert {path.name for path in (prefix / "lib" / "robolearn").iterdir()} == started


@pytest.mark.parametrize("name", FILES)
def test_every_argument_is_described_and_every_required_one_is_asked_for(launch: Launch, name: str) -> None:
    needed = REQUIRED.get(name, {})
    context = launch(name, **needed)
    assert all(len(argument.description) > 10 for argument in context.declared.values())
    for missing in needed:
        with pytest.raises(RuntimeError, match=f"missing required argument '{missing}' \\(description"):
            launch(name, **{key: value for key, value in needed.items() if key != missing})


@pytest.mark.parametrize("name", FILES)
def test_every_node_is_in_our_namespace_and_everything_ends_with_the_safety_node(launch: Launch, name: str) -> None:
    started = {process.node: process for process in launch(name, **REQUIRED.get(name, {})).started}
    assert all(process.executable == f"{node.split('/')[-1]}_node" for node, process in started.items())
    if name == "servos":  # the arm's driver, in the namespace of its contract, whatever else runs
        assert set(started) == {f"{load_contract('so101').namespace}/robolearn/servos"}
        return
    assert all(node.count("/") == 2 and node.startswith("/robolearn/") for node in started)
    if name == "sim_arm":
        assert set(started) == {"/robolearn/sim_arm"}
        return
    common = {"/robolearn/safety", "/robolearn/sim_arm"}
    # Only one of them may stream targets: the streamer for policies, teleoperation by itself.
    common |= {"/robolearn/streamer"} if name == "deploy" else set()
    assert common <= set(started)
    assert "safety node" in started["/robolearn/safety"].shutdown
    others = set(started) - common
    assert len(others) == (name != "arm") and all(started[node].shutdown for node in others)


def test_a_deployment_in_simulation(launch: Launch) -> None:
    context = launch("deploy", policy="runs/7", task="pick_place", seed="3")
    assert {process.executable: process.parameters for process in context.started} == {
        "policy_node": {
            "contract": "sim",
            "policy": "runs/7",
            "words": "",
            "goals": "",
            "device": "auto",
            "backend": "torch",
            "precision": "float32",
        },
        "safety_node": {"contract": "sim", "dry_run": False, "targets": "joints", "realtime_priority": 0},
        "streamer_node": {"contract": "sim", "realtime_priority": 0},
        "sim_arm_node": {"contract": "sim", "task": "pick_place", "seed": 3},
    }


def test_a_recording_with_a_browser(launch: Launch) -> None:
    context = launch("record", robot="fr3", teleop="browser", out="data/1", task="7 cups", cameras="wrist")
    assert {process.executable: process.parameters for process in context.started} == {
        "record_node": {
            "contract": "fr3", "device": "browser", "out": "data/1", "task": "7 cups", "episodes": 10,
            "cameras": "wrist", "seconds": 60.0, "sim_task": "lift", "view": "none", "host": "127.0.0.1",
            "port": 8070, "realtime_priority": 0,
        },
        "safety_node": {"contract": "fr3", "dry_run": False, "targets": "joints", "realtime_priority": 0},
        "gripper_node": {"contract": "fr3", "if_needed": True},
    }  # fmt: skip


def test_a_lesson_in_simulation(launch: Launch) -> None:
    context = launch("hil", teleop="browser", policy="runs/7", demos="data/7", out="runs/8", task="lift")
    assert {process.executable: process.parameters for process in context.started} == {
        "hil_node": {
            "contract": "sim", "device": "browser", "policy": "runs/7", "demos": "data/7", "out": "runs/8",
            "algo": "proposals", "reward": "task", "env_steps": 24000, "seconds": 30.0, "task": "lift",
            "host": "127.0.0.1", "port": 8070, "realtime_priority": 0,
        },
        "safety_node": {"contract": "sim", "dry_run": False, "targets": "joints", "realtime_priority": 0},
        "sim_arm_node": {"contract": "sim", "task": "lift", "seed": 0},
    }  # fmt: skip


def test_one_thing_has_one_name_in_commands_and_launch_files(launch: Launch) -> None:
    """The arguments of a launch file that its command has, too, are called as its flags are; former names still do."""
    import dataclasses

    from robolearn.cli.registry import find

    for name, command, own in (
        ("record", "record", {"namespace", "dry_run", "targets", "device", "words"}),
        ("deploy", "deploy", {"namespace", "dry_run", "targets"}),
        ("hil", "hil run", {"namespace", "dry_run", "targets", "device", "sim_task", "seconds"}),
    ):
        kind = find(command.split())[0].load()
        flags = {field.name for field in dataclasses.fields(kind)} | {"seconds"}
        assert set(launch(name, **REQUIRED[name]).declared) - flags <= own | {"sim_task"}, name
    formerly = launch("record", out="x", device="browser", words="7 cups").started[0].parameters
    assert (formerly["device"], formerly["task"], formerly["sim_task"]) == ("browser", "7 cups", "lift")
    sim = launch("record", out="x", task="7 cups", sim_task="peg_insert").started
    assert [p.parameters["task"] for p in sim if p.executable == "sim_arm_node"] == ["peg_insert"]
    assert sim[0].parameters["task"] == "7 cups" and sim[0].parameters["sim_task"] == "peg_insert"


@pytest.mark.parametrize("name", FILES)
def test_an_argument_that_is_unknown_is_named(launch: Launch, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    needed = REQUIRED.get(name, {})
    monkeypatch.setattr(sys, "argv", ["ros2", "launch", "robolearn", f"{name}.launch.py", "robott:=fr3"])
    with pytest.raises(RuntimeError, match=rf"{name}.launch.py knows no realtime_prio:=.*available: .*namespace"):
        launch(name, realtime_prio="fr3", **needed)
    if name in ("arm", "deploy"):
        with pytest.raises(RuntimeError, match=r"knows no dry-run:= \(did you mean dry_run:=\?\)"):
            launch(name, **{"dry-run": "true"}, **needed)
    assert launch(name, namespace="x/robolearn", **needed).started
    # A launch file of somebody else's that includes ours has arguments of its own.
    monkeypatch.setattr(sys, "argv", ["ros2", "launch", "cell", "cell.launch.py", "light:=on"])
    assert launch(name, light="on", **needed).started


def test_texts_stay_texts_whatever_they_look_like(launch: Launch) -> None:
    """`policy:=1` and `robot:=on` would reach a node as a number and a truth value."""
    found = launch("deploy", policy="1", robot="on").started[0].parameters
    assert (found["contract"], found["policy"]) == ("on", "1")
    assert all(isinstance(value, str) for value in found.values())


def test_a_real_robot_has_no_simulated_arm(launch: Launch) -> None:
    started = launch("deploy", robot="fr3", policy="runs/rl").started
    names = [process.executable for process in started]
    assert names == ["policy_node", "streamer_node", "safety_node", "gripper_node"]
    assert all(process.parameters["contract"] == "fr3" for process in started)


def test_real_time_priority_and_a_dry_run(launch: Launch) -> None:
    started = launch("deploy", robot="fr3", policy="runs/rl", realtime_priority="50", dry_run="true").started
    parameters = {process.executable: process.parameters for process in started}
    assert parameters["safety_node"] == {
        "contract": "fr3",
        "dry_run": True,
        "targets": "joints",
        "realtime_priority": 50,
    }
    assert parameters["streamer_node"] == {"contract": "fr3", "realtime_priority": 50}
    assert "gripper_node" not in parameters, "what is sent nowhere moves no gripper either"


def test_the_driver_of_servos(launch: Launch) -> None:
    (driver,) = launch("servos", robot="left.yaml", namespace="left/robolearn", port="/dev/ttyACM1").started
    assert driver.node == "/left/robolearn/servos"
    assert driver.parameters == {
        "contract": "left.yaml", "port": "/dev/ttyACM1", "limp": False, "release": False, "realtime_priority": 0,
    }  # fmt: skip


def test_a_gripper_without_actions_ends_its_node_and_nothing_else(launch: Launch) -> None:
    (gripper,) = (p for p in launch("arm", robot="ur5e").started if p.executable == "gripper_node")
    assert gripper.node == "/robolearn/gripper" and not gripper.shutdown


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_nothing_is_started_when_the_program_is_not_installed(
    launch: Launch, double: Any, prefix: Path, tmp_path: Path, name: str
) -> None:
    place = tmp_path / "incomplete"
    shutil.copytree(prefix, place)
    (place / "lib" / "robolearn" / PROGRAMS[name]).unlink(missing_ok=True)
    started: list[Any] = []
    run = double.LaunchContext
    with pytest.MonkeyPatch.context() as patch, pytest.raises(double.SubstitutionFailure, match=PROGRAMS[name]):
        patch.setattr(double, "LaunchContext", lambda *args, **more: run(*args, **more, started=started))
        launch(name, place, **REQUIRED.get(name, {}))
    assert not started


def test_launch_files_import_nothing_but_ros_and_the_standard_library() -> None:
    """`ros2` runs with the system's Python, which does not see our packages."""
    import ast

    for path in (ROOT / "launch").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in (name.split(".")[0] for name in names):
                assert name in {"launch", "launch_ros"} | sys.stdlib_module_names, (path.name, name)
