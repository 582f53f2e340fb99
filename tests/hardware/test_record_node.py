"""The recorder over real rclpy and DDS, with a hand, an arm and a writer that a test holds in its own."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))  # apart from whatever else runs here

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger

from hardware.episodes import Phase
from hardware.ros2 import messages, qos, record_node, runtime, teleop_node, topics
from hardware.ros2.background import wait_until
from hardware.ros2.record_node import RecordNode, Session, stamp_names
from hardware.ros2.teleop_node import TeleopNode
from hardware.setpoints import SetPoints
from hardware.teleop.device import EpisodeEvent as E
from hardware.teleop.device import Sample, Status
from robolearn.core import RobolearnError
from robolearn.core.priority import make_ordinary
from robots.stations import CONTRACTS, IMAGE, load_contract

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from ros_station import Arm  # noqa: E402
from stopping import silence  # noqa: E402

pytestmark = pytest.mark.realtime

SIM = load_contract("sim")
HOME = np.array(SIM.robot.home)
TCP = SIM.robot.chain.forward(HOME[None])[0][0]
WAIT_S = 20.0
PRIORITY: dict[str, Any] = {"realtime_priority": 0}  # this process is the arm, too, and the test that watches


def station_contract() -> Path:
    """5 cm of room in front of the tcp, 0.1 rad for the last joint, and one camera; a file."""
    content = yaml.safe_load((CONTRACTS / "sim.yaml").read_text())
    upper = [*SIM.limits.upper[:-1].tolist(), float(HOME[-1] + 0.1)]
    box = {"lower": (TCP - 0.5).tolist(), "upper": (TCP + np.array([0.05, 0.5, 0.5])).tolist()}
    content["limits"] = {"upper": upper, "workspace": box}
    content["cameras"] = {
        "front": {"topic": "/camera/front/image_raw", "type": IMAGE, "size": [16, 16], "max_age_s": 0.3}
    }
    content["name"] = "wall"
    path = Path(tempfile.mkdtemp(prefix="robolearn-test-")) / "wall.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


PATH = station_contract()
CONTRACT = load_contract(PATH)


class Hand:
    """A device in the hand of a test."""

    name = "hand"

    def __init__(self) -> None:
        self.action: np.ndarray | None = None
        self.engaged, self.note = True, ""
        self.events: deque[E] = deque()
        self.shown: list[Status] = []
        self.closed = False
        self.fault: Exception | None = None
        self.preparations: list[int] = []  # threads that told of one
        self.thread = 0  # that asks

    def open(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def sample(self, observation: Mapping[str, Any] | None) -> Sample:
        self.thread = threading.get_ident()
        if self.fault is not None:
            raise self.fault
        events = (self.events.popleft(),) if self.events else ()
        return Sample(self.action, self.engaged, events, time.monotonic(), self.note)

    def prepared(self) -> None:
        self.preparations.append(threading.get_ident())

    def show(self, status: Status) -> None:
        self.shown.append(status)


class Paper:
    """A writer that keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[tuple[dict, np.ndarray, float, dict]] = []
        self.episodes: list[tuple[dict, list]] = []
        self.discarded = 0
        self.on_add: Callable[[], None] = lambda: None
        self.on_end: Callable[[], None] = lambda: None

    def add(self, observation, action, reward=0.0, *, intervention=False, stamps=None) -> None:
        self.on_add()
        self.rows.append((observation, np.asarray(action), reward, stamps))

    def end(self, *, success, terminated=False, truncated=False, task="") -> int:
        self.on_end()
        facts = {"success": success, "terminated": terminated, "truncated": truncated, "task": task}
        self.episodes.append((facts, self.rows))
        self.rows = []
        return len(self.episodes) - 1

    def discard(self) -> None:
        self.discarded += 1
        self.rows = []


class Lens(Arm):
    """The arm and a camera beside it, with a heart as the nodes have one: three of them share this process."""

    def configure(self) -> None:
        c = self.contract
        assert c.gripper is not None
        self._states = self.create_publisher(JointState, c.joint_states.topic, qos.sensor())
        self.pictures = self.create_publisher(messages.Image, "/camera/front/image_raw", qos.sensor(2))
        deep = qos.stream(lease_s=None, depth=100)
        self.inputs = [
            self.poll(Float64MultiArray, c.command.topic, lambda message, info: self._on_command(message), deep),
            self.poll(Float64MultiArray, c.gripper.topic, lambda message, info: self._on_gripper(message), deep),
        ]
        self.films, self.changes, self.count, self.sag = True, True, 0, 0.0
        self.ticks = 0
        self.beat(0.005, self._tick)

    def _tick(self) -> None:
        for take in self.inputs:
            take()
        held = self.q
        self.q = held - self.sag  # a controller that gives way
        super()._tick()
        self.q = held
        self.ticks += 1
        if self.films and self.ticks % 10 == 0:
            self.count += self.changes
            picture = np.full((16, 16, 3), 100 + self.count % 100, np.uint8)
            self.pictures.publish(messages.image(picture, 1e-9 * self.get_clock().now().nanoseconds))


class Hosted:
    """A node as `runtime.host` runs it, in a thread."""

    def __init__(self, make: Callable[[Context], Any]) -> None:
        self.context = Context()
        rclpy.init(args=[], context=self.context)
        self.node = make(self.context)
        self.node.hosted = True
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.stop, self.codes = runtime._Stop(), []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.node.start()
        try:
            self.codes.append(runtime._spin(self.node, self.executor, self.stop))
        except RobolearnError as error:
            self.codes.append(error.exit_code)

    def close(self) -> None:
        """End it as Ctrl-C does."""
        self.stop.wanted = True
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive() and self.codes == [1 if self.node.error else 0]
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)
        make_ordinary()  # all the tests that come after would go before everything else on this machine


class Station:
    """The arm here, its safety node as a process."""

    def __init__(self) -> None:
        self.hosted = Hosted(lambda context: Lens(CONTRACT, context=context))
        self.arm = self.hosted.node
        env = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "robolearn.deploy.nodes", "safety", "--contract", str(PATH)]
        command += ["--realtime-priority", str(PRIORITY["realtime_priority"])]
        self.safety = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
        self._estop = self.arm.create_client(Trigger, topics.ESTOP)

    def estop(self) -> None:
        """What a mushroom button on the network does."""
        wait_until(self._estop.service_is_ready, WAIT_S, topics.ESTOP)
        answer = self._estop.call_async(Trigger.Request())
        wait_until(answer.done, WAIT_S, "the emergency stop")


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    made = Station()
    yield made
    made.safety.terminate()
    code = made.safety.wait(WAIT_S)
    made.hosted.close()
    shutil.rmtree(PATH.parent)
    assert code == 0


def follow(node: TeleopNode, hand: Hand, wanted: Phase = Phase.READY) -> None:
    """START until the arm follows, or is recorded, as somebody does who reads the screen.

    A machine that pauses latches the filter, and START begins anew.
    """
    end, pressed = time.monotonic() + WAIT_S, -1.0
    while (phase := node.episodes.phase) is not wanted:
        now = time.monotonic()
        told = phase is Phase.WAITING and (pressed < 0.0 or "START" in node.status.message)
        if (told or phase is Phase.READY) and not hand.events and now - pressed > 0.3:
            hand.events.append(E.START)
            pressed = now
        if now > end:
            pytest.fail(f"waited {WAIT_S:g} s for {wanted}: {node.status}")
        time.sleep(0.005)


class Recording:
    """A recorder, the hand that leads it and the paper that it writes on."""

    def __init__(self, station: Station, **options: Any) -> None:
        self.station, self.hand, self.paper = station, Hand(), Paper()
        station.arm.q, station.arm.films, station.arm.changes = HOME.copy(), True, True
        station.arm.sag = 0.0
        station.arm.monitor.new_motion()
        session = Session(CONTRACT, self.hand, CONTRACT.interface, self.paper, "wave", **{"episodes": 5, **options})
        self.hosted = Hosted(lambda context: RecordNode(lambda _: session, context=context, overrides=PRIORITY))
        self.node = self.hosted.node

    def open(self) -> None:
        wait_until(lambda: hasattr(self.node, "status"), WAIT_S, "the node to be configured")
        self.until(Phase.WAITING, 60.0)

    def until(self, phase: Phase, limit_s: float = WAIT_S) -> None:
        try:
            wait_until(lambda: self.node.episodes.phase is phase, limit_s, phase)
        except RobolearnError as error:
            pytest.fail(f"{error}: {self.node.status}")

    def settled(self) -> None:
        wait_until(lambda: not self.node.episodes.saving, WAIT_S, "the episode at hand to be saved")

    def press(self, *events: E) -> None:
        for event in events:
            self.hand.events.append(event)

    def record(self) -> None:
        """Up to where rows are stored."""
        follow(self.node, self.hand, Phase.RECORDING)

    def steps(self, count: int) -> None:
        first = self.node.step_count
        try:
            wait_until(lambda: self.node.step_count >= first + count, WAIT_S, f"{count} steps")
        except RobolearnError as error:
            pytest.fail(f"{error}: {self.node.status}")

    def close(self) -> None:
        self.hosted.close()
        assert self.hand.closed and self.node.report.state in ("disarmed", "latched")
        # What this process, busy with everything else, has missed looks like a step.
        seen = self.station.arm.monitor.summary()["violations_by_kind"]
        assert not any(seen[kind] for kind in ("non_finite", "length", "position")), seen


@pytest.fixture
def recording(station: Station) -> Iterator[Recording]:
    made = Recording(station)
    try:
        made.open()
        yield made
    finally:
        made.close()


def move(**parts: float) -> np.ndarray:
    names = CONTRACT.interface.action.names
    return np.array([parts.get(name, 0.0) for name in names], np.float32)


def test_what_is_stored_is_what_was_asked_for_and_done(recording: Recording) -> None:
    hand, paper = recording.hand, recording.paper
    follow(recording.node, hand)
    hand.action = move(dx=-0.4, gripper=1.0)
    moved = recording.station.arm.moved(0)
    wait_until(lambda: recording.station.arm.moved(0) > moved + 0.01, WAIT_S, "motion before anything is recorded")
    assert not paper.rows and hand.shown[-1].state == "waiting"
    recording.record()
    recording.steps(10)
    hand.action, hand.note = None, "move the stick"  # hold still
    recording.steps(5)
    assert (hand.shown[-1].state, hand.shown[-1].message) == ("recording", "move the stick")
    hand.note = ""
    assert hand.shown[-1].state == "recording" and hand.shown[-1].images["front"].shape == (16, 16, 3)
    recording.press(E.SUCCESS)
    recording.until(Phase.READY)
    recording.settled()
    assert hand.preparations == [hand.thread], "once, when the arm was armed, and before it is asked what to do"
    ((facts, rows),) = paper.episodes
    assert facts == {"success": True, "terminated": True, "truncated": False, "task": "wave"}
    assert 14 <= len(rows) <= 18
    actions = np.array([row[1] for row in rows])
    assert (actions[:10] == move(dx=-0.4, gripper=1.0)).all(), "to the bit where the filter changed nothing"
    assert np.abs(actions[-3:, :6]).max() < 0.2 and np.isfinite(actions).all(), "what holding still took"
    assert [row[2] for row in rows] == [0.0] * (len(rows) - 1) + [1.0]
    for observation, _, _, stamps in rows:
        assert observation.keys() == CONTRACT.interface.observation.keys()
        assert observation["proprio"].shape == (17,) and observation["images.front"].shape == (16, 16, 3)
        assert tuple(sorted(stamps)) == tuple(sorted(stamp_names(CONTRACT.interface)))
        assert 0 <= stamps["action"] - stamps["proprio"] < 0.1 and 0 <= stamps["action"] - stamps["images.front"] < 0.3
        assert abs(stamps["action"] - time.time()) < 60 and stamps["device"] <= stamps["action"]
    steps = np.diff([row[3]["action"] for row in rows])
    assert np.median(steps) == pytest.approx(0.05, abs=0.005)
    assert recording.node.store_s[0] < 0.2

    # On a real arm it stays armed, and START records the next one at once.
    recording.record()
    recording.steps(2)
    recording.press(E.QUIT)
    recording.until(Phase.ENDED)
    recording.settled()
    assert recording.node.done and len(paper.episodes) == 1 and paper.discarded == 1
    assert recording.node.error is None


def test_where_the_filter_changes_a_target_the_executed_action_is_stored(recording: Recording) -> None:
    hand, paper, points = recording.hand, recording.paper, SetPoints(CONTRACT)
    recording.record()
    hand.action = move(dx=1.0, gripper=1.0)  # into the border of the workspace: dx points forward at home
    forward = CONTRACT.robot.chain.forward(HOME[None])[1][0][:, 0]
    assert forward[0] > 0.9
    recording.steps(30)
    hand.action = move(rz=-1.0, gripper=1.0)
    recording.steps(2)
    recording.press(E.FAILURE)
    recording.until(Phase.READY)
    recording.settled()
    ((facts, rows),) = paper.episodes
    assert facts["success"] is False and facts["terminated"] is True
    actions = np.array([row[1] for row in rows])
    asked = (actions == move(dx=1.0, gripper=1.0)).all(1)
    assert asked[:5].sum() >= 3 and not asked[20:28].any()
    assert np.abs(actions[20:28, :6]).max() < 0.2, "it waited at the border, and that is what is stored"
    q = np.array([row[0]["proprio"][:7] for row in rows], np.float64)
    reached = points.target(q[25], actions[25])[:7]
    assert np.abs(reached - q[25]).max() < 5e-3


def test_a_target_clamped_to_the_joint_box(recording: Recording) -> None:
    hand, paper, points = recording.hand, recording.paper, SetPoints(CONTRACT)
    # Turning this way moves the last joint up, to its tightened limit.
    turn = 1.0 if points.target(HOME, move(rz=1.0))[6] > HOME[6] else -1.0
    recording.record()
    hand.action = move(rz=turn, gripper=1.0)
    recording.steps(20)
    recording.press(E.SUCCESS)
    recording.until(Phase.READY)
    recording.settled()
    ((_, rows),) = paper.episodes
    q = np.array([row[0]["proprio"][:7] for row in rows], np.float64)
    limit = CONTRACT.limits.upper[6]
    assert q[-1][6] == pytest.approx(limit - 1e-3, abs=2e-3)
    last = rows[-2]
    assert points.target(q[-2], move(rz=turn, gripper=1.0))[6] > limit + 0.01, "asked for"
    assert points.target(q[-2], last[1])[6] < limit + 0.01 and abs(last[1][5]) < 0.5, "done"


def test_a_hand_at_rest_holds_the_arm_though_its_controller_gives_way(recording: Recording) -> None:
    hand, arm = recording.hand, recording.station.arm
    arm.sag = 0.003
    recording.record()
    hand.action = move(gripper=1.0)
    recording.steps(3)
    begun = len(arm.commands)
    recording.steps(20)
    assert arm.moved(begun) < 0.005, "not 0.003 rad more with every step"
    recording.press(E.SUCCESS)
    recording.settled()
    wait_until(lambda: recording.paper.episodes, WAIT_S, "the episode")
    ((_, rows),) = recording.paper.episodes
    held = np.array([row[1] for row in rows])[5:-2]
    assert 0 < np.abs(held[:, :6]).max() < 0.6 and np.ptp(held, axis=0).max() < 0.05, "what holding took"


def test_letting_go_of_the_dead_man_drops_the_episode_and_start_goes_on(recording: Recording) -> None:
    hand, paper, node = recording.hand, recording.paper, recording.node
    hand.engaged = False
    recording.press(E.START)
    wait_until(lambda: "dead-man" in node.episodes.message, WAIT_S, "to be told")
    assert node.episodes.phase is Phase.PREPARING
    hand.engaged = True
    recording.until(Phase.READY)
    recording.record()
    hand.action = move(dx=-0.5, gripper=1.0)
    recording.steps(5)
    hand.engaged = False
    recording.until(Phase.WAITING)
    wait_until(lambda: node.report.state == "latched", WAIT_S, "the latch")
    assert "dead-man" in node.episodes.message and "episode 1 dropped" in node.episodes.message
    commands = silence(recording.station.arm.commands)
    hand.engaged = True
    time.sleep(0.5)
    assert len(recording.station.arm.commands) == commands, "nothing moves by itself again"
    recording.settled()
    assert paper.discarded == 1 and not paper.episodes and not paper.rows
    recording.record()
    recording.steps(3)
    recording.press(E.SUCCESS)
    recording.settled()
    wait_until(lambda: len(paper.episodes) == 1, WAIT_S, "the episode")


def test_a_start_before_a_stop_does_not_arm_after_it(recording: Recording) -> None:
    node, paper = recording.node, recording.paper
    stored = threading.Event()

    def wait() -> None:
        stored.wait(WAIT_S)

    paper.on_end = wait
    recording.record()
    recording.steps(3)
    recording.press(E.SUCCESS, E.START)
    wait_until(lambda: not recording.hand.events, WAIT_S, "START to be kept until the episode is stored")
    recording.station.estop()
    recording.until(Phase.WAITING)
    stored.set()
    recording.settled()
    time.sleep(0.5)
    assert node.episodes.phase is Phase.WAITING and node.report.state == "latched", "nothing resets itself"
    assert "e-stop pressed" in node.status.message
    recording.record()


def test_a_latch_is_shown_and_only_a_start_that_saw_it_resets_it(recording: Recording) -> None:
    node, hand, station = recording.node, recording.hand, recording.station
    seeing, show = threading.Event(), hand.show

    def look(status: Status) -> None:
        seeing.wait(WAIT_S)
        show(status)

    seeing.set()
    hand.show = look
    station.estop()
    wait_until(lambda: "e-stop pressed" in hand.shown[-1].message, WAIT_S, "the latch to be shown")
    recording.record()
    recording.press(E.DISCARD)
    wait_until(lambda: "START begins anew" in hand.shown[-1].message, WAIT_S, "to be told")
    wait_until(lambda: node.report.state == "disarmed", WAIT_S, "a planned stop")

    seeing.clear()
    station.estop()
    wait_until(lambda: node.report.state == "latched", WAIT_S, "the latch")
    recording.press(E.START)  # of somebody who still reads that START begins anew
    wait_until(lambda: "START tries again" in node.episodes.message, WAIT_S, "a refusal")
    assert "e-stop pressed" in node.episodes.message and node.report.state == "latched"
    seeing.set()
    wait_until(lambda: "START tries again" in hand.shown[-1].message, WAIT_S, "the refusal to be shown")
    recording.record()


@pytest.mark.parametrize("fault", ["silent", "frozen"])
def test_a_camera_that_cannot_be_believed_drops_the_episode(
    recording: Recording, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teleop_node, "ANSWER_S", 1.5)
    hand, arm, node = recording.hand, recording.station.arm, recording.node
    recording.record()
    hand.action = move(dy=-0.5, gripper=1.0)
    recording.steps(3)
    if fault == "silent":
        arm.films = False
    else:
        arm.changes = False
    recording.until(Phase.WAITING)
    assert "camera front on /camera/front/image_raw" in node.episodes.message and fault in node.episodes.message
    wait_until(lambda: node.report.state == "disarmed", WAIT_S, "a planned stop")
    recording.settled()
    assert recording.paper.discarded == 1 and not recording.paper.episodes
    if fault == "silent":  # START is refused while it lasts, and says why
        recording.press(E.START)
        wait_until(lambda: "START tries again" in node.episodes.message, WAIT_S, "a refusal")
        assert "silent" in node.episodes.message
    arm.films = arm.changes = True
    hand.action = None
    recording.record()
    recording.steps(2)


def test_a_full_disk_ends_the_session_with_one_line(recording: Recording) -> None:
    paper, node = recording.paper, recording.node
    for _ in range(3):  # a busy machine may drop an episode
        recording.record()
        recording.steps(3)
        recording.press(E.SUCCESS)
        recording.until(Phase.READY)
        recording.settled()
        if paper.episodes:
            break

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/file-000.parquet")

    paper.on_end = full
    recording.record()
    recording.steps(3)
    recording.press(E.SUCCESS)
    recording.until(Phase.ENDED)
    assert isinstance(node.error, RobolearnError)
    assert str(node.error) == "episode 2 could not be stored: No space left on device: data/file-000.parquet"
    assert node.done and len(paper.episodes) == 1 and node.episodes.recorded == 1
    assert paper.discarded == 0


def test_steps_that_the_disk_refuses_are_left_to_the_writer(recording: Recording) -> None:
    paper, node = recording.paper, recording.node

    def full() -> None:
        if len(paper.rows) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), ".running/rows.journal")

    paper.on_add = full
    recording.record()
    recording.until(Phase.ENDED)
    assert str(node.error) == "episode 1 could not be stored: No space left on device: .running/rows.journal"
    wait_until(lambda: node._jobs.empty(), WAIT_S, "the end of what was to be stored")
    assert paper.discarded == 0 and len(paper.rows) == 3 and not paper.episodes


def test_a_writer_that_is_slow_never_holds_up_the_arm(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_node, "BEHIND_S", 0.5)
    paper, arm = recording.paper, recording.station.arm
    paper.on_add = lambda: time.sleep(0.3)
    recording.record()
    begun = len(arm.commands)
    recording.until(Phase.WAITING)
    assert "behind" in recording.node.episodes.message
    gaps = np.diff([at for at, _ in arm.commands[begun:]])
    assert gaps.max() < 0.1, gaps.max()
    paper.on_add = lambda: None
    recording.settled()
    assert paper.discarded == 1


def test_a_device_that_fails_stops_the_arm_and_ends_the_session(recording: Recording) -> None:
    recording.record()
    recording.hand.fault = RobolearnError("hand: unplugged")
    recording.until(Phase.ENDED)
    assert str(recording.node.error) == "hand: unplugged"
    wait_until(lambda: recording.node.report.state in ("disarmed", "latched"), WAIT_S, "rest")
    recording.settled()
    assert recording.paper.discarded == 1


def test_teleoperation_without_a_recording(station: Station) -> None:
    hand = Hand()
    station.arm.q = HOME.copy()
    station.arm.monitor.new_motion()
    hosted = Hosted(lambda context: TeleopNode(lambda *_: hand, contract=CONTRACT, context=context, overrides=PRIORITY))
    node = hosted.node
    try:
        wait_until(lambda: hasattr(node, "status"), WAIT_S, "the node to be configured")
        wait_until(lambda: node.episodes.phase is Phase.WAITING, WAIT_S, "everything to be there")
        follow(node, hand)
        begun = len(station.arm.commands)
        hand.action = move(dx=-0.5, gripper=1.0)
        wait_until(lambda: station.arm.moved(begun) > 0.01, WAIT_S, "motion")
        hand.events.append(E.DISCARD)
        wait_until(lambda: node.report.state == "disarmed", WAIT_S, "a planned stop")
        hand.events.append(E.QUIT)
        hosted.thread.join(WAIT_S)  # by itself
        assert not hosted.thread.is_alive()
    finally:
        hosted.close()
    assert hand.closed
