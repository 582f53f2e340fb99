"""What each launch file starts, with which parameters, and what it refuses."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hardware.node_parameters import (
    NODES,
    SIMULATED,
    DeviceOptions,
    GripperParameters,
    NodeParameters,
    RolloutsParameters,
    SimArmParameters,
    TeleopParameters,
    descriptions,
    param,
    parameter_names,
)
from hardware.teleop import teleop_flags
from robolearn.hil.processes import PROGRAM
from robots.stations import contract_names, load_any_contract, load_contract, pair_names

ROOT = Path(__file__).parents[2]
FILES = sorted(path.name.removesuffix(".launch.py") for path in (ROOT / "launch").glob("*.launch.py"))
REQUIRED = {"deploy": {"policy": "runs/rl"}, "record": {"out": "data/x"}, "hil": {"policy": "runs/bc", "out": "runs/x"}}
EVERYTHING = {**REQUIRED, "deploy": {**REQUIRED["deploy"], "record": "data/x"}}  # what starts every program
PROGRAMS = {"deploy": "policy_node", "teleop": "teleop_node", "record": "record_node", "hil": "hil_node"}
ROBOTS = ("sim", "fr3")
Launch = Callable[..., Any]


def test_the_files_are_those_that_the_readers_are_told_of() -> None:
    assert FILES == ["arm", "deploy", "hil", "record", "servos", "sim_arm", "teleop"]


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_every_program_that_a_file_starts_is_installed_and_has_its_entry(
    launch: Launch, prefix: Path, name: str
) -> None:
    started = {
        process.executable
        for robot in ROBOTS
        for process in launch(name, robot=robot, **EVERYTHING.get(name, {})).started
    }
    assert started
    for program in started:
        installed = prefix / "lib" / "robolearn" / program
        assert installed.resolve() == ROOT / "launch" / "executables" / program and os.access(installed, os.X_OK)
        found = re.search(r"from ([\w.]+) import (\w+)", installed.read_text(encoding="utf-8"))
        assert found is not None and callable(getattr(importlib.import_module(found[1]), found[2]))


@pytest.mark.long
def test_a_program_of_a_launch_file_ends_without_taking_its_modules_down(prefix: Path, tmp_path: Path) -> None:
    """That takes a second and more, longer on a busy machine, and Ctrl-C waits for it. An object of a module that the
    interpreter takes down says so; what the program said is there."""
    mark = tmp_path / "taken down"
    (tmp_path / "sitecustomize.py").write_text(f"""
import os
class Witness:
    def __del__(self, os=os):
        os.close(os.open({str(mark)!r}, os.O_CREAT))
witness = Witness()
""")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    subprocess.run([sys.executable, "-c", ""], env=env, check=True)
    assert mark.exists(), "an interpreter that ends as usual does"
    mark.unlink()
    files = {file.name: file for file in (prefix / "lib" / "robolearn").iterdir()}
    assert len(files) == 10 and all("; leave(main" in file.read_text() for file in files.values())
    programs = [[str(files[name])] for name in ("hil_node", "teleop_node", "safety_node")]
    for program in [*programs, [*PROGRAM, "hil", "learner"]]:
        done = subprocess.run([*program, "--bogus"], env=env, capture_output=True, text=True)
        assert done.returncode == 2 and "bogus" in done.stderr, (program, done)
        assert not mark.exists(), program


# The arguments that each file has had from the beginning: scripts of users give them.
ACCEPTED = {
    "arm": "namespace robot dry_run targets realtime_priority task sim_task seed",
    "deploy": "namespace robot policy words goals device backend precision realtime_priority dry_run targets task "
    "sim_task seed",
    "hil": "namespace robot device teleop policy out demos algo reward env_steps seconds task host port "
    "realtime_priority dry_run targets sim_task seed",
    "record": "namespace robot device teleop out words task episodes cameras seconds sim_task view host port "
    "realtime_priority dry_run targets seed",
    "servos": "namespace robot port limp release realtime_priority",
    "sim_arm": "namespace task sim_task seed",
    "teleop": "namespace robot device teleop host realtime_priority dry_run targets task sim_task seed",
}


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_the_arguments_are_the_parameters_of_the_nodes(launch: Launch, name: str) -> None:
    """Each parameter of a node that is started is an argument with its description, and nothing else is; former names
    are accepted."""
    required = EVERYTHING.get(name, {})
    expected: dict[str, set[str]] = {"namespace": set()}
    for process in (p for robot in ROBOTS for p in launch(name, robot=robot, **required).started):
        kind = NODES[process.executable.removesuffix("_node")]
        assert set(process.parameters) == set(parameter_names(kind))
        fixed = {
            GripperParameters: {"if_needed", "realtime_priority"},
            RolloutsParameters: {"every_arming", "realtime_priority"},
        }
        called = {"contract": "robot"}
        called |= {"device": "teleop"} if issubclass(kind, TeleopParameters) else {}
        called |= {"task": "sim_task"} if kind is SimArmParameters else {}
        called |= {"out": "record"} if kind is RolloutsParameters else {}
        for parameter, text in descriptions(kind).items():
            if parameter not in fixed.get(kind, ()):
                expected.setdefault(called.get(parameter, parameter), set()).add(text)
        if kind is SimArmParameters:  # which has both names
            expected.setdefault("task", set()).add(descriptions(kind)["task"])
    declared = launch(name, **required).declared
    former = set(ACCEPTED[name].split()) - set(expected)
    assert former <= {"device", "words"}
    assert set(declared) == set(expected) | former
    assert all(declared[argument].description in texts for argument, texts in expected.items() if texts)


@dataclass(frozen=True, kw_only=True)
class DummyParameters(NodeParameters):
    grip: float = param(0.5, "how firmly to hold [N]")


def test_a_new_parameter_is_an_argument_with_its_help(launch: Launch, prefix: Path) -> None:
    """One field of a node's parameters, and nothing in a launch file."""
    helper = runpy.run_path(str(prefix / "share" / "robolearn" / "launch" / "launching.py"))
    node = helper["Started"]("dummy", parameters=DummyParameters)
    made = {one.name: one for one in helper["described"]("dummy.launch.py", node).get_launch_arguments()}
    assert (made["grip"].default_value, made["grip"].description) == ("0.5", "how firmly to hold [N]")
    assert set(made) == {"namespace", "robot", "autostart", "realtime_priority", "grip"}
    assert set(node.action.parameters[0]) == set(parameter_names(DummyParameters))


def test_the_flags_of_teleoperators_are_parameters_of_their_nodes() -> None:
    stated = {name: flag.default for name, flag in teleop_flags().items()}
    assert vars(DeviceOptions()) == stated


def test_one_argument_of_several_nodes_has_one_default() -> None:
    kinds = [NODES[name] for name in ("policy", "streamer", "safety", "gripper", "sim_arm")]
    for kind, other in itertools.combinations(kinds, 2):
        for name in set(parameter_names(kind)) & set(parameter_names(other)):
            assert getattr(kind(), name) == getattr(other(), name)


@pytest.mark.long
def test_every_installed_program_is_started_by_some_file(launch: Launch, prefix: Path) -> None:
    started = {
        process.executable
        for name in FILES
        for robot in ROBOTS
        for process in launch(name, robot=robot, **EVERYTHING.get(name, {})).started
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


def test_launch_waits_as_long_as_its_nodes_may_take_to_end(launch: Launch) -> None:
    """Else Ctrl-C ends the learner's checkpoint, or the writing of the last episode, by SIGTERM and SIGKILL."""
    from hardware.ros2.rollouts_node import RolloutsNode
    from hardware.ros2.runtime import Node
    from hardware.ros2.teleop_node import TeleopNode
    from robolearn.hil.processes import STOP_S

    takes = {"hil": STOP_S + 5.0, "rollouts": RolloutsNode.stop_limit_s, "teleop": TeleopNode.stop_limit_s}
    for name in FILES:
        for process in launch(
            name, **{**REQUIRED.get(name, {}), **({"record": "d"} if name == "deploy" else {})}
        ).started:
            ends_in = takes.pop(process.node.split("/")[-1], Node.stop_limit_s)
            assert process.sigterm_timeout > ends_in, process.node
    assert not takes


def given(node: str, **values: Any) -> dict[str, Any]:
    """The parameters of a node: its defaults, and `values`."""
    return vars(NODES[node](**values))


def test_a_deployment_is_recorded_where_that_is_asked_for(launch: Launch) -> None:
    asked = {"policy": "runs/7", "task": "pick_place", "words": "put it there"}
    assert "rollouts_node" not in {process.executable for process in launch("deploy", **asked).started}
    (one,) = [p for p in launch("deploy", record="data/x", **asked).started if p.executable == "rollouts_node"]
    expected = given("rollouts", policy="runs/7", words="put it there", out="data/x", sim_task="pick_place")
    assert one.parameters == expected and expected["every_arming"] and not one.shutdown


def test_a_deployment_in_simulation(launch: Launch) -> None:
    context = launch("deploy", policy="runs/7", task="pick_place", seed="3", guidance="1.5", denoise_steps="4")
    assert {process.executable: process.parameters for process in context.started} == {
        "policy_node": given("policy", policy="runs/7", seed=3, guidance=1.5, denoise_steps=4),
        "safety_node": given("safety"),
        "streamer_node": given("streamer"),
        "sim_arm_node": given("sim_arm", task="pick_place", seed=3),
    }


def test_the_stations_that_launch_files_simulate_are_the_shipped_ones_without_hardware() -> None:
    shipped = (*contract_names(), *pair_names())
    assert set(SIMULATED) == {name for name in shipped if load_any_contract(name).simulated}


def test_a_deployment_of_two_arms_in_simulation(launch: Launch) -> None:
    context = launch("deploy", robot="panda_pair", task="lift_two", policy="runs/7")
    pair = {"contract": "panda_pair"}
    assert {process.executable: process.parameters for process in context.started} == {
        "policy_node": given("policy", **pair, policy="runs/7"),
        "safety_node": given("safety", **pair),
        "streamer_node": given("streamer", **pair),
        "sim_arm_node": given("sim_arm", **pair, task="lift_two"),
    }
    real = launch("deploy", robot="so101_pair", policy="runs/7").started
    assert {process.executable for process in real} == {"policy_node", "safety_node", "streamer_node", "gripper_node"}
    (alone,) = launch("sim_arm", robot="panda_pair", task="lift_two").started
    assert alone.parameters == given("sim_arm", **pair, task="lift_two") and alone.shutdown


def test_a_deployment_of_one_episode(launch: Launch) -> None:
    (policy,) = (
        process
        for process in launch("deploy", policy="runs/7", seconds="12.5", reward="runs/critic").started
        if process.executable == "policy_node"
    )
    assert policy.parameters == given("policy", policy="runs/7", seconds=12.5, reward="runs/critic")
    assert policy.shutdown, "its end ends everything"


def test_a_recording_with_a_browser(launch: Launch) -> None:
    context = launch("record", robot="fr3", teleop="browser", out="data/1", task="7 cups", cameras="wrist")
    fr3 = {"contract": "fr3"}
    assert {process.executable: process.parameters for process in context.started} == {
        "record_node": given("record", **fr3, device="browser", out="data/1", task="7 cups", cameras="wrist"),
        "safety_node": given("safety", **fr3),
        "gripper_node": given("gripper", **fr3, if_needed=True),
    }


def test_a_lesson_in_simulation(launch: Launch) -> None:
    context = launch("hil", teleop="browser", policy="runs/7", demos="data/7", out="runs/8", task="lift")
    assert {process.executable: process.parameters for process in context.started} == {
        "hil_node": given("hil", device="browser", policy="runs/7", demos="data/7", out="runs/8", task="lift"),
        "safety_node": given("safety"),
        "sim_arm_node": given("sim_arm", task="lift"),
    }


def test_what_a_launch_file_is_given_reaches_the_learner_and_the_actor_that_it_starts(launch: Launch) -> None:
    """Every argument of the node but those of ROS: given other values than its defaults, all of them arrive."""
    from hardware.node_parameters import HilParameters
    from robolearn.cli.hil.node import actor_of, learner_flags
    from robolearn.cli.main import parse
    from robolearn.cli.registry import find

    said: dict[str, Any] = {
        "done_hz": 2.5, "done_frames": 4, "done_threshold": 0.8, "done_check": "mine:Check", "reward": "mine:Reward",
        "help_after_s": 2.0, "help_at_loss": 0.25, "audit_share": 0.5, "score_timeout_s": 7.0, "env_steps": 11,
        "episodes": 3, "policy": "runs/7", "demos": "data/7", "seconds": 12.0, "reset": "policy",
        "reset_policy": "runs/back", "reset_seconds": 9.0, "reset_reward": "mine:Back", "reset_words": "back",
        "out": "runs/8", "task": "lift", "algo": "rlpd", "seed": 4, "view": "browser", "publish_every": 5,
        "success_window": 6, "checkpoint_s": 8.0, "cut_after_s": 13.0, "words": "in", "host": "0.0.0.0", "port": 9,
        "speed": 0.5, "leader_port": "/dev/x", "leader_id": "y", "teleop": "browser", "robot": "fr3",
    }  # fmt: skip
    of_ros = {"autostart", "realtime_priority", "namespace"}
    assert set(said) == {{"contract": "robot", "device": "teleop"}.get(name, name)
                         for name in parameter_names(HilParameters)} - of_ros  # fmt: skip
    started = launch("hil", **{name: str(value) for name, value in said.items()}).started
    (hil,) = [process.parameters for process in started if process.executable == "hil_node"]
    p = HilParameters(**hil)
    learner: Any = parse(*find(["hil", "learner", *learner_flags(p)]))
    actor = actor_of(p, "localhost:1", "secret")
    found = {**vars(learner), **vars(learner.curriculum), **{k: v for k, v in vars(actor).items() if k in said}}
    found["out"] = learner.out
    assert {name: type(said[name])(found[name]) if name != "demos" else str(found[name]) for name in said} == said
    assert (learner.pace, learner.device, actor.device) == ("realtime", "auto", "cpu")
    assert (str(actor.out), actor.learner, actor.token) == ("runs/8/spool", "localhost:1", "secret")


def flags_of(command: str) -> set[str]:
    """Fields of a command, those of the curriculum among them, which are flags, too."""
    import dataclasses

    from robolearn.cli.registry import find
    from robolearn.hil.settings import CurriculumConfig

    kind = find(command.split())[0].load()
    flags = {field.name for field in dataclasses.fields(kind)}
    return flags - {"curriculum"} | set(parameter_names(CurriculumConfig)) if "curriculum" in flags else flags


# Flags of a command that its launch file does not have, and why.
OF_A_PROGRAM = {
    "json": "a result is printed by a program", "config": "ROS has files of parameters", "verbose": "by ROS's loggers",
}  # fmt: skip
OF_A_STATION = {"enclaves": "launch files pass no enclaves on", "domain": "ROS_DOMAIN_ID says it"}
LOGS = "ROS keeps them"
WITHOUT = {
    "record": {
        **OF_A_PROGRAM, **OF_A_STATION, "logs": LOGS, "resume": "a set that is there is always gone on with",
        "policy": "taking over from a policy is of the command",
    },
    "deploy": {
        **OF_A_PROGRAM, **OF_A_STATION, "logs": LOGS, "episodes": "a launch file plays one",
        "rehearse": "a station of the command's", "launch": "the command starts one",
        "yes": "nobody is asked", "reset": "nothing comes after the episode", "video": "a program of the command's own",
    },
    "hil": {
        **OF_A_PROGRAM, **OF_A_STATION, "rehearse": "a station of the command's", "resume": "always, where it is there",
        "operator": "a script helps in worlds alone", "pace": "an arm's is real time",
        "settings": "the algorithm's own, of the command alone", "console": "view:=browser takes a free port",
        "free": "of worlds: see CurriculumConfig", "free_steps": "of worlds", "revisit": "of worlds",
    },
}  # fmt: skip


@pytest.mark.parametrize(("name", "command"), [("record", "record"), ("deploy", "deploy"), ("hil", "hil run")])
def test_what_a_command_can_be_told_its_launch_file_can_or_there_is_a_reason(
    launch: Launch, name: str, command: str
) -> None:
    """A flag that somebody adds is an argument, too, or stands above with the reason why not."""
    flags = flags_of(command)
    assert flags - set(launch(name, **REQUIRED[name]).declared) == set(WITHOUT[name]) & flags == set(WITHOUT[name])


def test_one_thing_has_one_name_in_commands_and_launch_files(launch: Launch) -> None:
    """The arguments of a launch file that its command has, too, are called as its flags are; former names still do."""
    # Of nodes that a command starts with their defaults, and of programs beside the one that the command is.
    nodes = {"namespace", "dry_run", "targets", "autostart", "joint_hz", "camera_hz", "dynamics"}
    for name, command, own in (
        ("record", "record", {*nodes, "device", "words", "quality", "seed"}),
        (
            "deploy",
            "deploy",
            {*nodes, "objects", "tail_steps", "grace_ms", "freeze_steps", "blend", "reward_ends", "by_key"},
        ),
        ("hil", "hil run", {*nodes, "device", "sim_task", "seconds", "seed"}),
    ):
        flags = flags_of(command) | {"seconds"}
        assert set(launch(name, **REQUIRED[name]).declared) - flags <= own | {"sim_task"}, name
    formerly = launch("record", out="x", device="browser", words="7 cups").started[0].parameters
    assert (formerly["device"], formerly["task"], formerly["sim_task"]) == ("browser", "7 cups", "lift")
    sim = launch("record", out="x", task="7 cups", sim_task="peg_insert").started
    assert [p.parameters["task"] for p in sim if p.executable == "sim_arm_node"] == ["peg_insert"]
    assert sim[0].parameters["task"] == "7 cups" and sim[0].parameters["sim_task"] == "peg_insert"


@pytest.mark.long
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
    assert [type(value) for value in found.values()] == [type(value) for value in given("policy").values()]


def test_a_real_robot_has_no_simulated_arm(launch: Launch) -> None:
    started = launch("deploy", robot="fr3", policy="runs/rl").started
    names = [process.executable for process in started]
    assert names == ["policy_node", "streamer_node", "safety_node", "gripper_node"]
    assert all(process.parameters["contract"] == "fr3" for process in started)


def test_real_time_priority_and_a_dry_run(launch: Launch) -> None:
    started = launch("deploy", robot="fr3", policy="runs/rl", realtime_priority="50", dry_run="true").started
    parameters = {process.executable: process.parameters for process in started}
    assert parameters["safety_node"] == given("safety", contract="fr3", dry_run=True, realtime_priority=50)
    assert parameters["streamer_node"] == given("streamer", contract="fr3", realtime_priority=50)
    assert "gripper_node" not in parameters, "what is sent nowhere moves no gripper either"


def test_the_driver_of_servos(launch: Launch) -> None:
    (driver,) = launch("servos", robot="left.yaml", namespace="left/robolearn", port="/dev/ttyACM1").started
    assert driver.node == "/left/robolearn/servos"
    assert driver.parameters == given("servos", contract="left.yaml", port="/dev/ttyACM1")


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

    for path in (*(ROOT / "launch").glob("*.py"), ROOT / "hardware" / "node_parameters.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in (name.split(".")[0] for name in names):
                assert name in {"launch", "launch_ros"} | sys.stdlib_module_names, (path.name, name)


@pytest.mark.parametrize(
    ("codes", "word", "ends"),
    [
        ((0, 0), "deploy.launch.py", 0),
        ((2,), "deploy.launch.py", 2),
        ((0, 1, 2), "/opt/share/robolearn/launch/deploy.launch.py", 1),  # the first that failed
        ((-9,), "deploy.launch.py", 137),
        ((2,), "their.launch.py", 0),  # includes ours, and ends as its maker wants
    ],
)
def test_ros2_launch_ends_with_the_code_of_the_node_that_failed(codes: tuple[int, ...], word: str, ends: int) -> None:
    """A process of its own, as `ros2 launch` is one: it returns 0, and its nodes have ended with `codes`."""
    here = Path(__file__).parent
    program = f"""
import importlib.util, runpy, sys, types
sys.path.insert(0, {str(here)!r})
import launch_double
sys.modules.update(launch_double.modules())
sys.argv = ["ros2", "launch", "robolearn", {word!r}, "robot:=sim"]
for i, code in enumerate({codes!r}):
    exited = runpy.run_path({str(here.parents[1] / "launch" / "launching.py")!r})["Exited"]  # each file loads it anew
    actions = exited("over" if i == 0 else "")(types.SimpleNamespace(returncode=code), None)
    assert [action.reason for action in actions] == (["over"] if i == 0 else [])
print("said", end="")
sys.exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (ends, "said"), done.stderr
