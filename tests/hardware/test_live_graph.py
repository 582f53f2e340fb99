"""The graph of a station that runs on real DDS, and a contract that gets its topics."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from hardware.ros2.process import Background
from robolearn.cli.main import main
from robots import PANDA, ROBOTS
from robots.making.folder import RobotRequest, make_robot
from robots.own import read_robot
from robots.stations import load_contract

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 9
FINGERS = ("panda_finger_left", "panda_finger_right")
JOINTS, HAND = (tuple(f"left_{name}" for name in names) for names in (PANDA.joints, FINGERS))

pytestmark = [pytest.mark.realtime, pytest.mark.long]


@pytest.fixture
def driver() -> Iterator[None]:
    """The topics of a driver whose names have a prefix."""
    with Background(DOMAIN) as background:
        arm = background.add(Node("arm_controller", namespace="left", context=background.context))
        arm.declare_parameter("joints", list(JOINTS))
        arm.create_subscription(JointTrajectory, "~/joint_trajectory", lambda message: None, 1)
        hand = background.add(Node("hand", context=background.context))
        hand.declare_parameter("joints", list(HAND))
        hand.create_subscription(Float64MultiArray, "~/commands", lambda message: None, 1)
        states = arm.create_publisher(JointState, "measured", 1)
        hand.create_publisher(Image, "/front/image_raw", 1)
        names = [*JOINTS, *HAND]
        arm.create_timer(0.02, lambda: states.publish(JointState(name=names, position=[0.0] * 9)))
        yield


def test_the_topics_of_a_driver_come_into_the_contract(
    driver: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    made = make_robot(RobotRequest(PANDA.mjcf, "own", tcp_site=PANDA.tcp_site), tmp_path / "own")
    monkeypatch.setenv("ROBOLEARN_ROBOTS", str(tmp_path))
    monkeypatch.setitem(ROBOTS.data, "own", read_robot(made.folder)[0])  # which may have been read before
    monkeypatch.setenv("ROS_DOMAIN_ID", str(DOMAIN))
    before = (made.folder / "station.yaml").read_text()
    assert main(["robots", "topics", "own", "--seconds", "10", "--write", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not result["missing"] and result["cameras"] == ["/front/image_raw"]
    contract = load_contract(made.folder / "station.yaml")
    assert contract.joints == JOINTS
    assert contract.joint_states.topic == "/left/measured"
    assert contract.command.topic == "/left/arm_controller/joint_trajectory"
    assert contract.gripper is not None and contract.gripper.topic == "/hand/commands"
    assert contract.gripper_joints == HAND
    comments = [line for line in before.splitlines() if line.startswith("#")]
    assert comments and set(comments) <= set((made.folder / "station.yaml").read_text().splitlines())
