"""A late chunk is continued from where the arm is by now: by hand, and judged by where MuJoCo has the arm."""

from __future__ import annotations

import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from fault_rig import CONTRACT, CONTROL, STEP, FaultRig

from hardware.execution.chunk_buffer import ActionChunkBuffer
from robots.chunk_execution import ASKEW, ActionParts, ExecutedActions, continued
from robots.control import DELTA_POS

NAMES = ("dx", "dy", "dz", "rx", "ry", "rz", "gripper")


def straight(steps: int, **step: float) -> NDArray[np.float64]:
    """(T, Da) the same displacement in each step; the gripper opens by a tenth in each."""
    chunk = np.zeros((steps, 7))
    for name, value in step.items():
        chunk[:, NAMES.index(name)] = value
    chunk[:, 6] = np.arange(steps) / 10
    return chunk


def place(**done: float) -> NDArray[np.float64]:
    return np.array([done.get(name, 0.0) for name in NAMES])


def column(chunk: NDArray, name: str) -> list[float]:
    return [round(float(value), 5) for value in chunk[:, NAMES.index(name)]]


PARTS = ActionParts.named(NAMES, displacements=True)


def rest(chunk: NDArray, executed: NDArray, elapsed: float, **blended: NDArray) -> NDArray:
    length, first = len(chunk), int(elapsed)
    made, _ = continued(
        chunk[None],
        executed[None],
        np.array([elapsed]),
        PARTS,
        steps=length - first,
        last=length,
        places=ASKEW,
        **blended,
    )
    return made[0]


# --- what was executed --------------------------------------------------------------------------------------------


def test_what_was_executed_counts_by_its_time() -> None:
    """From 10.05: half of the first, the second, nothing after its end, a fifth of the third."""
    executed = ExecutedActions(0.1, 8)
    for at, value in ((10.0, 0.2), (10.1, 0.4), (10.3, 1.0)):
        executed.add(at, np.array([value, -value]))
    assert executed.since(10.05, 10.32, 2) == pytest.approx([0.1 + 0.4 + 0.2, -0.7])
    assert executed.since(9.0, 11.0, 2) == pytest.approx([1.6, -1.6])
    assert executed.since(10.4, 11.0, 2) == pytest.approx([0, 0])


def test_an_action_ends_where_the_next_begins() -> None:
    executed = ExecutedActions(0.1, 8)
    executed.add(10.0, np.ones(1))
    executed.add(10.03, -np.ones(1))
    assert executed.since(10.0, 10.03, 1) == pytest.approx([0.3])
    assert executed.since(10.0, 10.05, 1) == pytest.approx([0.1])


# --- what goes on -------------------------------------------------------------------------------------------------


def test_an_arm_that_has_waited_leaves_nothing_out() -> None:
    chunk = rest(straight(8, dx=0.2), place(), 3.2)
    assert column(chunk, "dx") == [0.2] * 5 and column(chunk, "gripper") == [0.0, 0.1, 0.2, 0.3, 0.4]


def test_what_was_executed_as_predicted_goes_on_by_time() -> None:
    chunk = rest(straight(8, dx=0.2), place(dx=0.6), 3.0)
    assert column(chunk, "dx") == [0.2] * 5 and column(chunk, "gripper") == [0.3, 0.4, 0.5, 0.6, 0.7]


def test_an_arm_that_was_quicker_does_nothing_twice_and_stays_where_the_chunk_ends() -> None:
    """At 1.1 it is 5.5 steps along: .2 to 6.5, .2 to 7.5, .1 to the end at 1.6."""
    chunk = rest(straight(8, dx=0.2), place(dx=1.1), 3.0)
    assert column(chunk, "dx") == [0.2, 0.2, 0.1, 0.0, 0.0]
    assert column(chunk, "gripper") == [0.6, 0.7, 0.7, 0.7, 0.7]


def test_an_arm_beside_the_path_comes_back_as_quickly_as_actions_can() -> None:
    chunk = rest(straight(8, dx=0.2), place(dx=0.6, dy=1.5, rz=0.4), 3.0)
    assert column(chunk, "dy") == [-1.0, -0.5, 0.0, 0.0, 0.0] and column(chunk, "rz") == [-0.4, 0, 0, 0, 0]
    assert column(chunk, "dx") == [0.2] * 5


def test_how_far_along_it_is_does_not_depend_on_rotations() -> None:
    """At three steps of translation without any of the rotation: it is at step 3, and turns what is missing."""
    chunk = rest(straight(8, dx=0.2, rz=0.3), place(dx=0.6), 3.0)
    assert column(chunk, "gripper") == [0.3, 0.4, 0.5, 0.6, 0.7] and column(chunk, "rz") == [1.0, 0.5, 0.3, 0.3, 0.3]


def test_where_the_path_stands_still_time_goes_on() -> None:
    """It closes the gripper for five steps, without a motion: three of them are over."""
    chunk = straight(8)
    chunk[5:, 2] = 0.5
    after = rest(chunk, place(), 3.0)
    assert column(after, "gripper") == [0.3, 0.4, 0.5, 0.6, 0.7] and column(after, "dz") == [0, 0, 0.5, 0.5, 0.5]


def test_what_is_blended_counts_as_it_is_executed() -> None:
    """Half of the first action is another's, that stands: what it lacks is done in the next."""
    weight = np.array([0.5, 1.0, 1.0, 1.0])[:, None]
    halves = rest(straight(4, dx=0.2), place(), 0.5, old=np.zeros((4, 7)), weight=weight)
    assert column(halves, "dx") == [0.1, 0.3, 0.2, 0.2]


def test_the_stream_continues_displacements_and_nothing_else() -> None:
    """.12 s late, at rest: of displacements the first is due, of joint positions the third."""
    for relative, expected in ((True, 0.1), (False, 0.3)):
        stream = ActionChunkBuffer(NAMES, 0.05, relative=relative, clock=lambda: 100.0)
        chunk = straight(4)
        chunk[:, 0] = 0.1 + 0.1 * np.arange(4)
        stream.accept(5.0, 5.12, NAMES, chunk, np.arange(4) * 0.05)
        step = stream.step()
        assert step is not None and step.index == 2 and step.action[0] == pytest.approx(expected)


# --- judged by MuJoCo ---------------------------------------------------------------------------------------------


class Wavering:
    """A policy that goes straight to a place, and predicts twelve steps of it that are quick and slow in turns.

    It looks at where MuJoCo has the last link.
    """

    def __init__(self, rig: FaultRig, way: float) -> None:
        spec = CONTRACT.robot
        self.model = mujoco.MjModel.from_xml_path(str(spec.mjcf))
        self.data = mujoco.MjData(self.model)
        self.rig, self.way = rig, way
        self.begin = self.pose()

    def pose(self) -> tuple[NDArray, NDArray]:
        for name, value in zip(CONTRACT.robot.joints, self.rig.arm_q, strict=True):
            self.data.joint(name).qpos[0] = value
        mujoco.mj_kinematics(self.model, self.data)
        body = int(self.model.joint(CONTRACT.robot.joints[-1]).bodyid[0])
        return self.data.xpos[body].copy(), self.data.xmat[body].reshape(3, 3).copy()

    def gone(self) -> float:
        """Along the tool's z as it was [m]."""
        return float((self.pose()[0] - self.begin[0]) @ self.begin[1][:, 2])

    def __call__(self, call: int) -> NDArray[np.float64]:
        left = (self.way - self.gone()) / DELTA_POS
        speed = (0.4, 0.1)[call % 2]
        chunk = np.zeros((12, CONTROL.spec.size))
        for row in chunk:
            row[2] = np.clip(left, -speed, speed)
            left -= row[2]
        return chunk


@pytest.mark.long
def test_a_policy_that_is_late_and_wavers_comes_to_rest_where_it_wants_to() -> None:
    """Five steps late; cut by time, what a slow prediction still has to do had been done by a quick one."""
    rig = FaultRig()
    rig.latency = 5 * STEP
    rig.run(0.3)
    rig.act = policy = Wavering(rig, 0.08)
    rig.arm()
    way = []
    for _ in range(100):
        rig.run(STEP)
        way.append(policy.gone())
    assert rig.filter.state.name == "ARMED", rig.filter.reason
    assert max(way) < 0.085 and np.abs(np.array(way[-10:]) - 0.08).max() < 0.003, np.round(way, 4)
    assert rig.monitor.summary()["violations"] == 0
