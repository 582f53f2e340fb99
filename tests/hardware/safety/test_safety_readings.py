"""Joint states that are no readings of now: encoders with noise that stand, arms that leap; and what only looks so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import pytest

from hardware.calibration.motion import drive
from hardware.safety import SafetyState
from hardware.safety.readings import EncoderNoise, Leap
from hardware.safety.supervisor import SafetySupervisor
from robots import PANDA
from robots.excitation import excitation
from robots.motion_log import MotionLog
from robots.stations import load_contract
from sim.realtime import RealtimeWorld

CONTRACT = load_contract("sim")
HOME = np.array(CONTRACT.robot.home)
PERIOD = 1.0 / CONTRACT.stream_hz
TIMEOUT_S = 0.1
SD = 5e-5  # [rad] of encoders


def noisy(q: np.ndarray, seed: int = 0, sd: float = SD) -> np.ndarray:
    return q + sd * np.random.default_rng(seed).standard_normal(q.shape)


def rested(q: Iterable[np.ndarray], period: float = PERIOD, publisher: Callable[[int], str] = lambda k: "driver"):
    """Noise as it is learned of an arm that rests at each of q (n,), and the time."""
    noise, now = EncoderNoise(TIMEOUT_S), 100.0
    for k, one in enumerate(q):
        now += period
        noise.rest(one, now, publisher(k))
    return noise, now


def stood(noise: EncoderNoise, now: float, q: np.ndarray, seconds: float = 1.0, period: float = PERIOD) -> float:
    """After how long [s] an armed arm that is measured at the same q again and again is found frozen; inf: never."""
    for k in range(1, round(seconds / period) + 1):
        if noise.stands(q, now + k * period):
            return k * period
    return np.inf


FLICKER = np.random.default_rng(0).integers(0, 2, (400, 7)) * (np.arange(7) < 3)
STILL = np.tile(HOME, (400, 1))
T = PERIOD * np.arange(400)[:, None]


def test_encoders_with_noise_that_stand_are_as_good_as_silent() -> None:
    q = noisy(STILL)
    noise, now = rested(q)
    assert noise.level is not None and np.allclose(noise.level, np.sqrt(2.0) * SD, rtol=0.15), "of a difference of two"
    for k, one in enumerate(noisy(STILL[:40], 1)):
        assert not noise.stands(one, now + k * PERIOD)
    assert TIMEOUT_S <= stood(noise, now + 39 * PERIOD, one) < TIMEOUT_S + 2.1 * PERIOD
    slow, now = rested(noisy(STILL[:60], 2), 0.05)
    assert stood(slow, now, noisy(STILL[:60], 2)[-1], period=0.05) == pytest.approx(0.15), "three repetitions"


@pytest.mark.parametrize("seconds", [0.0, 0.9])
def test_noise_takes_a_second_and_many_messages_to_be_learned(seconds: float) -> None:
    few, _ = rested(noisy(STILL[: round(seconds / PERIOD)]))
    assert few.level is None
    rare, _ = rested(noisy(STILL[:28]), 0.05)
    assert rare.level is None


@pytest.mark.parametrize(
    ("what", "q"),
    [
        ("a simulation at rest", STILL),
        ("12 bits that flicker", HOME + 1.5e-3 * FLICKER),
        ("an arm that goes on", HOME + 0.1 * T),
        ("a slow swing", HOME + 0.1 * np.sin(3.0 * T)),
        ("a motion that ends", HOME + np.exp(-8.0 * T)),
        ("an oscillation that decays", HOME + 1e-3 * np.exp(-4.0 * T) * np.sin(400.0 * T)),
        ("less than any encoder has", noisy(STILL, sd=1e-7)),
    ],
)
def test_what_is_no_noise(what: str, q: np.ndarray) -> None:
    noise, now = rested(q)
    assert noise.level is None, what
    assert stood(noise, now, q[-1]) == np.inf, what


def test_an_arm_that_comes_to_a_stand_has_no_noise_whatever_it_looked_like() -> None:
    """An oscillation that takes long to decay looks like noise while it does; then the arm is where it stays."""
    noise, now = rested(HOME + 1e-3 * np.exp(-0.5 * T) * np.sin(400.0 * T))
    assert noise.level is not None
    for k in range(4000):
        now += PERIOD
        swing = 4e-4 * np.exp(-0.01 * k) * np.sin(2.0 * k)
        assert not noise.stands(np.round(HOME + swing, 9), now)
    assert stood(noise, now, HOME) == np.inf and noise.level is None


def test_a_repetition_at_rest_and_another_driver_take_it_back() -> None:
    q = noisy(STILL)
    again, now = rested([*q, q[-1]])
    assert again.level is None and stood(again, now, q[-1]) == np.inf
    before, _ = rested([*q, q[-7]])
    assert before.level is None, "where it was a moment ago"
    for k in range(1, 402):
        again.rest(noisy(HOME, 1000 + k), now + k * PERIOD, "driver")
    assert again.level is not None, "learned once more"
    other, _ = rested(noisy(STILL), publisher=lambda k: "driver" if k < 380 else "another")
    assert other.level is None
    moved, _ = rested([*q, *(noisy(HOME + 0.2 * T[:300])), *noisy(STILL, 5)])
    assert moved.level is not None, "a motion proves nothing"


class Desk:
    """A supervisor on a clock of its own; the arm is where it is commanded to, as `sees` sends it."""

    def __init__(self, sees: Callable[[np.ndarray, int], np.ndarray]) -> None:
        self.now, self.sees, self.at, self.ticks = 10.0, sees, HOME.copy(), 0
        self.goal = HOME
        self.supervisor = SafetySupervisor(CONTRACT, lambda: self.now, lambda: self.now)
        self.supervisor.streamers_alive(1, "targets")

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / PERIOD)):
            self.now += PERIOD
            self.ticks += 1
            self.supervisor.deadman(True)
            values = np.append(self.sees(self.at, self.ticks), 1e-3 * np.sin(self.now))  # a finger that moves
            self.supervisor.joint_state((*CONTRACT.joints, CONTRACT.gripper_joints[0]), values, self.now, "driver")
            if self.supervisor.state is SafetyState.ARMED:
                self.supervisor.target(CONTRACT.joints, self.goal, round(1e9 * self.now))
            command = self.supervisor.step()
            self.at = self.at if command is None else command.positions.copy()

    def armed(self) -> Desk:
        self.run(2.5)
        assert not self.supervisor.refusal("targets")
        self.supervisor.arm()
        return self


def test_an_armed_arm_at_rest_whose_driver_repeats_itself_is_stopped() -> None:
    """Nothing is commanded, so that no set-point leaves it; only its noise says that it is read no more."""
    held: list[np.ndarray] = []
    desk = Desk(lambda q, k: held[0] if held else noisy(q, k)).armed()
    desk.run(3.0)
    assert desk.supervisor.state is SafetyState.ARMED, desk.supervisor.filter.reason
    held.append(noisy(desk.at, desk.ticks))
    desk.run(0.095)
    assert desk.supervisor.state is SafetyState.ARMED
    desk.run(0.02)
    assert desk.supervisor.state is not SafetyState.ARMED
    assert "frozen, the same values for 0.1" in desk.supervisor.filter.reason
    assert "had noise at rest" in desk.supervisor.filter.reason


def test_an_armed_arm_without_noise_rests_for_ever() -> None:
    desk = Desk(lambda q, k: q).armed()
    desk.run(5.0)
    desk.goal = HOME + 0.2 * np.eye(7)[0]
    desk.run(5.0)
    assert desk.supervisor.state is SafetyState.ARMED, desk.supervisor.filter.reason
    assert np.allclose(desk.at, desk.goal, atol=1e-3)


@pytest.mark.parametrize("way", [0.0, 0.05])
def test_a_driver_that_begins_to_send_readings_of_before_is_stopped_at_once(way: float) -> None:
    """After a motion of a few degrees, with noise and new stamps."""
    past: list[np.ndarray] = []
    late = [0]

    def sees(q: np.ndarray, k: int) -> np.ndarray:
        past.append(q)
        return noisy(past[max(len(past) - 1 - late[0], 0)], k)

    desk = Desk(sees).armed()
    desk.goal = HOME + way * np.eye(7)[0]
    desk.run(0.3)
    late[0] = round(0.5 / PERIOD)
    desk.run(2 * PERIOD)
    if not way:
        assert desk.supervisor.state is SafetyState.ARMED, "at rest it was there, too"
        return
    assert desk.supervisor.state is not SafetyState.ARMED
    assert "joint states on /joint_states: panda_joint1 jumped by 0.05 rad in 5 ms" in desk.supervisor.filter.reason
    assert "old readings, or another arm's?" in desk.supervisor.filter.reason


def test_an_arm_that_is_elsewhere_when_it_is_armed_again_has_not_leapt() -> None:
    desk = Desk(noisy).armed()
    desk.run(0.2)
    desk.supervisor.filter.disarm()
    desk.run(1.0)
    assert desk.supervisor.state is SafetyState.DISARMED
    desk.at = HOME + 0.4 * np.eye(7)[0]
    desk.goal = desk.at
    desk.run(0.5)
    desk.supervisor.arm()
    desk.run(0.2)
    assert desk.supervisor.state is SafetyState.ARMED, desk.supervisor.filter.reason


def leaps(t: np.ndarray, q: np.ndarray, arrives: np.ndarray | None = None, **of) -> list[str]:
    """The reasons of joint states at q (T, n), stamped t (T,)."""
    joints = [f"j{i}" for i in range(q.shape[1])]
    leap = Leap(joints, of.pop("acceleration", np.full(q.shape[1], 15.0)), of.pop("timeout", 0.1))
    arrives = t if arrives is None else arrives
    return [said for at, stamp, one in zip(arrives, t, q, strict=True) if (said := leap(one, stamp, at, **of))]


def one(way: np.ndarray) -> np.ndarray:
    return np.stack([way, np.zeros_like(way)], axis=1)


def smooth(t: np.ndarray) -> np.ndarray:
    """From rest, by 15 rad/s² at first, to 1.5 rad/s."""
    t = np.maximum(t, 0.0)
    return 1.5 * (t - 0.1 * (1.0 - np.exp(-10.0 * t)))


@pytest.mark.parametrize("hz", [10, 30, 50, 200, 1000])
def test_neither_motors_nor_hands_make_an_arm_leap(hz: int) -> None:
    t = np.arange(0.0, 3.0, 1.0 / hz)
    for acceleration in (5.0, 15.0, 30.0):  # to 2 rad/s and back
        speed = np.clip(acceleration * np.minimum(t - 0.5, 1.5 - t), 0.0, 2.0)
        assert not leaps(t, one(np.cumsum(speed) / hz))
    struck = 0.1 * np.clip((t - 1.0) / 0.05, 0.0, 1.0)  # by a hand: 0.1 rad within 0.05 s
    assert not leaps(t, one(struck))


def test_what_was_lost_held_up_or_read_late_is_no_leap() -> None:
    t, rng = np.arange(0.0, 3.0, 0.005), np.random.default_rng(0)
    way = one(smooth(t))
    kept = np.sort(rng.choice(len(t), 120, replace=False))
    assert not leaps(t[kept], way[kept])
    assert not leaps(t, one(smooth(t - rng.uniform(0.0, 0.015, t.shape)))), "read some time before it is stamped"
    held = np.where((t > 1.0) & (t < 1.06), 1.0, t)  # a driver that had no news for 60 ms, and then has
    assert not leaps(t, one(smooth(held)))
    arrives = t + np.where((t > 1.0) & (t < 1.06), 1.06 - t, 0.0)  # all at once
    assert not leaps(t, way, arrives)
    assert not leaps(np.where(t > 2.0, t - 0.04, t), way, t), "its clock was set"


def test_readings_of_before_are_a_leap_where_the_arm_was_elsewhere() -> None:
    """By hand, at 0.2 rad/s: 0.1 rad within 5 ms, and 1.5 · 0.2 · 0.025 + 25 · 0.025² + 0.01 = 0.033 are allowed."""
    t = np.arange(0.0, 3.0, 0.005)
    late = np.where(t > 2.0, t - 0.5, t)
    said = "j0 jumped by 0.10 rad in 5 ms, at most 0.03 expected: old readings, or another arm's?"
    assert leaps(t, one(0.2 * late)) == [said]
    assert not leaps(t, one(0.05 * late)), "0.025 rad: no more than jitter"
    assert leaps(t, one(0.2 * late), acceleration=np.full(2, 200.0)) == []


def test_a_bus_that_may_be_silent_for_longer_may_read_later() -> None:
    """Servos at 100 Hz on a busy machine: a reading of 0.02 s before its stamp, at 1.6 rad/s, and one of now."""
    t = np.arange(0.0, 3.0, 0.01)
    way = one(0.01 * t + 1.6 * np.minimum(np.maximum(t - 1.0, 0.0) + 0.02 * (t > 1.0), 1.0))
    assert len(leaps(t, way)) == 1 and leaps(t, way, timeout=0.16) == []


def test_noise_of_encoders_is_allowed_for() -> None:
    t = np.arange(0.0, 3.0, 0.005)
    wild = noisy(np.zeros((len(t), 2)), sd=0.01)
    assert leaps(t, wild) and not leaps(t, wild, noise=np.full(2, np.sqrt(2.0) * 0.01))


@cache
def motion(dynamics: str) -> MotionLog:
    """Of MuJoCo's arm along an excitation, its commands as the safety filter passed them."""
    targets = excitation(PANDA, 12.0, 1.0 / CONTRACT.stream_hz, 3, CONTRACT.limits)
    return drive(RealtimeWorld("lift", 3, dynamics=dynamics), CONTRACT, targets)


@pytest.mark.long
@pytest.mark.parametrize("dynamics", ["none", "mild", "wild"])
def test_an_arm_of_mujoco_never_leaps_and_old_readings_of_it_mostly_do(dynamics: str) -> None:
    log = motion(dynamics)
    t, q = log.period * np.arange(len(log.measured)), log.measured
    acceleration, rng = np.array(PANDA.acceleration), np.random.default_rng(0)
    assert np.ptp(q, axis=0).max() > 0.5
    assert not leaps(t, q, acceleration=acceleration)
    late_by = rng.integers(0, 4, len(t))  # up to 15 ms
    assert not leaps(t, q[np.maximum(np.arange(len(t)) - late_by, 0)], acceleration=acceleration)
    kept = rng.random(len(t)) < 0.3
    assert not leaps(t[kept], q[kept], acceleration=acceleration)
    back, found = round(0.5 / log.period), []
    for k in range(2 * back, len(t) - 10, 20):
        late = np.concatenate([q[k - 40 : k], q[k - back : k - back + 5]])
        found.append(bool(leaps(t[k - 40 : k + 5], late, acceleration=acceleration)))
    print(f"{dynamics}: {sum(found)} of {len(found)} moments from which readings of before are a leap")
    assert np.mean(found) > 0.7, np.mean(found)


@pytest.mark.long
def test_mujoco_without_noise_is_never_frozen_although_it_holds_still() -> None:
    """It settles for seconds, to the last bit; nothing of that is noise, before it is armed and after."""
    world, noise, now = RealtimeWorld("lift", 3), EncoderNoise(TIMEOUT_S), 0.0
    q = world.joint_state()[1][:7].copy()
    for goal, armed, seconds in ((q, False, 3.0), (q + 0.1, False, 4.0), (q + 0.1, True, 8.0), (q, True, 8.0)):
        world.command(goal)
        for _ in range(round(seconds / PERIOD)):
            world.advance(PERIOD)
            now += PERIOD
            seen = world.joint_state()[1][:7].copy()
            if armed:
                assert not noise.stands(seen, now)
            else:
                noise.rest(seen, now)
    assert noise.level is None
