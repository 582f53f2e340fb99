"""Who may say where the arm and its jaw are: two senders of joint states, at arming and while armed, through the
supervisor."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.safety import PoseTarget, SafetyRefused, SafetyState
from hardware.safety.supervisor import SafetySupervisor
from robolearn.core.se3 import matrix_to_quat
from robots.stations import Contract, load_contract

CONTRACT = load_contract("sim")
HOME = np.array(CONTRACT.robot.home)
OFF = HOME + 0.3 * np.eye(7)[0]
PERIOD = 1.0 / CONTRACT.stream_hz
NAMES = {"driver": "/driver", "forgotten": "/joint_state_publisher", "second": "/driver_2", "gripper": "/gripper",
         "stranger": "/stranger", "planner": "/planner"}  # fmt: skip


class Desk:
    """A supervisor, and joint states by whom and how often. `whole` senders report arm and gripper."""

    def __init__(self, contract: Contract = CONTRACT, whole: tuple[str, ...] = ()) -> None:
        self.now, self.contract, self.whole = 10.0, contract, whole
        self.supervisor = SafetySupervisor(contract, lambda: self.now, lambda: self.now, lambda one: NAMES[one])
        self.supervisor.streamers_alive(1, "targets")
        self.says: dict[str, np.ndarray] = {"driver": HOME}
        self.every = {"driver": 1, "second": 1, "forgotten": 20, "gripper": 4, "stranger": 5}  # periods
        self.there: tuple[str, ...] = ()
        self.sent: list[np.ndarray] = []
        self._ticks = 0

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / PERIOD)):
            self.now += PERIOD
            self._ticks += 1
            self.supervisor.deadman(True)
            for who, positions in self.says.items():
                if self._ticks % self.every[who] == 0:
                    self.hear(who, positions)
            if self.supervisor.state is SafetyState.ARMED:
                goal = self.says["driver"][: len(self.contract.joints)]
                self.supervisor.target(self.contract.joints, goal, round(1e9 * self.now))
            command = self.supervisor.step()
            if command is not None:
                self.sent.append(command.positions)

    def hear(self, who: str, positions: np.ndarray) -> None:
        c = self.contract
        names = c.gripper_joints if who in ("gripper", "stranger") else c.joints
        names = (*c.joints, *c.gripper_joints) if who in self.whole else names
        self.supervisor.joint_state(names, positions, self.now, who)

    def arm(self) -> None:
        """As the safety node's service does."""
        if reason := self.supervisor.refusal("targets", self.there):
            raise SafetyRefused(reason)
        self.supervisor.arm()


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.run(0.5)
    return desk


@pytest.mark.parametrize("positions", [OFF, HOME])
def test_two_publishers_are_not_armed_whatever_they_say(desk: Desk, positions: np.ndarray) -> None:
    desk.says["forgotten"] = positions
    desk.run(1.5)
    words = r"joint states on /joint_states: 2 publishers at once, /(driver|joint_state_publisher) and /"
    with pytest.raises(SafetyRefused, match=words):
        desk.arm()
    del desk.says["forgotten"]
    desk.run(0.9)
    with pytest.raises(SafetyRefused, match="2 publishers at once"):
        desk.arm()  # ten a second: it may only have paused
    desk.run(0.2)
    desk.arm()
    desk.run(0.1)
    assert np.array_equal(desk.sent, np.tile(HOME, (20, 1)))


@pytest.mark.parametrize("positions", [OFF, HOME])
def test_a_second_publisher_stops_an_armed_arm_and_is_not_believed_once(desk: Desk, positions: np.ndarray) -> None:
    desk.arm()
    desk.run(0.2)
    desk.hear("forgotten", positions)
    assert desk.supervisor.state is SafetyState.BRAKING
    assert "2 publishers at once, /driver and /joint_state_publisher" in desk.supervisor.filter.reason
    desk.run(0.3)
    assert desk.supervisor.state is SafetyState.LATCHED
    assert np.array_equal(desk.sent, np.tile(HOME, (len(desk.sent), 1)))


def test_a_driver_that_was_started_again_is_armed_after_a_second(desk: Desk) -> None:
    desk.says["second"] = desk.says["driver"]
    desk.every["driver"] = 10**9
    desk.run(0.5)
    with pytest.raises(SafetyRefused, match="2 publishers"):
        desk.arm()
    desk.run(0.6)
    desk.arm()
    desk.run(0.1)
    assert desk.supervisor.state is SafetyState.ARMED


def test_a_gripper_with_a_publisher_of_its_own_is_no_second_one(desk: Desk) -> None:
    desk.says["gripper"] = np.full(2, 0.02)
    desk.there = ("driver", "gripper")
    with pytest.raises(SafetyRefused, match="2 publishers, and nothing was heard of /gripper"):
        desk.arm()
    desk.run(0.1)
    desk.arm()
    desk.run(0.2)
    assert desk.supervisor.state is SafetyState.ARMED


SO101 = load_contract("so101")
CLOSED = np.array([*SO101.robot.home, 0.0])
JAW = "gripper joint 'gripper' on /follower/joint_states: 2 publishers at once, /"


@pytest.fixture
def so101() -> Desk:
    desk = Desk(SO101, whole=("driver", "forgotten"))
    desk.says = {"driver": CLOSED}
    desk.run(0.5)
    return desk


def test_a_jaw_in_the_arms_command_is_not_armed_by_two_publishers(so101: Desk) -> None:
    so101.says["stranger"] = np.array([1.7])
    so101.run(0.5)
    with pytest.raises(SafetyRefused, match=JAW):
        so101.arm()
    del so101.says["stranger"]
    so101.run(1.1)
    so101.arm()
    so101.run(0.1)
    jaw = SO101.gripper_width([0.0])
    assert so101.supervisor.filter.step().gripper == pytest.approx(jaw, abs=1e-6)  # type: ignore[union-attr]


def test_a_stranger_to_the_jaw_stops_an_armed_arm(so101: Desk) -> None:
    so101.arm()
    so101.run(0.2)
    so101.hear("stranger", np.array([1.7]))
    assert so101.supervisor.state is SafetyState.BRAKING
    assert f"{JAW}driver and /stranger" in so101.supervisor.filter.reason


def test_a_stranger_to_arm_and_jaw_is_named_as_one_to_the_arm(so101: Desk) -> None:
    so101.arm()
    so101.hear("forgotten", CLOSED)
    assert "joint states on /follower/joint_states: 2 publishers at once" in so101.supervisor.filter.reason


def test_a_jaw_with_a_publisher_of_its_own_is_armed_and_stopped_by_another(so101: Desk) -> None:
    desk = Desk(SO101)
    desk.says = {"driver": CLOSED[:-1], "gripper": CLOSED[-1:]}
    desk.run(0.5)
    desk.arm()
    desk.run(0.5)
    assert desk.supervisor.state is SafetyState.ARMED
    del desk.says["gripper"]
    desk.run(1.2)  # it is silent, and no arm moves by it
    desk.hear("stranger", np.array([1.7]))
    assert f"{JAW}gripper and /stranger" in desk.supervisor.filter.reason


def test_where_nobody_reports_who_sends_two_publishers_are_refused() -> None:
    desk = Desk()
    NAMES.update({"a": "/a", "b": "/b"})
    for _ in range(100):
        desk.now += PERIOD
        desk.supervisor.deadman(True)
        desk.supervisor.joint_state(CONTRACT.joints, HOME, desk.now)
    desk.there = ("a", "b")
    with pytest.raises(SafetyRefused, match="published by /a and /b; this ROS does not report the sender of a message"):
        desk.arm()
    desk.there = ("a",)
    desk.arm()


def test_an_arm_that_is_repeated_beside_a_finger_that_jitters_is_stopped(desk: Desk) -> None:
    """The driver has lost the arm and repeats it; the gripper's joint in the same message goes on as it is measured."""
    desk.arm()
    names = (*CONTRACT.gripper_joints, *CONTRACT.joints)
    for i in range(round(3.0 / PERIOD)):
        desk.now += PERIOD
        desk.supervisor.deadman(True)
        desk.supervisor.joint_state(names, [0.02 + 1e-5 * (i % 3), 0.02, *HOME], desk.now, "driver")
        if desk.supervisor.state is SafetyState.ARMED:
            # No further from the measured arm than the filter's own check of jumps allows.
            goal = HOME + 0.1 * min(i * PERIOD, 1.0) * np.eye(7)[0]
            desk.supervisor.target(CONTRACT.joints, goal, round(1e9 * desk.now))
        desk.supervisor.step()
    assert "frozen, the same values although the arm is commanded to move" in desk.supervisor.filter.reason
    assert desk.supervisor.state is SafetyState.LATCHED


def test_openings_of_a_second_publisher_are_not_taken_and_stop_the_arm(desk: Desk) -> None:
    supervisor = desk.supervisor
    desk.arm()
    desk.run(0.1)
    assert supervisor.opening("planner")
    desk.run(1.5)  # an opening is sent once: its sender may be silent for as long as it likes
    assert supervisor.opening("planner") and supervisor.state is SafetyState.ARMED
    desk.run(1.5)
    assert not supervisor.opening("stranger")
    assert supervisor.state is SafetyState.BRAKING
    assert "openings of the gripper: 2 publishers at once, /planner and /stranger" in supervisor.filter.reason


def send_pose(desk: Desk, program: str | None) -> None:
    position, rotation = (one[0] for one in CONTRACT.robot.chain.forward(HOME[None]))
    pose = PoseTarget(position, matrix_to_quat(rotation), 0.0)
    desk.supervisor.pose_target(pose, CONTRACT.frames.base, round(1e9 * desk.now), program)


@pytest.mark.parametrize("first", ["pose", "opening"])
def test_openings_count_from_the_program_that_sends_the_poses(desk: Desk, first: str) -> None:
    """In a planner that sends no openings, a stranger's would be the first, and bound."""
    supervisor = desk.supervisor
    desk.arm()
    if first == "pose":
        send_pose(desk, "planner")
        assert not supervisor.opening("stranger")
    else:
        assert supervisor.opening("stranger"), "whose the poses are is not known"
        send_pose(desk, "planner")
    assert supervisor.state is SafetyState.BRAKING
    words = "openings of the gripper come from /stranger, and the poses from /planner: expected one program"
    assert words in supervisor.filter.reason
    desk.run(0.5)
    supervisor.filter.reset()
    desk.run(1.0)
    desk.arm()
    send_pose(desk, "planner")
    assert supervisor.opening("planner")
    send_pose(desk, "planner")
    assert supervisor.state is SafetyState.ARMED, supervisor.filter.reason


def test_openings_of_a_sender_that_is_not_reported_are_taken(desk: Desk) -> None:
    desk.arm()
    send_pose(desk, None)
    assert desk.supervisor.opening(None) and desk.supervisor.state is SafetyState.ARMED


@pytest.mark.parametrize(
    ("behind", "after", "says"),
    [
        (10.0, 0.0, "targets: stamped 10.00 s ago when it arrives, more than 0.1 s: the clock of its sender is behind"),
        (-10.0, 0.0, "targets: stamped 10.00 s in the future: the clock of its sender is ahead"),
        (0.2, 0.0, "targets: stamped 0.20 s ago"),
        (4.0, 3.99, ""),  # of a long chunk, whose observation is old by now
        (0.04, 0.0, ""),
        (-0.04, 0.0, ""),
    ],
)
def test_targets_of_joints_are_judged_by_when_they_were_sent(
    desk: Desk, behind: float, after: float, says: str
) -> None:
    desk.arm()
    for _ in range(40):
        desk.now += PERIOD
        desk.supervisor.deadman(True)
        desk.hear("driver", HOME)
        desk.supervisor.target(CONTRACT.joints, HOME, round(1e9 * (desk.now - behind)), after)
        desk.supervisor.step()
    assert (desk.supervisor.state is SafetyState.ARMED) == (says == "")
    assert says in desk.supervisor.filter.reason


def test_a_target_that_waited_while_the_machine_stood_still_stops_nothing(desk: Desk) -> None:
    desk.arm()
    desk.run(0.2)
    for still in (0.12, 0.22):
        sent = round(1e9 * desk.now)
        desk.now += still
        desk.supervisor.deadman(True)
        desk.hear("driver", HOME)
        desk.supervisor.target(CONTRACT.joints, HOME, sent)
        desk.run(0.3)
        assert desk.supervisor.state is SafetyState.ARMED, desk.supervisor.filter.reason


def test_two_publishers_of_openings_are_not_armed_nor_kept_moving(desk: Desk) -> None:
    assert desk.supervisor.opening("stranger") and desk.supervisor.opening("planner"), "nothing moves yet"
    with pytest.raises(SafetyRefused, match=r"openings of the gripper: 2 publishers at once, /stranger and /planner"):
        desk.arm()
    desk.run(1.1)
    desk.arm()
    desk.run(0.1)
    assert not desk.supervisor.openings_there(["planner"]) and desk.supervisor.state is SafetyState.ARMED
    desk.supervisor.openings_there(["planner", "stranger"])  # the second is silent so far
    assert "2 publishers at once, /planner and /stranger" in desk.supervisor.filter.reason
