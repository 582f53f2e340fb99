"""`robolearn deploy --rehearse`: a trained policy behind the contract of a real station and an emulator of its driver.

Success is the simulated task's; limits are judged by the monitor at the double's controller, which sees what the arm is
asked to do each millisecond, and by an observer on the driver's topics.

A policy that imitates may bring an arm near itself or near a singularity, where the filter rightly stops it. One such
stop is an episode that failed. It has to latch, and the person who starts the deployment anew, for the episodes that
are left, arms the arm again. Any other stop is a defect, and so is a second one.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from running import WAIT_S, Running

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos, topics
from hardware.ros2.process import Background, wait_until
from hardware.safety import SafetyFilter
from robolearn.cli.main import main
from robots.stations import CONTRACTS, AnyContract, load_contract, load_pair

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 3
EPISODES = 4
TWO = ("--task", "lift_two")
NARROW = ("--quality", "narrow", "--start-range", "1")
EARNED = re.compile(
    r"the safety filter stopped the arm: (self-collision: .* would come within [\d.]+ m of .*|"
    r"singularity: .* would come near a singularity: condition number [\d.]+), allowed [\d.]+"
)


def trained(folder: Path, robot: str) -> Path:
    """A policy that imitates the scripted expert, and the filter's machine code for its arm."""
    contract = load_contract(robot)
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)
    data, run = str(folder / "data"), folder / "bc"
    assert main(["collect", "--robot", robot, "--episodes", "200", *NARROW, "--out", data]) == 0
    assert main(["train", "--data", data, "--steps", "2500", "--out", str(run)]) == 0
    return run


class Observer:
    """What somebody beside the arm sees of it: where the driver says that it is, and when."""

    def __init__(self, contract: str) -> None:
        self.contract = load_contract(contract)
        self.times: list[float] = []
        self.q: list[np.ndarray] = []

    def heard(self, message: messages.JointState) -> None:
        self.times.append(messages.seconds(message.header.stamp))
        self.q.append(messages.pick(message, self.contract.joints))

    @contextmanager
    def watching(self) -> Iterator[Background]:
        with Background(DOMAIN) as ros:
            node = ros.add(Node("observer", context=ros.context))
            topic = self.contract.joint_states.topic
            node.create_subscription(messages.JointState, topic, self.heard, qos.sensor(100))
            yield ros

    def fastest(self) -> float:
        """Greatest mean velocity over 50 ms, as share of the contract's limit; resets of the scene left out."""
        t, q = np.array(self.times), np.array(self.q)
        later = np.searchsorted(t, t + 0.05)
        rows = np.flatnonzero(later < len(t))
        dt = (t[later[rows]] - t[rows])[:, None]
        speed = np.abs(q[later[rows]] - q[rows]) / dt / self.contract.limits.velocity
        reset = np.abs(np.diff(q, axis=0)).max(1) > 0.05
        near = np.array([reset[a : b + 1].any() for a, b in zip(rows, later[rows], strict=True)])
        return float(speed[~near].max())


@pytest.fixture(scope="module")
def fr3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("fr3"), "fr3")


@pytest.fixture(scope="module")
def ur5e(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("ur5e"), "ur5e")


def rehearse(run: Path, logs: Path, robot: str, episodes: int = EPISODES, *flags: object) -> Running:
    return Running(
        logs, "deploy", "--rehearse", "--robot", robot, "--policy", run, "--episodes", episodes,
        "--seconds", 10, *flags, domain=DOMAIN,
    )  # fmt: skip


@contextmanager
def reported(contract: AnyContract) -> Iterator[list[messages.SafetyReport]]:
    """The reports of the safety node, as they come."""
    heard: list[messages.SafetyReport] = []
    take = lambda message: heard.extend(filter(None, [messages.read_safety_report(message)]))  # noqa: E731
    with Background(DOMAIN) as ros:
        space = topics.namespace_of_nodes(contract.namespace)
        node = ros.add(Node("reports", namespace=space, context=ros.context))
        node.create_subscription(messages.DiagnosticArray, topics.SAFETY_STATE, take, qos.latched())
        yield heard


def check_episodes(start: Callable[[Path, int], Running], contract: AnyContract, logs: Path, rate: float) -> int:
    """So many of the episodes solved at least, and no limit broken at a controller; how many commands there were.
    `start` begins a deployment with its logs, of so many episodes."""
    solved: list[bool] = []
    stops: list[str] = []
    commands, code = 0, 1
    while code:
        with reported(contract) as reports:
            running = start(logs / str(len(stops)), max(EPISODES - len(solved), 1))
            code, out, err = running.end()
        said = err + running.log()
        assert code in (0, 1) and out, said
        result = json.loads(out.splitlines()[-1])
        assert result["violations"] == 0, (result["monitor"], stops)
        commands += result["monitor"]["commands"]
        solved += result["succeeded"]
        if code:
            assert not stops and result["stopped"] and EARNED.search(result["ended"]), (stops, said)
            assert reports[-1].state == "latched" and reports[-1].reason in result["ended"], (reports[-1], said)
            stops.append(result["ended"])
    assert len(solved) >= EPISODES and sum(solved[:EPISODES]) >= rate * EPISODES, (solved, stops)
    return commands


def check_success(run: Path, folder: Path, robot: str) -> None:
    seen = Observer(robot)
    with seen.watching():
        start = lambda logs, episodes: rehearse(run, logs, robot, episodes)  # noqa: E731
        commands = check_episodes(start, seen.contract, folder / "logs", 0.5)
    assert commands > EPISODES * seen.contract.stream_hz, "a second each"
    assert 0.1 < seen.fastest() < 1.1, "of the contract's limits, as the driver's joint states show it"


@pytest.mark.realtime
def test_a_policy_on_the_double_of_franka_ros2(fr3: Path, tmp_path: Path) -> None:
    check_success(fr3, tmp_path, "fr3")


@pytest.mark.realtime
def test_a_policy_on_the_double_of_ur_robot_driver(ur5e: Path, tmp_path: Path) -> None:
    check_success(ur5e, tmp_path, "ur5e")


@pytest.mark.realtime
def test_a_policy_on_the_simulated_so101_with_its_drivers_vector(tmp_path: Path) -> None:
    check_success(trained(tmp_path, "so101"), tmp_path, "so101")


def trained_two(folder: Path, robot: str) -> Path:
    """A policy of two arms that imitates the scripted expert of `lift_two`, and the filter's machine code for them."""
    pair, data, run = load_pair(robot), folder / "data", folder / "bc"
    SafetyFilter(pair.robot, pair.joints, pair.limits, 1.0 / pair.stream_hz)
    words = (*TWO, "--robot", pair.robot.name, "--episodes", "50", *NARROW)
    assert main(["collect", *words, "--out", str(data)]) == 0
    assert main(["train", "--data", str(data), "--steps", "3000", "--out", str(run)]) == 0
    return run


@pytest.fixture(scope="module")
def fr3_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_two(tmp_path_factory.mktemp("fr3_pair"), "fr3_pair")


@pytest.mark.realtime
def test_a_policy_of_two_arms_on_the_simulated_pair(tmp_path: Path) -> None:
    """The arms are simulated in one world, each behind the topics of a position controller of its own."""
    pair = load_pair("panda_pair")
    words = ("deploy", *TWO, "--robot", pair.name, "--policy", trained_two(tmp_path, "panda_pair"))
    start = lambda logs, episodes: Running(logs, *words, "--episodes", episodes, domain=DOMAIN)  # noqa: E731
    assert check_episodes(start, pair, tmp_path / "logs", 0.5) > 2 * EPISODES * pair.stream_hz


def two_drivers(folder: Path) -> Path:
    """Two FR3, the left one behind franka_ros2 and the right one behind any other ros2_control. The bar of `lift_two`
    is 3 cm high: to take it the fingers come nearer to the table than the filter lets them, so theirs is 1 cm lower."""
    text = (CONTRACTS / "fr3.yaml").read_text().replace("offset: 0.0}", "offset: -0.01}", 1)
    (folder / "left.yaml").write_text(text)
    text = text.replace("franka_ros2\n", "ros2_control\n", 1)
    (folder / "right.yaml").write_text(re.sub(r"^  (action|states):.*\n(    .*\n)+", "", text, flags=re.MULTILINE))
    path = folder / "two.yaml"
    path.write_text("robot: fr3_pair\narms: {left: {contract: left.yaml}, right: {contract: right.yaml}}\n")
    return path


@pytest.mark.realtime
def test_a_policy_of_two_arms_on_the_doubles_of_two_drivers(fr3_pair: Path, tmp_path: Path) -> None:
    """The policy learned at the arms' full speed. How often it lifts the bar at the contract's half is not known."""
    path, words = str(two_drivers(tmp_path)), (*TWO, "--seconds", 20)
    start = lambda logs, episodes: rehearse(fr3_pair, logs, path, episodes, *words)  # noqa: E731
    assert check_episodes(start, load_pair(path), tmp_path / "logs", 0.0) > 2 * EPISODES * 500.0


@pytest.mark.realtime
def test_a_driver_of_one_of_two_arms_that_died_stops_both(fr3_pair: Path, tmp_path: Path) -> None:
    running = rehearse(fr3_pair, tmp_path / "logs", str(two_drivers(tmp_path)), 20, *TWO)
    with fault_while_armed(running, "right/joint_states:stop"):
        code, _, err = running.end()
    assert code == 1 and re.search("the joint state of right is .* old|on /right/franka/joint_states: ", err), err


@pytest.mark.realtime
def test_a_policy_by_poses_on_the_double_of_an_impedance_controller(fr3: Path, tmp_path: Path) -> None:
    """CRISP's controller in place of the trajectory controller: the same policy, by poses and postures."""
    text = (CONTRACTS / "fr3.yaml").read_text()
    poses = "command: {topic: target_pose, type: geometry_msgs/msg/PoseStamped, posture: {topic: target_joint, "
    poses += "type: sensor_msgs/msg/JointState}}\n"
    path = tmp_path / "fr3.yaml"
    path.write_text(re.sub(r"^command:\n(  .*\n)+", poses, text, flags=re.MULTILINE))
    check_success(fr3, tmp_path, str(path))


@pytest.mark.realtime
def test_the_judge_sees_that_set_points_are_not_sent_ahead(fr3: Path, tmp_path: Path) -> None:
    """The contract without its horizon: each message ends the trajectory before."""
    path = tmp_path / "fr3.yaml"
    path.write_text(re.sub(r"  horizon_s:.*\n", "", (CONTRACTS / "fr3.yaml").read_text()))
    running = rehearse(fr3, tmp_path / "logs", str(path), 1)
    code, out, err = running.end()
    assert code == 0, err + running.log()
    assert json.loads(out.splitlines()[-1])["violations"] > 20


@contextmanager
def fault_while_armed(running: Running, fault: str) -> Iterator[tuple[Background, Node]]:
    """Wait until the arm is armed, switch a fault on, and wait until the filter has latched."""
    states: list[str] = []
    try:
        with Background(DOMAIN) as ros:
            node = ros.add(Node("observer", namespace=topics.NAMESPACE, context=ros.context))
            node.create_subscription(
                messages.DiagnosticArray, topics.SAFETY_STATE,
                lambda message: states.append(getattr(messages.read_safety_report(message), "state", "")),
                qos.latched(),
            )  # fmt: skip
            ended = lambda: running.process.poll() is not None  # noqa: E731
            wait_until(lambda: (states and states[-1] == "armed") or ended(), WAIT_S, "the arm to be armed")
            assert not ended(), running.end()[2] + running.log()
            client = node.create_client(SetParameters, "/robolearn/sim_arm/set_parameters")
            assert client.wait_for_service(60.0)
            parameter = Parameter("fault", value=fault).to_parameter_msg()
            future = client.call_async(SetParameters.Request(parameters=[parameter]))
            wait_until(future.done, 60.0, "the fault")
            wait_until(lambda: states[-1] == "latched", 15.0, "the filter to latch")
            yield ros, node
    finally:
        running.close()


@pytest.mark.realtime
def test_a_driver_that_died_is_noticed_though_the_relay_goes_on(fr3: Path, tmp_path: Path) -> None:
    running = rehearse(fr3, tmp_path, "fr3", 20)
    relayed: list[float] = []
    with fault_while_armed(running, "joint_states:stop") as (_, node):
        node.create_subscription(
            messages.JointState, "/joint_states",
            lambda message: relayed.append(messages.seconds(message.header.stamp)), qos.sensor(10),
        )  # fmt: skip
        wait_until(lambda: len(relayed) > 5, 30.0, "the relay")
        assert abs(time.time() - relayed[-1]) < 0.5, "its stamps are fresh"
        code, _, err = running.end()
    assert code == 1 and re.search("the joint state is .* old|joint states on /franka/joint_states: ", err), err


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("driver:program_stopped", "External Control program is not playing, expected playing: load"),
        ("driver:protective_stop", "the (speed is 0|safety mode is protective stop), .* press Play"),
    ],
)
def test_a_ur5e_whose_controller_forbids_motion_latches(ur5e: Path, tmp_path: Path, fault: str, says: str) -> None:
    running = rehearse(ur5e, tmp_path, "ur5e", 20)
    with fault_while_armed(running, fault):
        code, _, err = running.end()
    assert code == 1 and re.search(says, err.replace("\n", " ")), err
