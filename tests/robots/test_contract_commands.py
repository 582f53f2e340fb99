"""Contracts: one vector for arm and jaw, poses with their postures, raw torques, and servos of our own driver."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from robolearn.core import BadInput

sys.path.insert(0, str(Path(__file__).parent))
from contract_files import load, put, shipped

POSE = "geometry_msgs/msg/PoseStamped"
TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
POSTURE = {"topic": "target_joint", "type": "sensor_msgs/msg/JointState"}
RAW = {"topic": "franka/joint_states", "type": "sensor_msgs/msg/JointState", "max_torque": [5.0] * 7, "gravity": True}
WRENCH = {"topic": "f", "type": "geometry_msgs/msg/WrenchStamped", "max_force": 9.0, "max_moment": 2.0}
TOOL = {"tcp": {"position": [0, 0, 0.1]}}
SERVOS = {"port": "/dev/ttyACM0", "calibration": "a"}


def test_one_vector_for_arm_and_jaw(tmp_path: Path) -> None:
    contract = load(tmp_path, shipped("so101"))
    assert contract.gripper is None and contract.gripper_in_command and "gripper" not in contract.topics
    assert contract.command_joints == (*contract.joints, "gripper")
    assert contract.servos is not None and contract.servos.port == "/dev/ttyACM0"
    assert load(tmp_path, shipped("ur5e")).command_joints == load(tmp_path, shipped("ur5e")).joints


def test_a_pose_with_its_posture_and_raw_torques(tmp_path: Path) -> None:
    data = put(shipped("fr3"), "command", {"topic": "target_pose", "type": POSE, "posture": POSTURE})
    data = put(put(data, "contact", RAW), "tool", TOOL | {"mass": 0.7, "centre": [0, 0, 0.05]})
    contract = load(tmp_path, data)
    assert contract.command.posture is not None and contract.command.posture.topic == "/target_joint"
    assert contract.contact is not None and contract.contact.gravity
    assert contract.robot.tool is not None and contract.robot.tool.mass == 0.7
    assert contract.robot.tool.centre == (0, 0, 0.05)


@pytest.mark.parametrize(
    ("robot", "where", "value", "words"),
    [
        ("fr3", "command", {"topic": "t", "type": POSE}, "command: got .*expected the key 'posture'"),
        ("ur5e", "command.posture", POSTURE, f"command: got std_msgs.*expected a posture with the type {POSE}"),
        ("fr3", "contact", RAW | {"topic": "felt"}, "contact.topic: got /felt, expected with gravity the topic of"),
        ("ur5e", "contact", WRENCH | {"gravity": True}, "contact: got .*expected gravity with the type sensor_msgs"),
        ("fr3", "tool", TOOL | {"centre": [0, 0, 1]}, "tool: missing; expected the key 'mass'"),
        ("fr3", "tool", TOOL | {"mass": -1.0}, "tool.mass: got -1.0, expected 0 to 20"),
        ("so101", "gripper.topic", "jaw", "gripper: missing; expected the key 'type'"),
        ("so101", "gripper", {"joints": ["jaw"], "in_command": True, "topic": "j", "type": TRAJECTORY}, "got both"),
        ("so101", "command.type", TRAJECTORY, "expected command.type std_msgs/msg/Float64MultiArray"),
        ("so101", "gripper", None, "missing; expected gripper.in_command: true with servos"),
        ("so101", "servos.port", "COM3", "servos.port: got COM3, expected a serial port"),
        ("so101", "servos.calibration", "../blue", "servos.calibration: got ../blue, expected the --robot.id"),
        ("fr3", "servos", SERVOS, "servos: got robot fr3, expected none: LeRobot's bus of servos is that of so101"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, robot: str, where: str, value: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load(tmp_path, put(shipped(robot), where, value))
