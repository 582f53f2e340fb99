"""The actor on an arm, on a fake clock: the safety supervisor, a limit monitor, a hand, a policy, and a learner's line.

What reached the outbox is read back and judged against the commands that the arm was given.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware"))
from recording_rig import CONTRACT, TCP, Hand, RecordingRig

from hardware.execution.setpoints import SetPoints
from hardware.recording.episodes import Phase
from hardware.safety import SafetyState
from hardware.teleop.chunk_player import ChunkPlayer
from hardware.teleop.device import EpisodeEvent as E
from hardware.teleop.supervised import Supervised
from robolearn.core import BadInput, Score, Window
from robolearn.data.replay import End, RecordSchema, ReplayStep
from robolearn.hil.actor import Periods
from robolearn.hil.arm_recording import HilRecording, LearnedPolicy, OutboxWriter
from robolearn.hil.learner_service import LearnerProgress, Period
from robolearn.hil.outbox import Outbox
from robolearn.rewards.online import OnlineDone

INTERFACE = CONTRACT.interface
SCHEMA = RecordSchema(dataclasses.replace(INTERFACE, observation={"proprio": INTERFACE.observation["proprio"]}))
NAMES = INTERFACE.action.names
DX = NAMES.index("dx")


def move(**parts: float) -> np.ndarray:
    return np.array([parts.get(name, 0.0) for name in NAMES], np.float32)


class LinkState:
    """A learner that answers, or does not."""

    period, progress = Period(50.0, 51.0, 9), LearnerProgress(env_steps=10, updates=5)
    finished, alive = False, True
    notified = 0

    def notify(self) -> None:
        self.notified += 1


class Sets:
    version, loaded = 3, True


class Player:
    """A policy that moves along −x."""

    wanted: np.ndarray | None = move(dx=-0.3, gripper=-1.0)
    lives, stopped = 0, ""

    def begin(self) -> None:
        self.lives += 1

    def action(self, observation: Any) -> np.ndarray | None:
        return self.wanted

    def later(self) -> None: ...

    asked = ChunkPlayer.asked

    def close(self) -> None: ...


class Page:
    """A console without a page."""

    def __init__(self) -> None:
        self.asks: deque[Any] = deque()
        self.shown: list[Any] = []

    def show(self, status: Any) -> None:
        self.shown.append(status)

    def poll(self) -> list[Any]:
        return [self.asks.popleft() for _ in range(len(self.asks))]


class Rig(RecordingRig):
    """The rig of a recording, its writer an outbox."""

    def __init__(self, folder: Path, done: OnlineDone | None = None, labels: Any = None, **options: Any) -> None:
        self.line, self.page, self.periods = LinkState(), Page(), Periods()
        self.outbox = Outbox(folder, "arm", SCHEMA)
        self.writer = OutboxWriter(self.outbox, ("proprio",), self.line)
        self.supervised: Supervised

        def wrap(hand: Hand) -> Supervised:
            hand.engaged = False
            self.supervised = Supervised(hand, Player(), INTERFACE, hand.clock)  # type: ignore[arg-type]
            return self.supervised

        make = partial(
            HilRecording, link=self.line, buffered=Sets(), hold=lambda on: self.supervised.hold(on),
            periods=self.periods, console=self.page, done=done, words="go left", labels=labels,
        )  # type: ignore[arg-type]  # fmt: skip
        super().__init__(wrap=wrap, make=make, paper=self.writer, **{"episodes": 10**9, **options})
        self.until(lambda: self.phase is Phase.WAITING)

    def episodes(self) -> list[tuple[list[ReplayStep], End | None]]:
        found: list[tuple[list[ReplayStep], End | None]] = []
        for record in self.outbox.read():
            if isinstance(record, End):
                found[-1] = (found[-1][0], record)
            elif record.index == 0:
                found.append(([record], None))
            else:
                found[-1][0].append(record)
        return found

    def help(self, steps: int = 10, **parts: float) -> None:
        self.hand.action, self.hand.engaged = move(**parts), True
        self.steps(steps)
        self.hand.engaged = False


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_an_intervention_is_stored_as_it_was_executed(rig: Rig) -> None:
    rig.record()
    rig.steps(10)
    rig.help(10, dx=0.2, gripper=1.0)
    rig.steps(10)
    assert 49.0 < rig.periods.measured().p50 < 51.0 and rig.periods.measured().count > 25
    rig.press(E.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()
    ((steps, end),) = rig.episodes()
    assert end is not None and end.terminated and end.success and not end.truncated
    flags = np.array([step.intervention for step in steps])
    edges = np.flatnonzero(np.diff(flags.astype(int)))
    assert len(edges) == 2 and abs(int(flags.sum()) - 10) <= 1
    dx = np.array([step.action[DX] for step in steps])
    assert np.allclose(dx[~flags][2 : edges[0]], -0.3, atol=0.02)
    assert abs(dx[flags][0]) < 0.02 and np.allclose(dx[flags][1:], 0.2, atol=0.02), "at rest first, then the hand's"
    assert [step.reward for step in steps] == [0.0] * (len(steps) - 1) + [1.0]
    assert [step.index for step in steps] == list(range(len(steps))) and end.length == len(steps)
    # The final observation is what was seen after the last step, never the step's own.
    assert not np.array_equal(end.observation["proprio"], steps[-1].observation["proprio"])
    assert rig.line.notified == len(steps) + 1 and rig.writer.interventions == int(flags.sum())
    assert rig.monitor.summary()["violations"] == 0, rig.monitor.summary()


def test_what_the_filter_made_of_it_is_what_is_stored(rig: Rig) -> None:
    """There are 5 cm of room in front of the tcp: the action executed there is not the one that was asked for."""
    rig.record()
    rig.help(60, dx=1.0, gripper=1.0)
    rig.press(E.FAILURE)
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()
    ((steps, end),) = rig.episodes()
    assert end is not None and end.terminated and not end.success and not any(step.reward for step in steps)
    asked = np.array([step.action[DX] for step in steps if step.intervention])
    assert asked.max() > 0.9 and np.abs(asked[-10:]).max() < 0.2, "at the wall nothing of it was executed"
    points = SetPoints(CONTRACT)
    for step in (s for s in steps[5:-5] if s.intervention):
        q = step.observation["proprio"][:7].astype(float)
        reached = CONTRACT.robot.chain.forward(points.wanted(q, step.action)[None, :7])[0][0]
        assert reached[0] < TCP[0] + 0.05 + 0.002


def test_a_stop_cuts_the_episode_and_start_arms_anew(rig: Rig) -> None:
    rig.record()
    rig.steps(20)
    rig.supervisor.filter.estop()
    rig.until(lambda: rig.phase is Phase.WAITING)
    assert rig.state in (SafetyState.BRAKING, SafetyState.LATCHED)
    rig.settled()
    commands = len(rig.commands)
    rig.run(2.0)
    assert rig.moved(commands) < 0.02 and rig.phase is Phase.WAITING, "nothing moves until the person says so"
    rig.record()
    rig.steps(10)
    rig.press(E.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()
    cut, end = [r for r in rig.outbox.read() if r.episode == 0], list(rig.outbox.read())[-1]
    assert not any(isinstance(r, End) for r in cut), "its outcome is unknown"
    assert len(cut) >= 17 and not any(r.reward for r in cut if isinstance(r, ReplayStep)), "learned from"
    assert isinstance(end, End) and end.success and end.episode == 1
    assert rig.monitor.summary()["violations"] == 0


class TwelveFrames:
    """Done from the twelfth frame on."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        assert list(prompts) == ["go left"]
        self.lengths.append(len(windows[0]))
        n = np.arange(1, len(windows[0]) + 1)
        return [Score(np.zeros(len(n), np.float32), np.zeros(len(n), np.float32), n >= 12, np.ones(len(n), np.float32))]


def test_a_reward_model_ends_each_episode_as_a_success(tmp_path: Path) -> None:
    """The twelfth frame and the two after it are done; the next episode is not ended by what was said of this one."""
    model = TwelveFrames()
    rig = Rig(tmp_path, OnlineDone([model], 20, 20, frames=3, waits=True))
    for number in range(2):
        rig.record()
        rig.until(lambda: rig.phase is Phase.READY, 5.0)
        rig.settled()
        steps, end = rig.episodes()[number]
        assert end is not None and end.terminated and end.success and not end.truncated
        assert 14 <= len(steps) <= 15 and [step.reward for step in steps] == [0.0] * (len(steps) - 1) + [1.0]
        assert model.lengths == list(range(1, model.lengths[-1] + 1)) and 14 <= len(model.lengths) <= 15
        model.lengths.clear()
    assert rig.monitor.summary()["violations"] == 0


def test_the_learner_is_dead_the_arm_holds(rig: Rig) -> None:
    rig.record()
    rig.steps(20)
    rig.line.alive = False
    rig.until(lambda: rig.phase is not Phase.RECORDING, 0.5)
    rig.settled()
    ((steps, end),) = rig.episodes()
    assert end is not None and end.truncated and len(steps) >= 17
    assert "learner" in rig.logic.status.message
    rig.run(1.0)
    commands = len(rig.commands)
    rig.run(2.0)
    assert rig.moved(commands) < 1e-6 and rig.state is not SafetyState.LATCHED, "it holds"
    rig.press(E.START)
    rig.run(1.0)
    assert len(rig.episodes()) == 1, "nothing is begun that nobody learns from"
    rig.line.alive = True
    rig.record()
    rig.steps(5)
    assert rig.phase is Phase.RECORDING and rig.monitor.summary()["violations"] == 0


def test_the_clock_ends_an_episode(tmp_path: Path) -> None:
    rig = Rig(tmp_path, limit_s=1.0)
    rig.record()
    rig.until(lambda: rig.phase is not Phase.RECORDING, 3.0)
    rig.settled()
    ((steps, end),) = rig.episodes()
    assert end is not None and end.truncated and not end.success and 15 <= len(steps) <= 20


def test_the_learner_is_done(rig: Rig) -> None:
    rig.record()
    rig.steps(5)
    rig.line.finished = True
    rig.until(lambda: rig.logic.done, 1.0)
    assert rig.logic.error is None


def test_a_page_takes_over_hands_back_labels_and_stops(rig: Rig) -> None:
    rig.record()
    rig.steps(10)
    rig.page.asks.append("take_over")
    rig.hand.action = None  # the device is at rest, its dead-man off
    rig.steps(5)
    assert rig.logic.sample.intervention and rig.page.shown[-1].operator is True
    rig.page.asks.append("hand_back")
    rig.steps(5)
    assert not rig.logic.sample.intervention and rig.page.shown[-1].operator is False
    rig.page.asks.append("success")
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()
    rig.run(0.2)
    assert rig.page.shown[-1].operator is None
    rig.record()
    rig.steps(10)
    rig.page.asks.append("stop")
    rig.until(lambda: rig.state is not SafetyState.ARMED, 1.0)
    for _ in range(3):
        rig.page.asks.append("stop")  # the page repeats it as long as it lasts
        rig.press(E.START)
        rig.run(0.5)
    commands = len(rig.commands)
    rig.run(0.5)
    assert rig.moved(commands) < 1e-6, "no START moves an arm that somebody has stopped"
    rig.page.asks.append("release")
    rig.run(0.2)
    rig.record()
    (first, one), (_, two), *_ = rig.episodes()
    held = [step for step in first if step.intervention]
    assert 4 <= len(held) <= 6 and np.abs([step.action[:6] for step in held[1:]]).max() < 0.05
    assert one is not None and one.success and two is None, "a stop leaves the outcome open"
    assert rig.monitor.summary()["violations"] == 0


def test_the_policy_rests_while_a_person_puts_the_arm_in_its_place(rig: Rig) -> None:
    rig.follow(Phase.READY)
    rig.run(0.5)
    commands = len(rig.commands)
    rig.run(1.0)
    assert rig.moved(commands) < 1e-6
    rig.record()
    rig.steps(20)
    assert rig.moved(commands) > 0.01


def test_a_second_actor_is_refused_and_spares_what_the_first_is_writing(tmp_path: Path) -> None:
    first = Outbox(tmp_path, "arm", SCHEMA)
    with (tmp_path / "arm.transitions").open("ab") as file:
        file.write(b"\x30\x00\x00\x00 half a record")  # the first is in the middle of an append
    before = (tmp_path / "arm.transitions").read_bytes()
    with pytest.raises(BadInput, match="actor 'arm': got in use by process"):
        Outbox(tmp_path, "arm", SCHEMA)
    assert (tmp_path / "arm.transitions").read_bytes() == before
    first.close()
    Outbox(tmp_path, "arm", SCHEMA).close()
    assert (tmp_path / "arm.transitions").read_bytes() == b"", "nobody writes: what a kill tore is cut"


def test_an_actor_that_comes_back_begins_another_episode(rig: Rig, tmp_path: Path) -> None:
    rig.record()
    rig.steps(20)
    rig.run(0.2)
    assert len(rig.outbox) > 10
    rig.outbox.close()  # killed
    again = Outbox(tmp_path, "arm", SCHEMA)
    writer = OutboxWriter(again, ("proprio",), rig.line)
    seen = {"proprio": np.zeros(INTERFACE.observation["proprio"].shape, np.float32)}
    for _ in range(3):
        writer.add(seen, move())
    writer.end(success=False, truncated=True)
    *_, step, _, end = again.read()
    assert (step.episode, step.index) == (1, 0) and isinstance(end, End) and end.length == 2
    for rows in (0, 1):  # no step was made of these: no episode either
        count = len(again)
        for _ in range(rows):
            writer.add(seen, move())
        writer.discard()
        assert len(again) == count
    again.close()


def test_chunks_are_those_of_the_newest_weights() -> None:
    class Two:
        asked: list[str]

        def __init__(self) -> None:
            self.asked = []

        def swap(self) -> None:
            self.asked.append("swap")

        def act(self, observation: Any) -> np.ndarray:
            self.asked.append("act")
            return np.full((4, len(NAMES)), 0.25, np.float32)

        def seed(self, seed: int) -> None:
            self.asked.append(f"seed {seed}")

    two = Two()
    policy = LearnedPolicy(two, INTERFACE, 4)  # type: ignore[arg-type]
    policy.reset(7)
    chunk = policy.act({})
    assert chunk.shape == (1, 4, len(NAMES)) and two.asked == ["seed 7", "swap", "act"]
    assert policy.execute_steps == 4
