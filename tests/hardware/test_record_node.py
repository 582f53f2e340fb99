"""The recorder over real rclpy and DDS, its safety node a process; its logic is tested in `test_recording_in_time`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hardware.recording import Session, stamp_names
from hardware.recording import recording as recording_module
from hardware.recording.episodes import Phase
from hardware.ros2 import messages, qos
from hardware.ros2.process import wait_until
from hardware.ros2.record_node import RecordNode
from hardware.ros2.teleop_node import TeleopNode
from hardware.teleop.device import EpisodeEvent as E
from robolearn.core import RobolearnError
from robots.stations import CONTRACTS, IMAGE, load_contract

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from hosted import WAIT_S, Hosted  # noqa: E402
from recording_rig import HOME, SIM, TCP, Hand, Paper  # noqa: E402
from ros_station import Arm  # noqa: E402
from stopping import silence  # noqa: E402

pytestmark = [pytest.mark.realtime, pytest.mark.long]

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


class Lens(Arm):
    """The arm and a camera beside it."""

    def configure(self) -> None:
        self.films, self.changes, self.count, self.sag = True, True, 0, 0.0
        self.ticks = 0
        self.pictures = self.create_publisher(messages.Image, "/camera/front/image_raw", qos.sensor(2))
        super().configure()

    def _speak(self) -> None:
        held = self.q
        self.q = held - self.sag  # a controller that gives way
        super()._speak()
        self.q = held
        self.ticks += 1
        if self.films and self.ticks % 10 == 0:
            self.count += self.changes
            picture = np.full((16, 16, 3), 100 + self.count % 100, np.uint8)
            self.pictures.publish(messages.image(picture, 1e-9 * self.get_clock().now().nanoseconds))


class Station:
    """The arm here, its safety node as a process."""

    def __init__(self) -> None:
        self.hosted = Hosted(lambda context: Lens(CONTRACT, context=context))
        self.arm = self.hosted.node
        env = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "robolearn.deploy.nodes", "safety", "--contract", str(PATH)]
        command += ["--realtime-priority", str(PRIORITY["realtime_priority"])]
        self.safety = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)


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
        told = phase is Phase.WAITING and (pressed < 0.0 or "ress Start" in node.session.status.message)
        if (told or phase is Phase.READY) and not hand.events and now - pressed > 0.3:
            hand.events.append(E.START)
            pressed = now
        if now > end:
            pytest.fail(f"waited {WAIT_S:g} s for {wanted}: {node.session.status}")
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
        wait_until(lambda: self.node.session, WAIT_S, "the node to be configured")
        self.until(Phase.WAITING, 60.0)

    def until(self, phase: Phase, limit_s: float = WAIT_S) -> None:
        try:
            wait_until(lambda: self.node.episodes.phase is phase, limit_s, phase)
        except RobolearnError as error:
            pytest.fail(f"{error}: {self.node.session.status}")

    def settled(self) -> None:
        wait_until(lambda: not self.node.episodes.saving, WAIT_S, "the episode at hand to be saved")

    def press(self, *events: E) -> None:
        for event in events:
            self.hand.events.append(event)

    def record(self) -> None:
        """Up to where rows are stored."""
        follow(self.node, self.hand, Phase.RECORDING)

    def steps(self, count: int) -> None:
        first = self.node.session.step_count
        try:
            wait_until(lambda: self.node.session.step_count >= first + count, WAIT_S, f"{count} steps")
        except RobolearnError as error:
            pytest.fail(f"{error}: {self.node.session.status}")

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
    assert recording.node.recording.store_s[0] < 0.2

    # On a real arm it stays armed, and START records the next one at once.
    recording.record()
    recording.steps(2)
    recording.press(E.QUIT)
    recording.until(Phase.ENDED)
    recording.settled()
    assert recording.node.done and len(paper.episodes) == 1 and paper.discarded == 1
    assert recording.node.error is None


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


def test_a_writer_that_is_slow_never_holds_up_the_arm(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "BEHIND_S", 0.5)
    paper, arm = recording.paper, recording.station.arm
    paper.on_add = lambda: time.sleep(0.3)
    dropped, why = 0, ""
    while "behind" not in why and dropped < 3:  # a machine that stands still drops an episode for another reason
        recording.record()
        begun = len(arm.commands)
        recording.until(Phase.WAITING)
        recording.settled()
        dropped, why = dropped + 1, recording.node.episodes.message
    assert "behind" in why
    gaps = np.diff([at for at, _ in arm.commands[begun:]])
    assert gaps.max() < 0.1, gaps.max()
    assert paper.discarded == dropped


def test_a_device_that_fails_stops_the_arm_and_ends_the_session(recording: Recording) -> None:
    recording.record()
    recording.hand.fault = RobolearnError("hand: unplugged")
    recording.until(Phase.ENDED)
    wait_until(lambda: recording.node.error, WAIT_S, "what it ended by")  # the session's end comes first
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
        wait_until(lambda: node.session, WAIT_S, "the node to be configured")
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


def test_between_episodes_the_arm_goes_home_by_itself(station: Station) -> None:
    made = Recording(station, homes=True)
    try:
        made.open()
        made.record()
        made.hand.action = move(dy=-0.5, dz=-0.3)
        made.steps(25)
        made.hand.action = move()
        made.steps(4)
        assert np.abs(station.arm.q - HOME).max() > 0.1
        made.press(E.FAILURE)
        made.until(Phase.READY)
        wait_until(lambda: "the arm is home" in made.node.episodes.message, WAIT_S, "the arm to be home")
        assert np.abs(station.arm.q - HOME).max() < 0.01 and made.node.report.state == "armed"
    finally:
        made.close()
