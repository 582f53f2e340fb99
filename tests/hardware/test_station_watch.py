"""A simulated station over real DDS, spoilt in one way at a time: `robolearn doctor --robot` says which."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from rclpy.node import Node as PlainNode
from rclpy.parameter import Parameter

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos
from hardware.ros2.process import Background
from hardware.ros2.sim_arm_node import SimArmNode
from robolearn.bench.emulators.node import make_world
from robolearn.cli.main import main
from robots.stations import CONTRACTS, FLOATS, load_contract, load_pair

pytestmark = pytest.mark.realtime

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 7
TRIES = 4  # of a look: a machine that is busy with something else is late by itself

Lines = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def ros() -> Iterator[Background]:
    with Background(DOMAIN) as made:
        arm = SimArmNode(make_world, contract=load_contract("sim"), context=made.context, overrides={"seed": 1})
        arm.start()
        made.add(arm)
        made.arm = arm  # type: ignore[attr-defined]
        yield made


@pytest.fixture(scope="module")
def station() -> dict[str, Any]:
    return yaml.safe_load((CONTRACTS / "sim.yaml").read_text())


@contextmanager
def fault(ros: Background, text: str) -> Iterator[None]:
    arm: Any = ros.arm  # type: ignore[attr-defined]
    arm.set_parameters([Parameter("fault", value=text)])
    try:
        yield
    finally:
        arm.set_parameters([Parameter("fault", value="")])


@contextmanager
def stranger(name: str) -> Iterator[PlainNode]:
    """A node of another program."""
    with Background(DOMAIN) as other:
        yield other.add(PlainNode(name, context=other.context))


def look(capsys: pytest.CaptureFixture, robot: object = "sim", code: int = 1) -> Lines:
    assert main(["doctor", "--robot", str(robot), "--domain", str(DOMAIN), "--seconds", "1.5", "--json"]) == code
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["checks"]
    return {check["name"]: check for check in found}


def line_of(capsys: pytest.CaptureFixture, name: str, found: str, robot: object = "sim") -> dict[str, Any]:
    """The line `name`, which is wrong and has the words `found`; programs may take seconds to find each other."""
    for _ in range(TRIES):
        lines = look(capsys, robot)
        line = lines.get(name)
        if line is not None and not line["ok"] and found in line["found"]:
            assert line["fix"]
            return line
    raise AssertionError(json.dumps(lines, indent=1))


def write(tmp_path: Path, data: dict[str, Any], **sections: Any) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**data, **sections}))
    return path


@pytest.mark.long
def test_a_station_that_works(ros: Background, capsys: pytest.CaptureFixture) -> None:
    for _ in range(TRIES):
        code = main(["doctor", "--robot", "sim", "--domain", str(DOMAIN), "--seconds", "1.5", "--json"])
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        if code == 0:
            break
    assert code == 0, found
    lines = {check["name"]: check for check in found["checks"]}
    assert found["robot"] == "sim" and all(not line["fix"] for line in lines.values())
    assert {line["group"] for line in lines.values()} == {
        "Arm", "Controller", "Gripper", "Cameras", "Objects", "Safety"
    }  # fmt: skip
    assert "/robolearn/sim_arm listens on /gripper_controller/commands" in lines["gripper controller"]["found"]
    assert "84×84 rgb8" in lines["camera wrist size"]["found"] and "not running" in lines["safety node"]["found"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("joint_states:stop", "joint states topic", "/robolearn/sim_arm publishes /joint_states, but nothing arrives"),
        ("joint_states:stale", "joint states stamps", "do not rise"),
        ("joint_states:nan", "joint positions", "panda_joint1 is not a number"),
        ("joint_states:missing", "joint names", "no panda_joint1"),
        ("clock:-2", "joint states stamps", "2.00 s ago"),
        ("clock:3", "camera front stamps", "in the future"),
        ("clock:zero", "joint states stamps", "never set"),
        ("camera:black", "camera wrist pictures", "all black"),
        ("camera:stop", "camera front topic", "nothing arrives"),
    ],
)
def test_a_fault_is_named(ros: Background, capsys: pytest.CaptureFixture, text: str, name: str, found: str) -> None:
    with fault(ros, text):
        line_of(capsys, name, found)


@pytest.mark.long
def test_a_second_publisher_is_named(ros: Background, capsys: pytest.CaptureFixture) -> None:
    contract = load_contract("sim")
    with stranger("joint_state_publisher") as node:
        publisher = node.create_publisher(messages.JointState, contract.joint_states.topic, qos.sensor())
        line_of(capsys, "joint states publishers", "nothing was heard of /joint_state_publisher")
        q = contract.robot.home

        def publish() -> None:
            publisher.publish(messages.joint_state(contract.joints, q, time.time()))

        node.create_timer(0.1, publish)
        line = line_of(capsys, "joint states publishers", "/joint_state_publisher (")
    assert "/robolearn/sim_arm (" in line["found"]
    assert "joint_state_publisher" in line["fix"]


@pytest.mark.long
def test_a_publisher_to_the_controller_is_named(ros: Background, capsys: pytest.CaptureFixture) -> None:
    contract = load_contract("sim")
    with stranger("moveit") as node:
        node.create_publisher(messages.message_type(FLOATS), contract.command.topic, qos.COMMAND)
        words = "/moveit publishes to /forward_position_controller/commands"
        line_of(capsys, "arm controller publishers", words)


@pytest.mark.long
def test_what_the_contract_gets_wrong(
    ros: Background, capsys: pytest.CaptureFixture, tmp_path: Path, station: dict[str, Any]
) -> None:
    cameras = {
        "front": {"topic": "/camera/front/image_raw", "type": "sensor_msgs/msg/CompressedImage", "size": [96, 96]},
        "wrist": {"topic": "/camera/wrist/image_raw", "type": "sensor_msgs/msg/Image", "size": [120, 160]},
        "side": {"topic": "/camera/side/image_raw", "type": "sensor_msgs/msg/Image", "size": [96, 96]},
    }
    gripper = {**station["gripper"], "topic": "/hand/commands"}
    limits = {"upper": [2.0, 1.7, 2.0, -0.1, 2.0, 3.7, -1.0]}
    lines = look(capsys, write(tmp_path, station, cameras=cameras, gripper=gripper, limits=limits))
    assert "is sensor_msgs/msg/Image from /robolearn/sim_arm" in lines["camera front topic"]["found"]
    assert "cameras.front.type: sensor_msgs/msg/Image" in lines["camera front topic"]["fix"]
    assert "smaller than the policy's" in lines["camera wrist size"]["found"]
    assert "no publisher on /camera/side/image_raw" in lines["camera side topic"]["found"]
    assert "/camera/wrist/image_raw" in lines["camera side topic"]["fix"], "what there is of that type"
    assert "no subscriber on /hand/commands" in lines["gripper controller"]["found"]
    assert "/gripper_controller/commands" in lines["gripper controller"]["fix"]
    assert "panda_joint7" in lines["joint positions"]["found"] and "outside" in lines["joint positions"]["found"]


@pytest.mark.long
def test_a_slow_camera(ros: Background, capsys: pytest.CaptureFixture, tmp_path: Path, station: dict[str, Any]) -> None:
    # The camera's 25 pictures a second, for a policy that acts 50 times a second.
    path = write(tmp_path, station, control_hz=50)
    line_of(capsys, "camera front rate", "actions come at 50 Hz", path)
    aged = {name: {**camera, "max_age_s": 0.02} for name, camera in station["cameras"].items()}
    line = line_of(capsys, "camera front rate", "longest gap", write(tmp_path, station, cameras=aged))
    assert "at most 20 ms, cameras.front.max_age_s" in line["fix"]


@pytest.mark.long
def test_qos_that_does_not_match(ros: Background, capsys: pytest.CaptureFixture, tmp_path: Path, station: Any) -> None:
    path = write(tmp_path, station, command={"topic": "/picky/commands", "type": FLOATS})
    with stranger("picky_controller") as node:
        node.create_subscription(messages.message_type(FLOATS), "/picky/commands", print, qos.latched())
        words = "/picky_controller cannot receive from /robolearn/safety"
        line_of(capsys, "arm controller QoS", words, path)


@pytest.mark.long
def test_people_see_what_to_mend(ros: Background, capsys: pytest.CaptureFixture) -> None:
    with fault(ros, "joint_states:stop"):
        assert main(["doctor", "--robot", "sim", "--domain", str(DOMAIN), "--seconds", "2"]) == 1
    out = capsys.readouterr().out
    assert "look at that node: its device, its log" in out and "Fix this before sim moves: joint states topic" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--robot", "smi"], "did you mean sim?"), (["--robot", "sim", "--seconds", "0"], "more than 0"),
     (["--robot", "sim", "--domain", "233"], "0 to 232")],
)  # fmt: skip
def test_bad_input(words: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["doctor", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_a_station_with_two_arms(capsys: pytest.CaptureFixture) -> None:
    """Of the simulated pair, of which the right arm's driver has a clock that is behind."""
    domain = DOMAIN + 1
    with Background(domain) as made:
        arms = SimArmNode(make_world, contract=load_pair("panda_pair"), context=made.context,
                          overrides={"seed": 1, "task": "lift_two"})  # fmt: skip
        arms.start()
        made.add(arms)
        words = ("doctor", "--robot", "panda_pair", "--domain", str(domain), "--seconds", "1.5", "--json")
        for fault, wanted in (("", set()), ("right/clock:-2", {"right joint states stamps"})):
            arms.set_parameters([Parameter("fault", value=fault)])
            for _ in range(TRIES):
                code = main([*words])
                found = json.loads(capsys.readouterr().out.splitlines()[-1])
                wrong = {check["name"] for check in found["checks"] if not check["ok"]}
                wrong -= {name for name in wrong if name.endswith(" rate")}  # of a machine that is busy
                if wrong == wanted:
                    break
            assert wrong == wanted and code >= bool(wanted), found
    groups = {check["group"] for check in found["checks"]}
    assert {"Arm left", "Arm right", "Gripper right", "Cameras left", "Cameras", "Objects", "Safety"} <= groups
