"""Joint states that are late under new stamps: MuJoCo's arm follows the commands, and is seen to later."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hardware.calibration.motion import drive
from hardware.observing import lag
from hardware.observing.lag import LOOK_S, MOST_S, Lag, Lags
from robots import PANDA
from robots.excitation import excitation
from robots.motion_log import MotionLog
from robots.stations import load_contract, load_pair
from sim.realtime import RealtimeWorld

CONTRACT = load_contract("sim")
ALLOWED_S = 0.3
NOISE = 5e-4  # [rad] of encoders


@cache
def motion(dynamics: str) -> MotionLog:
    """Of MuJoCo's arm along an excitation, its commands as the safety filter passed them."""
    targets = excitation(PANDA, 12.0, 1.0 / CONTRACT.stream_hz, 3, CONTRACT.limits)
    return drive(RealtimeWorld("lift", 3, dynamics=dynamics), CONTRACT, targets)


def alarms(
    commanded: np.ndarray, measured: np.ndarray, period: float, late_s: float = 0.0
) -> list[tuple[float, float]]:
    """(time, delay) of each look that finds the joint states late, of which each comes `late_s` later."""
    judge, noise = Lag(ALLOWED_S), NOISE * np.random.default_rng(0).standard_normal(measured.shape)
    found = []
    for k, (c, _) in enumerate(zip(commanded, measured, strict=True)):
        now, seen = k * period, max(k - 1 - round(late_s / period), 0)
        judge.commanded(c, now)
        if judge.due(now):
            judge.measured(measured[seen] + noise[k], now)
        if k % round(LOOK_S / period) == 0 and (late := judge.look(now)):
            found.append((now, late))
    return found


@pytest.mark.long
@pytest.mark.parametrize("dynamics", ["none", "mild", "wild"])
def test_an_arm_of_mujoco_is_never_late_by_itself(dynamics: str) -> None:
    log = motion(dynamics)
    assert np.ptp(log.measured, axis=0).max() > 0.5
    for late_s in (0.0, 0.05):
        assert not alarms(log.commanded, log.measured, log.period, late_s)


@pytest.mark.long
@pytest.mark.parametrize("late_s", [0.4, 0.6, 1.0])
def test_late_joint_states_are_found_before_the_arm_has_gone_far(late_s: float) -> None:
    log = motion("none")
    found = alarms(log.commanded, log.measured, log.period, late_s)
    at, delay = found[0]
    own = 0.12  # of the arm itself, at most
    assert late_s - 0.04 <= delay <= late_s + own
    travelled = np.ptp(log.commanded[: round(at / log.period)], axis=0).max()
    assert travelled < 0.4, travelled


def made(way: np.ndarray, period: float = 0.01) -> tuple[np.ndarray, float]:
    return np.stack([way, np.zeros_like(way)], axis=1), period


def later(q: np.ndarray, steps: int) -> np.ndarray:
    return np.concatenate([np.repeat(q[:1], steps, axis=0), q[: len(q) - steps]])


def test_what_tells_no_delay_is_none() -> None:
    """Rest, an arm that is held up or goes another way, a uniform motion, and one that repeats itself within the
    delay."""
    t = np.arange(0.0, 6.0, 0.01)
    to_and_fro, period = made(0.3 * np.sin(2.0 * np.pi * t / 2.5))
    assert alarms(to_and_fro, later(to_and_fro, 70), period), "by hand: 0.7 s late"
    assert not alarms(np.zeros_like(to_and_fro), np.zeros_like(to_and_fro), period)
    assert not alarms(to_and_fro, np.zeros_like(to_and_fro), period), "held up"
    assert not alarms(to_and_fro, -later(to_and_fro, 70), period), "elsewhere"
    uniform, _ = made(0.2 * t + 1.0)
    assert not alarms(uniform, uniform - 0.2 * 0.7, period)
    quick, _ = made(0.1 * np.sin(2.0 * np.pi * t / 0.5))
    assert not alarms(quick, quick, period), "or one whole turn late: the same motion"
    quick, _ = made(0.3 * np.sin(2.0 * np.pi * t / 0.6))
    assert not alarms(quick, later(quick, 33), period), "what is allowed explains it nearly as well"


def test_a_delay_of_what_is_allowed_is_none_and_sag_plays_no_part() -> None:
    t = np.arange(0.0, 6.0, 0.01)
    way, period = made(0.3 * np.sin(2.0 * np.pi * t / 2.5))
    sags = np.array([0.1, -0.2])
    assert not alarms(way, later(way, 28) + sags, period)
    assert alarms(way, later(way, 40) + sags, period)
    assert not alarms(way, later(way, round((MOST_S + 0.5) / period)), period), "beyond what is looked for"


def test_one_look_proves_nothing_and_arming_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, said = Lag(ALLOWED_S), iter([0.5, None, 0.5, 0.6, 0.5])
    monkeypatch.setattr(judge, "_found", lambda now: next(said))
    assert [judge.look(0.0) for _ in range(4)] == [None, None, None, 0.6]
    judge.begin()
    assert judge.look(0.0) is None


def test_each_arm_of_a_station_is_judged_by_its_own_joint_states() -> None:
    pair, now = load_pair("panda_pair"), 0.0
    judged = Lags(pair, lambda: now)
    first, second = pair.arms.items()
    said: list[str] = []
    judged.begin()
    for k in range(600):
        now = 0.01 * k
        sway = 0.3 * np.sin(2.0 * np.pi * (now - np.array([0.0, 0.7])) / 2.5)
        judged.commanded(np.full(len(pair.joints), sway[0]))
        for (name, arm), seen in ((first, sway[0]), (second, sway[1])):
            extra = ("a_wheel", *reversed(arm.joints))
            judged.measured(name, extra, np.array([now, *[seen] * len(arm.joints)]))
            judged.measured(name, arm.joints[:3], np.zeros(3))
        if k % 10 == 0:
            judged.look(said.append)
    assert said
    assert all(
        second[1].joint_states.topic in line and ("0.68 s late" in line or "0.72 s late" in line) for line in said
    ), said
    assert lag.OF_ARMS_S + pair.limits.state_timeout_s == pytest.approx(ALLOWED_S)
