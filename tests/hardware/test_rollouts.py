"""What is stored beside a policy: one row a target, what the filter accepted of it, outcomes, and what is dropped."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recording_rig import HOME, SIM, Paper

from hardware.observing.observer import Observer
from hardware.recording.rollouts import RolloutRecording
from hardware.recording.session import Job, Outcome, attempt

HZ = SIM.control_hz


class AtOnce:
    """A storage that does every job at once."""

    def __init__(self) -> None:
        self.outcomes: deque[Outcome] = deque()
        self.waiting = 0

    def put(self, job: Job, *, ends: bool = False) -> None:
        self.outcomes.extend(attempt(job, ends))

    def pending(self) -> int:
        return self.waiting


class Bench:
    """A recording on a clock of the test's, an arm at joints that it sets, and what was written."""

    def __init__(self) -> None:
        self.now, self.q, self.paper, self.storage = 100.0, HOME.copy(), Paper(), AtOnce()
        self.observer = Observer(SIM.with_cameras(()), ("proprio",), lambda: self.now)
        self.recording = RolloutRecording(self.observer, self.paper, "lift", self.storage)

    def at(self, q: np.ndarray) -> None:
        names = (*SIM.joints, *SIM.gripper_joints)
        self.q = q
        positions = [*q, *([0.02] * len(SIM.gripper_joints))]
        assert self.observer.joints.update(names, np.array(positions), self.now)

    def step(self, moves: float, accepted: float | None = None, dt: float = 1.0 / HZ) -> None:
        """The first joint is asked to move by `moves` [rad]; it is let go by `accepted`, and goes there."""
        self.now += dt
        self.at(self.q)
        self.recording.target(self.asked(moves), 1e9 + self.now)
        if accepted is not None:
            self.recording.accepted(self.asked(accepted))
            self.at_next = self.q + np.eye(len(self.q))[0] * accepted

    def asked(self, moves: float) -> np.ndarray:
        return np.append(self.q + np.eye(len(self.q))[0] * moves, 0.04)

    def go(self) -> None:
        self.q = self.at_next

    def episode(self, steps: int = 5, outcome: str = "success") -> None:
        self.recording.begin()
        self.recording.armed(True)
        for _ in range(steps + 1):
            self.step(0.01, 0.01)
            self.go()
        self.recording.armed(False)
        self.recording.end(outcome)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def turned(q: np.ndarray, by: float) -> tuple[np.ndarray, np.ndarray]:
    """The displacement of the tcp in its own frame, by a turn of the first joint about the vertical: by hand."""
    pos, rot = (one[0] for one in SIM.robot.chain.forward(q[None]))
    c, s = np.cos(by), np.sin(by)
    z = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    return rot.T @ (z @ pos - pos), rot.T @ np.array([0.0, 0.0, by])


def test_a_row_is_what_was_accepted_and_not_what_was_asked_for(bench: Bench) -> None:
    bench.recording.begin()
    bench.recording.armed(True)
    starts = []
    for asked, accepted in ((0.02, 0.02), (0.02, 0.01), (0.02, 0.0)):
        starts.append(bench.q.copy())
        bench.step(asked, accepted)
        bench.recording.target(bench.asked(asked), 1e9 + bench.now)  # streamed once more: no step of its own
        bench.go()
    bench.step(0.03)
    bench.recording.armed(False)
    bench.recording.end("success")
    ((facts, rows),) = bench.paper.episodes
    assert facts == {"success": True, "terminated": True, "truncated": False, "task": "lift"}
    assert [reward for _, _, reward, _ in rows] == [0.0, 0.0, 1.0] and len(rows) == 3
    scales = []
    for (observation, action, _, stamps), q, by in zip(rows, starts, (0.02, 0.01, 0.0), strict=True):
        np.testing.assert_allclose(observation["proprio"][: len(q)], q, atol=1e-6)
        shift, turn = turned(q, by)
        if by == 0.0:
            np.testing.assert_allclose(action[:6], 0.0, atol=1e-6)
            continue
        scales.append(np.linalg.norm(action[:3]) / np.linalg.norm(shift))
        assert action[:3] @ shift == pytest.approx(np.linalg.norm(action[:3]) * np.linalg.norm(shift), rel=1e-3)
        assert action[3:6] @ turn == pytest.approx(np.linalg.norm(action[3:6]) * by, rel=1e-3)
        assert stamps["action"] > 1e9
    assert scales[0] == pytest.approx(scales[1], rel=1e-3), "half as far is half the action"
    final = bench.paper.finals[0]
    assert final is not None
    np.testing.assert_allclose(final["proprio"][: len(bench.q)], bench.q, atol=1e-6)


def test_an_arm_that_stands_and_is_asked_for_the_same_has_its_steps(bench: Bench) -> None:
    bench.recording.begin()
    bench.recording.armed(True)
    ticks = 20  # of the stream, in a control step
    for _ in range(ticks * 10 + 1):
        bench.step(0.01, 0.0, dt=1.0 / HZ / ticks)
    bench.recording.end("timeout")
    ((_, rows),) = bench.paper.episodes
    assert len(rows) == 9, "ten steps, the last of which has not ended"


@pytest.mark.parametrize(
    ("outcome", "success", "terminated"),
    [("success", True, True), ("failure", False, True), ("timeout", False, False), ("stopped", False, False)],
)
def test_outcomes(bench: Bench, outcome: str, success: bool, terminated: bool) -> None:
    bench.episode(outcome=outcome)
    ((facts, rows),) = bench.paper.episodes
    assert (facts["success"], facts["terminated"], facts["truncated"]) == (success, terminated, not terminated)
    assert rows[-1][2] == float(success) and len(rows) == 5 and bench.recording.recorded == 1


def test_the_last_acceptance_before_the_next_target_counts(bench: Bench) -> None:
    bench.recording.begin()
    bench.recording.armed(True)
    bench.step(0.02, 0.02)
    bench.recording.accepted(bench.asked(0.0))  # at a border of the workspace: it stands
    bench.step(0.03)
    bench.step(0.02)  # that of before was not answered: the arm stands where it was let go to
    bench.recording.end("failure")
    ((_, rows),) = bench.paper.episodes
    np.testing.assert_allclose([row[1][:6] for row in rows], 0.0, atol=1e-6)


def test_nothing_is_stored_of_an_arm_that_moves_between_two_episodes(bench: Bench) -> None:
    bench.recording.armed(True)  # its way home
    for _ in range(4):
        bench.step(0.01, 0.01)
        bench.go()
    bench.recording.armed(False)
    bench.recording.end("success")
    assert not bench.paper.episodes and not bench.paper.rows and not bench.recording.dropped
    bench.episode()
    assert len(bench.paper.episodes) == 1


def test_an_episode_without_an_outcome_leaves_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.recording.begin()
    bench.recording.armed(True)
    for _ in range(4):
        bench.step(0.01, 0.01)
    bench.recording.armed(False)
    bench.episode()
    assert "not recorded: the next one began before it had an outcome" in caplog.text
    ((_, rows),) = bench.paper.episodes
    assert len(rows) == 5 and bench.recording.dropped == 1 and bench.paper.discarded == 1
    bench.recording.begin()
    bench.recording.cancel("it has no outcome (signal)")
    assert bench.recording.dropped == 2 and len(bench.paper.episodes) == 1


def test_what_cannot_be_right_is_left_out_and_said(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for wrong, words in (
        ("old", "no /joint_states for 0.30 s"),
        ("missed", "held up, 0.20 s behind, and missed 0.30 s of /joint_states"),
        ("blind", "joint"),
        ("behind", "behind"),
        ("slow", "stored"),
    ):
        bench.recording.begin()
        bench.recording.armed(True)
        for step in range(60):
            bench.step(0.01, 0.01, dt=1.5 / HZ if wrong == "slow" else 1.0 / HZ)
            bench.go()
            if step == 30:
                bench.storage.waiting = 10**6 * (wrong == "behind")
                bench.now += 30.0 * (wrong == "blind")
                old = "no /joint_states for 0.30 s" if wrong == "old" else ""
                bench.recording.target(bench.asked(0.3), 1e9 + bench.now, old)
                if wrong == "missed":
                    bench.recording.missed("0.30 s of /joint_states", 0.2)
                bench.storage.waiting = 0
        bench.recording.end("success")
        assert words in caplog.records[-1].message, (wrong, caplog.records[-1].message)
    assert bench.recording.dropped == 5 and not bench.paper.episodes
    bench.episode(1)
    bench.episode(0)  # armed and stopped at once
    assert len(bench.paper.episodes) == 1 and "no steps" in caplog.records[-1].message


def test_a_full_disk_is_an_error(bench: Bench) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    bench.paper.on_end = full
    bench.episode()
    bench.recording.look()
    assert isinstance(bench.recording.error, OSError)
