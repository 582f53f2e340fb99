"""Openings as goals of actions: when which goal is due, and over DDS with the real types of the drivers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rclpy.node import Node

sys.path.insert(0, str(Path(__file__).parent))
import driver_messages

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.execution.gripper_goals import AGAIN_S, GripperGoals
from hardware.ros2 import messages, qos
from hardware.ros2.gripper_node import GripperNode
from hardware.ros2.process import Background, wait_until
from robolearn.bench.emulators.grippers import FrankaHand, GripperController
from robots.stations import CONTRACTS, Contract, load_contract

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 9


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def want(
    goals: GripperGoals, clock: Clock, begin: float, end: float, seconds: float
) -> list[tuple[float, float, bool]]:
    """Want openings from `begin` to `end`; time, opening and direction of the goals that become due."""
    found, steps = [], max(round(seconds / 0.01), 1)
    for k in range(steps):
        clock.now += 0.01
        goals.want(begin + (end - begin) * (k + 1) / steps)
        if goals.due and not goals.busy:
            found.append((clock.now, *goals.begin(0.08)))
    return found


def test_an_opening_that_rests_is_the_goal_and_one_under_way_goes_all_the_way() -> None:
    clock = Clock()
    goals = GripperGoals(0.08, clock)
    ((_, width, closing),) = want(goals, clock, 0.05, 0.05, 0.5)
    assert (width, closing) == (0.05, True)
    goals.done()
    ((at, width, closing),) = want(goals, clock, 0.05, 0.01, 0.4)
    assert (width, closing) == (0.0, True) and at - 100.5 < 0.15
    want(goals, clock, 0.01, 0.01, 0.2)
    assert goals.due, "given up for where it came to rest"
    goals.done()
    assert goals.begin(0.04)[0] == pytest.approx(0.01)


def test_what_is_no_opening_or_no_change_is_no_goal() -> None:
    clock = Clock()
    goals = GripperGoals(0.08, clock)
    want(goals, clock, 0.05, 0.05, 0.3)
    goals.done()
    for width in (float("nan"), float("inf"), 0.051, 0.049):
        goals.want(width)
        clock.now += 0.3
        assert not goals.due
    goals.done(started=False)
    assert not goals.due
    clock.now += AGAIN_S
    assert goals.due, "one that was refused is wanted again"
    goals.want(9.0)
    clock.now += 0.3
    assert goals.begin(0.0) == (0.08, False)


def test_a_gripper_that_refuses_is_asked_twice_a_second() -> None:
    clock = Clock()
    goals = GripperGoals(0.08, clock)
    asked = 0
    for _ in range(300):  # 3 s
        clock.now += 0.01
        goals.want(0.05)
        if goals.due:
            goals.begin(0.08)
            goals.done(started=False)
            asked += 1
    assert 5 <= asked <= 6


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the drivers' message packages, on the path."""
    if not driver_messages.buildable():
        pytest.skip("no compilers here for the drivers' messages")
    with pytest.MonkeyPatch.context() as patch:
        made = driver_messages.build(tmp_path_factory.mktemp("messages"), ("franka_msgs", "control_msgs"))
        patch.syspath_prepend(str(made))
        yield made


class Driver:
    """A station with a gripper's driver, which the test makes, and what the safety node publishes."""

    def __init__(self, ros: Background, contract: Contract) -> None:
        assert contract.gripper is not None
        self.contract, self.width, self.advance = contract, 0.08, lambda seconds: None
        node = self.node = ros.add(Node("driver", context=ros.context))
        self.wanted = node.create_publisher(messages.Float64MultiArray, contract.gripper.topic, qos.COMMAND)
        topic = contract.gripper_states or contract.joint_states
        self.states = node.create_publisher(messages.JointState, topic.topic, 10)
        node.create_timer(0.01, self.tick)

    def tick(self) -> None:
        self.advance(0.01)
        names = (*self.contract.joints, *self.contract.gripper_joints)
        at = [0.0] * len(self.contract.joints) + list(self.contract.gripper_joint_positions(self.width))
        self.states.publish(messages.joint_state(names, at, time.time()))

    def follow(self, width: float) -> None:
        self.width = width

    def hand(self) -> FrankaHand:
        made = FrankaHand(self.node, "/franka_gripper", 0.08, lambda: self.width, self.follow)
        self.advance = made.advance
        return made

    def close(self, hand: FrankaHand) -> None:
        """In the thread that waits for what the hand has: it is not to be gone while it is waited for."""
        done = threading.Event()

        def close(seconds: float) -> None:
            self.advance = lambda seconds: None
            hand.close()
            done.set()

        self.advance = close
        assert done.wait(10.0)

    @property
    def heard(self) -> bool:
        return self.wanted.get_subscription_count() == 1

    def want(self, width: float, until: Callable[[], bool], seconds: float = 8.0, hz: float = 100.0) -> None:
        """Publish an opening, as the safety node does at each step, until something has come of it."""
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, "nothing came of it"
            values = list(self.contract.gripper_values(width))
            self.wanted.publish(messages.Float64MultiArray(data=values))
            time.sleep(1.0 / hz)


@pytest.fixture
def driver(drivers: Path) -> Iterator[Callable[[Contract], Driver]]:
    with Background(DOMAIN) as ros:

        def make(contract: Contract) -> Driver:
            gripper = GripperNode(contract=contract, context=ros.context)
            gripper.start()
            made = Driver(ros, contract)
            ros.add(gripper)
            return made

        yield make
        assert not ros.errors


@pytest.mark.realtime
def test_openings_become_moves_and_grasps_of_the_hand(driver: Callable[[Contract], Driver]) -> None:
    rig = driver(load_contract("fr3"))
    time.sleep(1.0)
    assert not rig.heard, "nobody listens before the gripper's driver is there"
    hand = rig.hand()
    wait_until(lambda: rig.heard, 10.0, "the gripper node")
    for width, kind in ((0.02, "grasp"), (0.07, "move")):
        begun = len(hand.goals)
        rig.want(
            width, lambda w=width, n=begun: len(hand.goals) > n and hand.goals[-1][1] == w and abs(rig.width - w) < 1e-3
        )
        assert hand.goals[begun][0] == kind
    assert hand.goals[0][2:] == (20.0, 0.08), "the force of the contract, and whatever is held is held"
    rig.close(hand)
    wait_until(lambda: not rig.heard, 10.0, "the gripper node to notice")


@pytest.mark.realtime
def test_a_driver_that_hangs_in_mid_motion_is_asked_again_when_it_is_back(driver: Callable[[Contract], Driver]) -> None:
    rig = driver(load_contract("fr3"))
    hand = rig.hand()
    wait_until(lambda: rig.heard, 10.0, "the gripper node")
    rig.want(0.0, lambda: rig.width < 0.06)
    rig.advance = lambda seconds: None  # it takes goals, and neither moves nor ends any
    rig.want(0.08, lambda: len(hand.goals) > 1)
    rig.advance = hand.advance
    rig.want(0.08, lambda: rig.width > 0.075)
    assert hand.goals[-1][0] == "move"


@pytest.mark.realtime
def test_a_robotiq_gripper_behind_its_action_controller(driver: Callable[[Contract], Driver], tmp_path: Path) -> None:
    text = (CONTRACTS / "ur5e.yaml").read_text()
    path = tmp_path / "ur5e.yaml"
    path.write_text(text.replace("# action: {", "action: {"))
    contract = load_contract(path)
    rig = driver(contract)
    thing = 0.03  # [m] between the fingers

    def measured() -> float:
        return contract.gripper_joint_positions(rig.width)[0]

    goal = [measured()]
    controller = GripperController(
        rig.node, "/robotiq_gripper_controller/gripper_cmd", measured, lambda p: goal.__setitem__(0, p)
    )

    def advance(seconds: float) -> None:
        way = contract.gripper_width([goal[0]]) - rig.width
        rig.width = max(rig.width + min(max(way, -0.1 * seconds), 0.1 * seconds), thing)
        controller.advance(seconds)

    rig.advance = advance
    wait_until(lambda: rig.heard, 10.0, "the gripper node")
    rig.want(0.0, lambda: bool(controller.ended), seconds=15.0)
    assert controller.goals == [(pytest.approx(0.7929), 20.0)], "closed, in radians, with the contract's effort"
    assert controller.ended == ["abort"] and goal[0] == pytest.approx(0.7929), "stalled on the thing, and holding it"
    rig.want(0.085, lambda: "succeed" in controller.ended)
    assert controller.goals[-1][0] == pytest.approx(0.0) and rig.width > 0.08
    begun = len(controller.goals)
    rig.want(0.0, lambda: rig.width < 0.07)
    rig.want(0.085, lambda: rig.width > 0.08)
    assert "canceled" in controller.ended, "one under way is given up for another"
    assert len(controller.goals) == begun + 2


@pytest.mark.realtime
def test_the_node_costs_little_whatever_streams_by(drivers: Path) -> None:
    """It once took a core: each message of the 200 Hz that the safety node sends woke its executor three times."""
    env = {**os.environ, "ROS_DOMAIN_ID": str(DOMAIN + 1), "PYTHONPATH": os.pathsep.join([str(drivers), str(ROOT)])}
    command = [sys.executable, "-m", "robolearn.deploy.nodes", "gripper", "--contract", "fr3"]
    node = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        with Background(DOMAIN + 1) as ros:
            rig = Driver(ros, load_contract("fr3"))
            hand = rig.hand()
            wait_until(lambda: rig.heard, 30.0, "the gripper node")
            begun = cpu_s(node.pid)
            end = time.monotonic() + 3.0
            rig.want(0.03, lambda: time.monotonic() > end, hz=200.0)
            spent = cpu_s(node.pid) - begun
            assert hand.goals and spent < 0.25 * 3.0, f"{spent:.2f} s in 3 s"
    finally:
        node.kill()
        node.wait()


def cpu_s(pid: int) -> float:
    """What a process has used [s]."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
