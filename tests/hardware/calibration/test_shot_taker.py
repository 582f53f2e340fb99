"""Pictures of a calibration over real DDS: taken when the arm rests in a new posture and the board is seen."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from rclpy.node import Node

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.calibration import Board, Shot, read_shots
from hardware.ros2 import messages, qos
from hardware.ros2.process import Background
from robolearn.cli.main import main
from robots import FR3
from robots.stations import CONTRACTS

sys.path.insert(0, str(Path(__file__).parent))
from rendering import LENS, pose, session

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 7
ON_FLANGE = pose([0.06, -0.03, 0.04], [0.15, -0.1, 0.7])
ON_TABLE = pose([0.40, 0.07, 0.02], [np.pi, 0.0, 0.0])


class MovedByHand(Node):
    """An arm that somebody moves from posture to posture, with a camera whose pictures are those of each posture."""

    def __init__(self, shots: list[Shot], joints: list[str], topic: str, context: object) -> None:
        super().__init__("by_hand", context=context)
        self.shots, self.joints = shots, joints
        self.at, self.moving = 0, False
        self.states = self.create_publisher(messages.JointState, topic, qos.sensor())
        self.pictures = self.create_publisher(messages.Image, "/wrist", qos.sensor(2))
        self.create_timer(0.01, self.joint_state)
        self.create_timer(0.1, self.picture)

    def joint_state(self) -> None:
        q = np.array(self.shots[self.at].positions)
        if self.moving:
            q = q + 0.02 * np.sin(20 * time.monotonic())
        self.states.publish(messages.joint_state(self.joints[::-1], q[::-1], time.time()))

    def picture(self) -> None:
        self.pictures.publish(messages.image(self.shots[self.at].picture, time.time()))


def test_the_arm_is_moved_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    shots = session(Board(), ON_FLANGE, ON_TABLE, "flange", 7)
    camera = {"topic": "/wrist", "type": "sensor_msgs/msg/Image", "intrinsics": {
        **{key: LENS[key] for key in ("fx", "fy", "cx", "cy")},
        "size": list(LENS["size"]), "distortion": list(LENS["distortion"]),
    }}  # fmt: skip
    robot = tmp_path / "mine.yaml"
    data = yaml.safe_load((CONTRACTS / "fr3.yaml").read_text())
    robot.write_text(yaml.safe_dump({**data, "cameras": {"wrist": camera}}))
    with Background(DOMAIN) as ros:
        arm = ros.add(MovedByHand(shots, data["joints"], "/" + data["joint_states"]["topic"], ros.context))
        ended = threading.Event()

        def lead() -> None:
            """Shake it between postures, rest for long enough in each; one that repeats gives no second picture."""
            for i in (0, 0, *range(1, len(shots))):
                arm.moving = True
                ended.wait(0.4)
                arm.at, arm.moving = i, False
                ended.wait(2.0)
                if ended.is_set():
                    return

        hand = threading.Thread(target=lead)
        hand.start()
        try:
            words = [
                "--robot",
                str(robot),
                "--out",
                str(tmp_path / "shots"),
                "--pictures",
                "7",
                "--domain",
                str(DOMAIN),
            ]
            assert main(["calibrate", *words, "--json"]) == 0
        finally:
            ended.set()
            hand.join()
    out, err = capsys.readouterr()
    result = json.loads(out.splitlines()[-1])
    assert 1e3 * np.linalg.norm(np.array(result["position_m"]) - ON_FLANGE[:3, 3]) < 2.0
    assert "hold the arm still" in err and "picture 7 of 7" in err and "tilt the hand to another side" in err
    for taken, shot in zip(read_shots(tmp_path / "shots", FR3.joints), shots, strict=True):
        np.testing.assert_allclose(taken.positions, shot.positions, atol=1e-6)
        np.testing.assert_array_equal(taken.picture, shot.picture)
