"""Contracts: namespaces, frames, cameras, what is sent ahead, and what the robot's controller has to report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.core import BadInput
from robots.stations import FLOATS, Frames, load_contract

sys.path.insert(0, str(Path(__file__).parent))
from contract_files import load, put, refuse, shipped

# --- frames, cameras, namespaces ---------------------------------------------------------------------------


def test_relative_names_are_those_of_the_namespace(tmp_path: Path) -> None:
    data = put(shipped("sim"), "cameras.front.info", "camera/front/info")
    data["cameras"]["wrist"]["topic"] = "/shared/wrist"
    contract = load(tmp_path, {**data, "namespace": "left"})
    assert contract.namespace == "/left" and contract.joint_states.topic == "/left/joint_states"
    assert contract.command.topic == "/left/forward_position_controller/commands"
    assert contract.cameras["front"].info == "/left/camera/front/info"
    assert contract.cameras["wrist"].topic == "/shared/wrist" and contract.cameras["wrist"].info == ""
    assert contract.gripper is not None and contract.gripper.topic == "/left/gripper_controller/commands"
    assert load(tmp_path, {**data, "namespace": "/cell/left"}).joint_states.topic == "/cell/left/joint_states"
    assert load(tmp_path, data).joint_states.topic == "/joint_states"
    # A node that was put into a namespace gives it to a contract that has none.
    assert load_contract(tmp_path / "station.yaml", "/right").joint_states.topic == "/right/joint_states"
    ur5e = load(tmp_path, {**shipped("ur5e"), "namespace": "left"})
    assert ur5e.conditions[0].topic == "/left/io_and_status_controller/robot_program_running"
    fr3 = load(tmp_path, {**shipped("fr3"), "namespace": "left"})
    assert fr3.gripper_states is not None and fr3.gripper_states.topic == "/left/franka_gripper/joint_states"


def test_frames_lens_and_pose(tmp_path: Path) -> None:
    data = put(shipped("fr3"), "frames", {"base": "fr3_link0", "tcp": "fr3_hand_tcp"})
    pose = {"parent": "flange", "position": [0.05, 0.0, 0.03], "rpy": [0.0, 0.0, 1.5707963267948966]}
    lens = {"size": [480, 640], "fx": 600, "fy": 601.0, "cx": 320, "cy": 240, "distortion": [0.1, 0, 0, 0, 0]}
    wrist = {"topic": "wrist", "type": "sensor_msgs/msg/Image", "crop": [0, 80, 480, 480], "pose": pose}
    data["cameras"] = {"wrist": {**wrist, "intrinsics": lens, "depth": [0.2, 1.5]}}
    contract = load(tmp_path, data)
    assert contract.frames == Frames(base="fr3_link0", flange="flange", tcp="fr3_hand_tcp")
    camera = contract.cameras["wrist"]
    assert camera.crop == (0, 80, 480, 480) and camera.depth == (0.2, 1.5) and camera.size == (84, 84)
    assert camera.intrinsics is not None and camera.intrinsics.fy == 601 and camera.intrinsics.distortion[0] == 0.1
    assert camera.pose is not None and camera.pose.parent == "flange"
    half = 0.5**0.5
    np.testing.assert_allclose(camera.pose.pose.quaternion, [half, 0, 0, half], atol=1e-12)


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        ("namespace", "le ft", "namespace: got le ft, expected a ROS namespace such as left"),
        ("namespace", "/", "namespace: got /"),
        ("frames.world", "map", "unknown key in frames: got world"),
        ("cameras.front.crop", [0, 0, 10], "cameras.front.crop"),
        ("cameras.front.crop", "middle", "center, or"),
        ("cameras.front.crop", [-1, 0, 96, 96], "from 0 to 4096"),
        ("cameras.front.rotate", 45, "cameras.front.rotate: got 45, expected one of 0, 90, 180, 270 degrees"),
        ("cameras.front.rotate", True, "cameras.front.rotate"),
        ("cameras.front.depth", [1.0, 0.5], "near <"),
        ("cameras.front.intrinsics", {"size": [480, 640], "fx": 0, "fy": 1, "cx": 0, "cy": 0}, "more than 0"),
        ("cameras.front.pose", {"parent": "elbow", "position": [0, 0, 0]}, "got elbow; available: base, flange"),
    ],
)
def test_a_mistake_about_cameras_and_places(tmp_path: Path, where: str, value: object, words: str) -> None:
    assert words in refuse(tmp_path, put(shipped("sim"), where, value))


# --- what is sent ahead, and what the robot's controller has to report --------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon_s": 0.2}, "station.yaml: command.horizon_s: got 0.2, expected 0 to 0.1"),
        ({"horizon_s": 0.04, "type": FLOATS}, "command: got horizon_s 0.04, expected a horizon_s of 0, or the type"),
    ],
)
def test_a_horizon_is_short_and_of_trajectories(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    data = shipped("fr3")
    data["command"] = {**data["command"], **change}
    with pytest.raises(BadInput, match=message):
        load(tmp_path, data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"allowed": None}, "conditions.program: missing; expected either allowed or least"),
        ({"least": 1.0}, "conditions.program: got both, expected either allowed or least"),
        ({"type": "Bool"}, "conditions.program.type: got Bool, expected a message type such as std_msgs/msg/Bool"),
        ({"field": "__class__"}, "conditions.program.field: got __class__, expected the name of a field"),
        ({"mend": None}, "conditions.program: missing; expected the key 'mend'"),
        ({"topic": "/joint_states"}, "conditions.program.topic: got /joint_states, expected another topic"),
        ({"lached": True}, "unknown key .*got lached.*latched"),
    ],
)
def test_a_condition_that_is_not_whole_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    program = {"topic": "/running", "type": "std_msgs/msg/Bool", "allowed": [1], "mend": "press Play"}
    data = {**shipped("ur5e"), "conditions": {"program": program}}
    assert load(tmp_path, data).conditions[0].permits(1) and not load(tmp_path, data).conditions[0].permits(0)
    data["conditions"] = {"program": {**program, **change}}
    with pytest.raises(BadInput, match=message):
        load(tmp_path, data)
