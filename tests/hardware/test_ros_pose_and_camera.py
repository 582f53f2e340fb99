"""A station with a Cartesian impedance controller and two cameras, over real rclpy and DDS.

The arm here takes poses of the tcp, finds joints for them by its own inverse kinematics, and says where they are; its
cameras send one picture raw and one compressed. The policy sees both, and moves the tcp by what it sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from geometry_msgs.msg import PoseStamped
from rclpy.qos import QoSProfile
from rclpy.subscription import MessageInfo
from sensor_msgs.msg import CompressedImage, Image

from hardware.ros2 import messages, qos
from hardware.ros2.policy_node import PolicyNode
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from robolearn.core import ActionChunk, Observation
from robolearn.core.se3 import quat_to_matrix
from robots.ik import IKConfig, solve
from robots.stations import CONTRACTS, load_contract

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from hosted import Hosted  # noqa: E402
from ros_station import Arm, SinePolicy  # noqa: E402

pytestmark = [pytest.mark.realtime, pytest.mark.long]

RAW, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"


def station_contract() -> Path:
    """The simulated station's, with a controller that takes poses, and cameras of different sizes; a file."""
    content = yaml.safe_load((CONTRACTS / "sim.yaml").read_text())
    content["name"] = "poses"
    posture = {"topic": "/impedance/posture", "type": "sensor_msgs/msg/JointState"}
    content["command"] = {"topic": "/impedance/pose", "type": "geometry_msgs/msg/PoseStamped", "posture": posture}
    content["cameras"] = {
        "front": {"topic": "/front/image_raw", "type": RAW, "max_age_s": 0.5, "size": [48, 64]},
        "wrist": {"topic": "/wrist/image/compressed", "type": COMPRESSED, "max_age_s": 0.5, "size": [32, 32]},
    }
    path = Path(tempfile.mkdtemp(prefix="robolearn-test-")) / "poses.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


PATH = station_contract()
CONTRACT = load_contract(PATH)


class CartesianArm(Arm):
    """Follows poses; its cameras show one grey level, `brightness`."""

    def configure(self) -> None:
        c = self.contract
        self.brightness, self.poses, self.films, self.posture = 40, [], True, self.q
        self._front = self.create_publisher(Image, c.cameras["front"].topic, qos.sensor(2))
        self._wrist = self.create_publisher(CompressedImage, c.cameras["wrist"].topic, qos.sensor(2))
        super().configure()
        self.every(0.05, self._film)

    def _listen(self, deep: QoSProfile) -> list[Callable[[], None]]:
        c = self.contract
        assert c.gripper is not None and c.command.posture is not None
        return [
            self.poll(messages.JointState, c.command.posture.topic, self._on_posture, deep),
            self.poll(PoseStamped, c.command.topic, self._on_pose, deep),
            self.poll(messages.message_type(c.gripper.type), c.gripper.topic, self._on_gripper, deep),
        ]

    def _on_posture(self, message: messages.JointState, info: MessageInfo) -> None:
        assert list(message.name) == list(self.contract.joints)
        self.posture = np.array(message.position)

    def _on_pose(self, message: PoseStamped, info: MessageInfo) -> None:
        p, o = message.pose.position, message.pose.orientation
        pos, quat = np.array([p.x, p.y, p.z]), np.array([o.w, o.x, o.y, o.z])
        chain = self.contract.robot.chain
        config = IKConfig(iterations=10, damping=0.01, posture_gain=0.1)
        found = solve(chain, self.q[None], pos[None], quat_to_matrix(quat)[None], rest=self.posture, config=config)
        self.q = found[0]
        self.poses.append((pos, message.header.frame_id))
        self.commands.append((time.monotonic(), self.q))

    def _film(self) -> None:
        if self.films:
            now = 1e-9 * self.get_clock().now().nanoseconds
            shade = np.full((96, 128, 3), self.brightness, np.uint8)  # larger than the contract's: it is resized
            shade[:24] += np.uint8(len(self.commands) % 7)  # no two pictures are the same, or the camera is frozen
            self._front.publish(messages.image(shade, now))
            self._wrist.publish(messages.compressed_image(shade, now))


class Looks(SinePolicy):
    """Up where it is bright, else down; keeps what it saw."""

    seen: Observation

    def act(self, observation: Observation) -> ActionChunk:
        self.seen = observation
        actions = np.zeros((1, 4, self.interface.action.size), np.float32)
        # The tcp looks down: its own z points at the table.
        actions[..., 2] = -0.5 if observation["images.front"].mean() > 128 else 0.5
        return actions


@pytest.fixture
def station() -> Iterator[tuple[CartesianArm, Looks, SafetyClient]]:
    """Safety node and streamer are processes, as on a station: four nodes on one interpreter starve each other."""
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "robolearn.deploy.nodes"]
    processes = [
        subprocess.Popen([*command, name, "--contract", str(PATH)], env=env, stderr=subprocess.DEVNULL)
        for name in ("safety", "streamer")
    ]
    policy = Looks(CONTRACT)
    hosted = [
        Hosted(lambda context: CartesianArm(CONTRACT, context=context)),
        Hosted(lambda context: PolicyNode(lambda *_, **__: policy, contract=CONTRACT, context=context)),
    ]
    with Background() as background:
        operator = SafetyClient(background)
        yield hosted[0].node, policy, operator
    for process in processes:
        process.terminate()
    codes = [process.wait(20.0) for process in processes]
    for node in hosted:
        node.close()
    assert codes == [0, 0] and not background.errors


def test_pictures_reach_the_policy_and_poses_the_controller(station: tuple[CartesianArm, Looks, SafetyClient]) -> None:
    arm, policy, operator = station
    operator.wait_ready(30)
    tcp = CONTRACT.robot.chain.forward(arm.q[None])[0][0]
    operator.arm()
    wait_until(lambda: arm.poses and arm.poses[-1][0][2] < tcp[2] - 0.02, 10, "the tcp to go down")
    assert policy.seen["images.front"].shape == (1, 48, 64, 3) and policy.seen["images.wrist"].shape == (1, 32, 32, 3)
    assert policy.seen["images.front"].dtype == np.uint8
    assert abs(int(policy.seen["images.front"].mean()) - 40) <= 2 and abs(policy.seen["images.wrist"].mean() - 40) <= 4
    arm.brightness = 200
    low = min(pose[2] for pose, _ in arm.poses)
    wait_until(lambda: arm.poses[-1][0][2] > low + 0.02, 10, "the tcp to rise when it is bright")
    positions = np.array([pose for pose, _ in arm.poses])
    # 2 cm a step at full deflection, half of it here: no leap among the poses either
    assert np.linalg.norm(np.diff(positions, axis=0), axis=1).max() < 0.01
    assert np.abs(positions[:, :2] - tcp[:2]).max() < 0.02, "straight up and down"
    assert {frame for _, frame in arm.poses} == {"base"}
    assert (CONTRACT.robot.chain.forward(arm.q[None])[0][0] - positions[-1]).max() < 0.02
    operator.disarm()


def test_a_camera_that_goes_dark_is_a_stop(station: tuple[CartesianArm, Looks, SafetyClient]) -> None:
    arm, _, operator = station
    operator.wait_ready(30)
    operator.arm()
    wait_until(lambda: arm.moved(0) > 0.01, 10, "motion")
    arm.brightness = 0
    assert "camera front on" in (reason := operator.wait_for("latched", 5).reason) and "black" in reason
    arm.brightness = 40
    operator.reset()
    operator.arm()
    begun = len(arm.commands)
    wait_until(lambda: arm.moved(begun) > 0.01, 10, "motion")
    arm.films = False
    assert "silent" in operator.wait_for("latched", 5).reason
