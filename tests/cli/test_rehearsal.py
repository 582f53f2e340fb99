"""`robolearn deploy --rehearse`, thin: one episode of a policy that nobody trained, and what others see of it.

With trained policies, on both stations and with faults: `make test-rehearsal`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped
from rclpy.node import Node

sys.path.insert(0, str(Path(__file__).parent))
from running import Running
from untrained import make_policy

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos
from hardware.ros2.permissions import policy_xml
from hardware.ros2.process import Background, wait_until
from hardware.safety import SafetyFilter
from robolearn.bench.emulators.rehearsal import rehearsal
from robolearn.core import BadInput
from robots import ROBOTS, RobotSpec
from robots.making.folder import RobotRequest, make_robot
from robots.own import read_robot
from robots.stations import CONTRACTS, load_contract
from sim.tasks import TASKS

pytestmark = pytest.mark.long

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 4


def test_what_can_be_rehearsed(tmp_path: Path) -> None:
    with rehearsal("fr3") as robot:
        contract = load_contract(robot)
        real = load_contract("fr3")
        assert contract.simulated and contract.name == "fr3-rehearsal" and contract.objects is not None
        assert (contract.command, contract.joint_states) == (real.command, real.joint_states)
        assert contract.command.horizon_s == real.command.horizon_s and not real.simulated
    assert not Path(robot).exists()
    with rehearsal("so101") as robot:
        assert load_contract(robot).servos is not None and load_contract(robot).simulated
    nobodys = tmp_path / "ur5e.yaml"
    nobodys.write_text(re.sub(r"^driver:.*\n", "", (CONTRACTS / "ur5e.yaml").read_text(), flags=re.MULTILINE))
    for name, got in (("sim", "simulated: true"), (str(nobodys), "no driver")):
        with pytest.raises(BadInput, match=f"--rehearse: contract .*: got {got}, expected a real station with the key"):
            rehearsal(name).__enter__()


@pytest.mark.realtime
def test_an_episode_of_an_so101_whose_jaw_is_the_last_number_of_the_command(tmp_path: Path) -> None:
    """The jaw that the driver's joint states show is where the commands send it, in radians of its own range."""
    with rehearsal("so101") as robot:
        contract = load_contract(robot).with_objects(TASKS["lift"]().observation_names)
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)  # its machine code
    policy = make_policy(tmp_path / "policy", contract.interface)
    words = ("deploy", "--rehearse", "--robot", "so101", "--policy", policy, "--episodes", 1, "--seconds", 3)
    sent: list[np.ndarray] = []
    seen: list[np.ndarray] = []
    with Background(DOMAIN + 2) as ros:
        node = ros.add(Node("observer", context=ros.context))
        node.create_subscription(
            messages.Float64MultiArray, contract.command.topic,
            lambda message: sent.append(np.array(message.data)), qos.stream(lease_s=None, depth=200),
        )  # fmt: skip
        node.create_subscription(
            messages.JointState, contract.joint_states.topic,
            lambda message: seen.append(messages.pick(message, contract.command_joints)), qos.sensor(50),
        )  # fmt: skip
        running = Running(tmp_path / "logs", *words, domain=DOMAIN + 2)
        code, out, err = running.end()
    assert code == 0, err + running.log()
    result = json.loads(out.splitlines()[-1])
    assert result["violations"] == 0 and result["monitor"]["commands"] > 200, result["monitor"]
    jaw, told = np.array([q[5] for q in seen]), np.array([q[5] for q in sent])
    assert contract.gripper_range == (-0.174533, 1.74533) and np.ptp(told) > 0.2, "it was moved"
    # From where an episode begins, 8 of 13 cm open, to where the last commands held it.
    assert jaw[0] == pytest.approx(-0.174533 + 8 / 13 * 1.919863, abs=0.02)
    assert jaw[-1] == pytest.approx(told[-1], abs=0.05)


@pytest.mark.realtime
def test_an_episode_on_the_double_of_ur_robot_driver_each_node_in_its_enclave(tmp_path: Path) -> None:
    with rehearsal("ur5e") as robot:
        contract = load_contract(robot).with_objects(TASKS["lift"]().observation_names)
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)  # its machine code
    policy = make_policy(tmp_path / "policy", contract.interface)
    words = ("deploy", "--rehearse", "--robot", "ur5e", "--policy", policy, "--episodes", 1, "--seconds", 1.5)
    running = Running(tmp_path / "logs", *words, "--enclaves", domain=DOMAIN)
    seen: dict[str, str] = {}
    wanted = {path.rpartition("/")[2]: path for path in enclaves(policy_xml(contract))}
    nodes = ("operator", "policy", "streamer", "safety", "sim_arm")
    try:
        with Background(DOMAIN) as ros:
            node = ros.add(Node("observer", context=ros.context))

            def all_there() -> bool:
                seen.update({name: where for name, _, where in node.get_node_names_and_namespaces_with_enclaves()})
                return all(seen.get(name) for name in nodes)

            wait_until(lambda: all_there() or running.process.poll() is not None, 120.0, "the nodes")
    except Exception:
        running.close()
        raise
    code, out, err = running.end()
    assert code == 0, err + running.log()
    assert {name: seen.get(name) for name in nodes} == {name: wanted[name] for name in nodes}
    result = json.loads(out.splitlines()[-1])
    assert result["violations"] == 0 and result["monitor"]["commands"] > 200, result["monitor"]
    assert result["success"]["episodes"] == 1 and result["episode_s"][0] > 1.4


FORWARD = """command:
  topic: forward_position_controller/commands
  type: std_msgs/msg/Float64MultiArray
"""


@pytest.mark.realtime
@pytest.mark.parametrize("command", ["trajectory", "forward"])
def test_an_episode_of_an_arm_of_ones_own_on_the_double_of_ros2_control(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An arm that a folder beside the checkout holds; its joint states come by name and are where the commands lead."""
    import robosuite

    mjcf = Path(robosuite.__file__).parent / "models" / "assets" / "robots" / "xarm7" / "robot.xml"
    made = make_robot(RobotRequest(mjcf, "xarm7"), tmp_path / "arms" / "xarm7")
    monkeypatch.setenv("ROBOLEARN_ROBOTS", str(tmp_path / "arms"))
    monkeypatch.setitem(ROBOTS, "xarm7", read_robot(made.folder)[0])
    if command == "forward":
        file = made.folder / "station.yaml"
        text, count = re.subn(r"^command:\n(  .*\n)+", FORWARD, file.read_text(), flags=re.MULTILINE)
        assert count == 1
        file.write_text(text)
    with rehearsal("xarm7") as robot:
        contract = load_contract(robot).with_objects(TASKS["lift"]().observation_names)
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)  # its machine code
    policy = make_policy(tmp_path / "policy", contract.interface)
    words = ("deploy", "--rehearse", "--robot", "xarm7", "--policy", policy, "--episodes", 1, "--seconds", 3)
    told: list[np.ndarray] = []
    arm: list[np.ndarray] = []
    names: set[tuple[str, ...]] = set()
    with Background(DOMAIN + 3) as ros:
        node = ros.add(Node("observer", context=ros.context))

        def commanded(message: Any) -> None:
            told.append(np.array(message.points[-1].positions if command == "trajectory" else message.data))

        def measured(message: Any) -> None:
            names.add(tuple(message.name))
            arm.append(messages.pick(message, contract.joints))

        kind = messages.message_type(contract.command.type)
        node.create_subscription(kind, contract.command.topic, commanded, qos.stream(lease_s=None, depth=200))
        node.create_subscription(messages.JointState, contract.joint_states.topic, measured, qos.sensor(50))
        running = Running(tmp_path / "logs", *words, domain=DOMAIN + 3)
        code, out, err = running.end()
    assert code == 0, err + running.log()
    result = json.loads(out.splitlines()[-1])
    assert result["violations"] == 0 and result["monitor"]["commands"] > 400, result["monitor"]
    assert names == {tuple(sorted((*contract.joints, "gripper_joint")))}
    assert np.ptp(told, axis=0).max() > 0.05, "it was moved"
    assert np.abs(arm[-1] - told[-1]).max() < 0.02


POSES = """command:
  topic: target_pose
  type: geometry_msgs/msg/PoseStamped
  posture: {topic: target_joint, type: sensor_msgs/msg/JointState}
"""


def by_poses(folder: Path) -> Path:
    """The contract of the FR3 with CRISP's Cartesian impedance controller in place of the trajectory controller."""
    text = (CONTRACTS / "fr3.yaml").read_text()
    text, count = re.subn(r"^command:\n(  .*\n)+", POSES, text, flags=re.MULTILINE)
    assert count == 1
    path = folder / "fr3.yaml"
    path.write_text(text)
    return path


@pytest.mark.realtime
def test_an_episode_by_poses_on_the_double_of_an_impedance_controller(tmp_path: Path) -> None:
    """MuJoCo judges: each pose is that of the posture with its stamp, and the arm's tcp goes where the poses say."""
    path = by_poses(tmp_path)
    with rehearsal(str(path)) as robot:
        contract = load_contract(robot).with_objects(TASKS["lift"]().observation_names)
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)  # its machine code
    policy = make_policy(tmp_path / "policy", contract.interface)
    words = ("deploy", "--rehearse", "--robot", path, "--policy", policy, "--episodes", 1, "--seconds", 3)
    poses: dict[int, np.ndarray] = {}
    postures: dict[int, np.ndarray] = {}
    arm: list[np.ndarray] = []
    assert contract.command.posture is not None
    with Background(DOMAIN + 1) as ros:
        node = ros.add(Node("observer", context=ros.context))

        def on_pose(message: PoseStamped) -> None:
            p, o = message.pose.position, message.pose.orientation
            poses[messages.nanoseconds(message.header.stamp)] = np.array([p.x, p.y, p.z, o.w, o.x, o.y, o.z])

        def on_posture(message: messages.JointState) -> None:
            postures[messages.nanoseconds(message.header.stamp)] = messages.pick(message, contract.joints)

        deep = qos.stream(lease_s=None, depth=200)
        node.create_subscription(PoseStamped, contract.command.topic, on_pose, deep)
        node.create_subscription(messages.JointState, contract.command.posture.topic, on_posture, deep)
        node.create_subscription(
            messages.JointState, contract.joint_states.topic,
            lambda message: arm.append(messages.pick(message, contract.joints)), qos.sensor(50),
        )  # fmt: skip
        running = Running(tmp_path / "logs", *words, domain=DOMAIN + 1)
        code, out, err = running.end()
    assert code == 0, err + running.log()
    result = json.loads(out.splitlines()[-1])
    assert result["violations"] == 0 and result["monitor"]["commands"] > 300, result["monitor"]
    tcp = judge(contract.robot)
    both = sorted(set(poses) & set(postures))
    assert len(both) > 0.95 * len(poses) > 280
    for stamp in both:
        position, quat = tcp(postures[stamp])
        np.testing.assert_allclose(poses[stamp][:3], position, atol=1e-9)
        assert abs(poses[stamp][3:] @ quat) > 1 - 1e-12
    path_of_poses = np.array([poses[stamp][:3] for stamp in both])
    assert np.linalg.norm(np.ptp(path_of_poses, axis=0)) > 0.01, "it moved"
    # Behind by what a spring and its smoothing are behind, and at the end where it was told to be.
    assert np.linalg.norm(tcp(arm[-1])[0] - path_of_poses[-1]) < 0.02
    assert np.abs(arm[-1] - postures[both[-1]]).max() < 0.1, "by the joints that the filter looked at"


def judge(robot: RobotSpec) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Joints → position and wxyz quaternion of the tcp, by MuJoCo on the model."""
    model = mujoco.MjModel.from_xml_path(str(robot.mjcf))
    data = mujoco.MjData(model)
    at = np.array([model.joint(name).qposadr[0] for name in robot.joints])

    def tcp(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data.qpos[at] = q
        mujoco.mj_kinematics(model, data)
        quat = np.zeros(4)
        mujoco.mju_mat2Quat(quat, data.site(robot.tcp_site).xmat)
        return data.site(robot.tcp_site).xpos.copy(), quat

    return tcp


def enclaves(policy: str) -> list[str]:
    """Their paths, from the XML alone."""
    return [one.attrib["path"] for one in ET.fromstring(policy).iter("enclave")]
