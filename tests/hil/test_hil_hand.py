"""A person with a device in a simulated world: whose turn it is, what the first action is, labels, a page beside it."""

from __future__ import annotations

import os
import pty
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.teleop.device import EpisodeEvent as E
from hardware.teleop.device import Sample, Status
from hardware.teleop.keyboard import Keyboard
from hardware.teleop.wrapped import REST_S, Clutch, clutched
from robolearn.core import Interface
from robolearn.hil.agent import SteeredAgent
from robolearn.hil.device_operator import DeviceOperator
from robolearn.hil.learner_service import LearnerProgress, Period
from robolearn.hil.operator_console import ActorStatus
from robots import PANDA
from sim.registry import make_env

ALL = np.ones(1, np.bool_)
POLICY = np.array([0.1, 0, 0, 0, 0, 0, 0.7], np.float32)
STICK = np.array([0.0, 0.5, 0, 0, 0, 0, -1.0], np.float32)


class Stick:
    """A device with a dead-man in the hand of a test; its stick is always held askew."""

    name = "stick"

    def __init__(self) -> None:
        self.action: np.ndarray | None = STICK
        self.engaged, self.released = False, True
        self.events: deque[E] = deque([E.START])
        self.shown: list[Status] = []
        self.asked: list[Any] = []
        self.preparations = 0

    def open(self) -> None: ...
    def close(self) -> None: ...

    def sample(self, observation: Any) -> Sample:
        self.asked.append(observation)
        events = (self.events.popleft(),) if self.events else ()
        return Sample(self.action, self.engaged, events, 0.0, "", released=self.released)

    def prepared(self) -> None:
        self.preparations += 1

    def show(self, status: Status) -> None:
        self.shown.append(status)


class Pressed:
    """A page whose buttons are pressed by a test."""

    def __init__(self) -> None:
        self.asks: deque[Any] = deque()
        self.shown: list[ActorStatus] = []

    def show(self, status: ActorStatus) -> None:
        self.shown.append(status)

    def poll(self) -> list[Any]:
        return [self.asks.popleft() for _ in range(len(self.asks))]


class Loop:
    """World, agent and hand, one control step at a time, as the actor has them."""

    def __init__(self, device: Any, console: Any = None, action_kind: str = "tcp_delta") -> None:
        self.env = make_env("lift", 1, threads=1, action_kind=action_kind)
        self.hand = DeviceOperator(device, self.env.interface, PANDA, scene=self.env.scene, console=console)
        self.agent = SteeredAgent(self.env.interface, self._act, lambda: None, self._before)
        self.chunks = self.step_count = 0
        self.agent.start(self.hand)
        self.seen, _ = self.env.reset(seed=1)

    def _act(self, observation: Any, late: Any) -> np.ndarray:
        self.chunks += 1
        return np.stack([POLICY] * 4)

    def _before(self, observation: Any, steering: bool) -> Any:
        self.hand.show(
            ActorStatus(0, self.step_count, observation, steering, 1, Period(0, 0, 0), True, 0, LearnerProgress(),
                        self.agent.executed)
        )  # fmt: skip
        return self.hand.poll()

    def step(self) -> tuple[np.ndarray, bool]:
        decision = self.agent.decide(self.seen, ALL)
        self.step_count += 1
        self.seen, *_ = self.env.step(decision.chunk[:, 0])
        return decision.chunk[0, 0], decision.aux["intervention"]

    def steps(self, count: int) -> list[tuple[np.ndarray, bool]]:
        return [self.step() for _ in range(count)]


@pytest.fixture
def stick() -> Stick:
    return Stick()


def test_whoever_takes_over_begins_at_rest_with_the_gripper_as_it_was(stick: Stick) -> None:
    loop = Loop(stick)
    assert all(not helped and np.array_equal(a, POLICY) for a, helped in loop.steps(2))
    told = stick.preparations
    stick.engaged = True
    taken = loop.steps(3)
    assert all(helped for _, helped in taken)
    assert not taken[0][0][:6].any(), "the first action of the hand is no motion"
    for action, _ in taken[1:]:
        np.testing.assert_array_equal(action[:6], STICK[:6])
    assert {round(float(a[6]), 3) for a, _ in taken} == {0.7}, "the gripper as the policy left it"
    assert stick.preparations == told, "the device is told that something else moves the arm only while it does"
    stick.action = np.append(STICK[:6], 1.0).astype(np.float32)  # the person asks for something else
    assert loop.step()[0][6] == 1.0
    chunks = loop.chunks
    stick.engaged = False
    back = loop.steps(2)
    assert not any(helped for _, helped in back) and np.array_equal(back[0][0], POLICY)
    assert loop.chunks == chunks + 1 and stick.preparations > told, "the policy begins anew"
    stick.engaged = True
    assert not loop.step()[0][:6].any(), "and each take-over begins at rest"


def test_absolute_actions_begin_where_the_arm_is() -> None:
    stick = Stick()
    stick.action = np.full(8, 0.9, np.float32)
    loop = Loop(stick, action_kind="joint_position")
    loop._act = lambda observation, late: np.zeros((1, 8), np.float32)  # type: ignore[method-assign]
    loop.agent = SteeredAgent(loop.env.interface, loop._act, lambda: None, loop._before)
    loop.agent.start(loop.hand)
    loop.step()
    q = loop.seen["proprio"][0, :7].astype(float)
    stick.engaged = True
    first, helped = loop.step()
    wanted = 2.0 * (q - PANDA.lower) / (PANDA.upper - PANDA.lower) - 1.0
    assert helped and np.allclose(first[:7], wanted, atol=1e-5)
    assert np.allclose(loop.step()[0][:7], 0.9)


def test_start_is_waited_for_and_labels_end_episodes(stick: Stick) -> None:
    stick.events = deque()
    loop, done = Loop(stick), threading.Event()
    waiting = threading.Thread(target=lambda: (loop.step(), done.set()))
    waiting.start()
    assert not done.wait(0.3) and stick.shown[-1].state == "waiting" and stick.shown[-1].scene is not None
    stick.events.append(E.START)
    assert done.wait(5.0)
    waiting.join()
    for event, label in ((E.SUCCESS, "success"), (E.FAILURE, "failure"), (E.REDO, "return"), (E.QUIT, "quit")):
        loop.agent.start(loop.hand)
        loop.step()
        assert loop.agent.label is None and stick.shown[-1].state == "recording"
        stick.events.append(event)
        loop.step()
        assert loop.agent.label == label
    loop.agent.start(loop.hand)
    stick.events.extend([E.DISCARD, E.START])
    loop.step()
    assert loop.agent.label == "return"
    loop.agent.start(loop.hand)
    loop.step()
    assert not stick.events, "after DISCARD the next one waits for START"


def test_a_device_that_is_lost_in_the_hand_ends_the_episode(stick: Stick) -> None:
    loop = Loop(stick)
    loop.steps(2)
    stick.engaged = True
    loop.steps(2)
    stick.engaged, stick.released, stick.action = False, False, None
    action, helped = loop.step()
    assert loop.agent.label == "return" and helped and not action[:6].any(), "nothing is handed to the policy"
    loop.agent.start(loop.hand)
    stick.events.append(E.START)
    loop.step()
    assert not stick.events


@pytest.mark.long
def test_a_device_that_is_unplugged_ends_the_episode_whoever_moves_the_arm(stick: Stick) -> None:
    loop = Loop(stick)
    loop.steps(2)
    stick.gone, stick.released = "stick: unplugged", False  # type: ignore[attr-defined]
    action, helped = loop.step()
    assert loop.agent.label == "return" and helped and not action[:6].any()
    loop.agent.start(loop.hand)
    stick.events.append(E.START)  # from a terminal beside it
    done = threading.Event()
    waiting = threading.Thread(target=lambda: (loop.step(), done.set()))
    waiting.start()
    assert not done.wait(0.3) and stick.shown[-1].message == "stick: unplugged. Press Start when it is back"
    stick.gone = ""  # type: ignore[attr-defined]
    assert not done.wait(0.3), "START is pressed by somebody who sees that it is back"
    stick.events.append(E.START)
    assert done.wait(5.0)
    waiting.join()


def test_a_page_s_buttons_drive_the_hand(stick: Stick) -> None:
    page = Pressed()
    loop = Loop(stick, page)
    stick.action = None  # its dead-man is off, and so it says nothing
    loop.steps(2)
    page.asks.append("take_over")
    held = loop.steps(3)
    assert all(helped for _, helped in held) and not any(a[:6].any() for a, _ in held), "the arm waits for the hand"
    assert {round(float(a[6]), 3) for a, _ in held} == {0.7}
    stick.engaged, stick.action = True, STICK
    assert np.array_equal(loop.step()[0][:6], STICK[:6])
    stick.engaged = False
    assert loop.step()[1], "it is the person's until they hand back on the page"
    page.asks.append("hand_back")
    assert not loop.step()[1] and page.shown[-1].operator
    page.asks.append("success")
    loop.step()
    assert loop.agent.label == "success" and not page.shown[-1].operator


# --- a device without a dead-man ---------------------------------------------------------------------------------


class Clock:
    now = 5.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    person, program = pty.openpty()
    yield person, program
    for end in (person, program):
        os.close(end)


def keyboard(terminal: tuple[int, int], interface: Interface, clock: Any = time.monotonic) -> Keyboard:
    device = Keyboard(interface, PANDA, fd=terminal[1], clock=clock)
    device.open()
    return device


def test_a_clutch_is_a_latch_with_hysteresis(terminal: tuple[int, int]) -> None:
    env, clock = make_env("lift", 1, threads=1), Clock()
    seen, _ = env.reset(seed=1)
    one = {key: value[0] for key, value in seen.items()}
    device = keyboard(terminal, env.interface, clock)
    clutch = Clutch(device, clock=clock)
    first = clutch.sample(one)
    assert not first.engaged and first.released and first.stamp == clock.now, "it lives, and nobody takes over"
    os.write(terminal[0], b"w")
    time.sleep(0.05)
    assert clutch.sample(one).engaged
    clock.now += 0.5  # the pause before the key repeats
    assert clutch.sample(one).engaged and not device.moving
    os.write(terminal[0], b" ")
    time.sleep(0.05)
    assert clutch.sample(one).engaged
    clock.now += REST_S - 0.05
    assert clutch.sample(one).engaged
    clock.now += 0.1
    back = clutch.sample(one)
    assert not back.engaged and back.released, "at rest for a while, it hands back on purpose"
    os.write(terminal[0], b"a")
    time.sleep(0.05)
    assert clutch.sample(one).engaged
    device._watchdog.fail("the terminal is gone")
    gone = clutch.sample(one)
    assert not gone.engaged and gone.released is False
    device.close()
    assert isinstance(clutched(device), Clutch) and clutched(stick := Stick()) is stick


def test_a_keyboard_moves_the_tcp_in_the_frame_before_the_step(terminal: tuple[int, int]) -> None:
    """Forward is forward whatever way the hand has turned: R_before · a is along x of the base."""
    env = make_env("lift", 1, threads=1)
    device = keyboard(terminal, env.interface)
    os.write(terminal[0], b"\r")
    loop = Loop(clutched(device))

    def press(keys: bytes, count: int) -> list[tuple[np.ndarray, np.ndarray, bool]]:
        found = []
        for _ in range(count):
            os.write(terminal[0], keys)
            time.sleep(0.005)
            before = loop.seen["proprio"][0].astype(float)
            found.append((before, *loop.step()))
        return found

    press(b"o", 25)  # roll: the frame turns with every step
    turned = press(b"w", 12)
    x, y = turned[-1][0][11:14], turned[-1][0][14:17]
    assert abs(np.stack([x, y, np.cross(x, y)], -1)[2, 1]) > 0.2, "the hand is askew"
    for before, action, helped in turned[2:]:
        rotation = np.stack([before[11:14], before[14:17], np.cross(before[11:14], before[14:17])], -1)
        moved = rotation @ action[:3]
        assert helped and moved[0] > 0.2 and np.abs(moved[1:]).max() < 1e-5
    device.close()


def test_a_sample_of_the_clutch_is_the_device_s(stick: Stick) -> None:
    stick.moving, stick.engaged = True, True  # type: ignore[attr-defined]
    clutch, theirs = Clutch(stick, clock=Clock()), Sample(STICK, True, (E.START,), 0.0)  # type: ignore[arg-type]
    assert clutch.sample(None) == replace(theirs, stamp=5.0, released=None)
