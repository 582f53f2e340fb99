"""The limit monitor: violations worked out by hand, and none for motions that keep the limits."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

import numpy as np
import pytest
import ruckig
from numpy.typing import NDArray

import hardware.observing.monitor
from hardware.observing.monitor import LimitMonitor
from robolearn.core import BadInput
from robots import PANDA

DT = 0.01


def one_joint(velocity: float = 1.0, acceleration: float = 10.0, jerk: float = 1000.0) -> LimitMonitor:
    """Differences may be 0.01, 0.001 and 0.001 rad."""
    return LimitMonitor([-1.0], [1.0], [velocity], [acceleration], [jerk], DT)


def feed(monitor: LimitMonitor, qs: list[float] | NDArray, start: float = 0.0, every: float = DT) -> set[str]:
    seen: set[str] = set()
    for k, q in enumerate(qs):
        seen.update(monitor.command(np.atleast_1d(q), start + k * every))
    return seen


@pytest.mark.parametrize(
    ("qs", "limits", "kinds", "peak"),
    [
        # Δ = 0.02, Δ² = 0.02, Δ³ = 0.02: 2 rad/s, 200 rad/s², 20 000 rad/s³
        ([0.0, 0.02], {"acceleration": 1e3, "jerk": 1e5}, {"velocity"}, (2.0, 0.2, 0.2)),
        # Δ = 0.002: 0.2 rad/s, 20 rad/s², 2000 rad/s³
        ([0.0, 0.002], {"jerk": 1e4}, {"acceleration"}, (0.2, 2.0, 0.2)),
        ([0.0, 0.002], {"acceleration": 1e3}, {"jerk"}, (0.2, 0.02, 2.0)),
        # Each of the differences just within: Δ = 0.0005, then 0.001, 0.0015: Δ² = 0.0005, Δ³ = 0.0005, 0, 0
        ([0.0, 0.0005, 0.0015, 0.003], {}, set(), (0.15, 0.5, 0.5)),
        # A stop at once from Δ = 0.0015 is Δ² = −0.0015
        ([0.0, 0.0005, 0.0015, 0.003, 0.003], {"jerk": 1e4}, {"acceleration"}, (0.15, 1.5, 0.2)),
    ],
)
def test_differences_worked_out_by_hand(
    qs: list[float], limits: dict[str, float], kinds: set[str], peak: tuple[float, ...]
) -> None:
    monitor = one_joint(**limits)
    assert feed(monitor, qs) == kinds
    found = monitor.summary()
    assert [found["peak"][k] for k in ("velocity", "acceleration", "jerk")] == pytest.approx(peak)
    assert found["violations"] == sum(found["violations_by_kind"].values()) == len(kinds)
    assert found["commands"] == len(qs)


def test_positions_beyond_the_box_and_how_near_they_came() -> None:
    monitor = one_joint()
    assert monitor.command([1.0], 0.0) == ()
    assert monitor.summary()["peak"]["position_margin"] == 0.0
    monitor.new_motion()
    assert monitor.command([-1.25], 1.0) == ("position",)
    assert monitor.summary()["peak"]["position_margin"] == pytest.approx(-0.25)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_counted_and_changes_nothing_else(bad: float) -> None:
    monitor = one_joint()
    assert feed(monitor, [0.1, bad, 0.1]) == {"non_finite"}
    found = monitor.summary()
    assert found["non_finite"] == found["violations"] == 1 and found["peak"]["velocity"] == 0.0
    json.loads(json.dumps(found, allow_nan=False))


def test_wrong_length_is_a_violation() -> None:
    monitor = one_joint()
    assert monitor.command([], 0.0) == monitor.command([0.1, 0.2], 0.01) == ("length",)


def test_a_smooth_motion_that_just_keeps_its_limits() -> None:
    # The minimum-jerk motion q = D (10 s³ − 15 s⁴ + 6 s⁵), s = t/T, has the peaks 15/8 D/T, 10/√3 D/T², 60 D/T³.
    distance, duration = 0.8, 5.0
    s = np.arange(0.0, duration + DT, DT) / duration
    q = distance * (10 * s**3 - 15 * s**4 + 6 * s**5)
    peaks = [1.875 * distance / duration, 10 / 3**0.5 * distance / duration**2, 60 * distance / duration**3]
    within = LimitMonitor([-1.0], [1.0], *([p] for p in peaks), DT)
    assert feed(within, q) == set()
    found = within.summary()["peak"]
    assert [found[k] for k in ("velocity", "acceleration", "jerk")] == pytest.approx([1.0, 1.0, 1.0], rel=0.05)
    for k, kind in enumerate(("velocity", "acceleration", "jerk")):
        tighter = [0.95 * p if i == k else p for i, p in enumerate(peaks)]
        assert feed(LimitMonitor([-1.0], [1.0], *([p] for p in tighter), DT), q) == {kind}


@pytest.mark.parametrize(("period", "jerk_scale"), [(0.005, 1.0), (0.005, 0.05), (0.002, 0.05), (0.01, 0.2)])
def test_jerk_limited_motion_towards_goals_that_change_is_never_counted(period: float, jerk_scale: float) -> None:
    rng = np.random.default_rng(0)
    n = len(PANDA.joints)
    jerk = jerk_scale * np.array(PANDA.jerk)
    monitor = LimitMonitor(PANDA.lower, PANDA.upper, PANDA.velocity, PANDA.acceleration, jerk, period)
    otg, given, out = ruckig.Ruckig(n, period), ruckig.InputParameter(n), ruckig.OutputParameter(n)
    given.synchronization = ruckig.Synchronization.No
    given.current_position, given.current_velocity, given.current_acceleration = list(PANDA.home), [0.0] * n, [0.0] * n
    given.max_velocity, given.max_acceleration, given.max_jerk = (
        list(PANDA.velocity), list(PANDA.acceleration), list(jerk)
    )  # fmt: skip
    reach = 0.8 * min(np.min(PANDA.upper - PANDA.home), np.min(PANDA.home - PANDA.lower))
    kinds = set(monitor.command(PANDA.home, 0.0))
    for k in range(3000):
        if k % 20 == 0:
            given.target_position = list(np.array(PANDA.home) + rng.uniform(-reach, reach, n) * (k % 300 > 100))
        assert int(otg.update(given, out)) >= 0
        kinds.update(monitor.command(out.new_position, (k + 1) * period))
        out.pass_to_input(given)
    kinds.discard("position")  # motions towards goals that change may overshoot the box; that is not their question
    assert kinds == set()
    assert monitor.summary()["peak"]["acceleration"] > 0.9


def test_after_a_gap_a_motion_starts_from_rest_and_whatever_else_it_does_is_counted() -> None:
    def moving() -> LimitMonitor:
        monitor = one_joint(jerk=1e4)
        assert feed(monitor, [0.0, 0.0005, 0.0015, 0.0025]) == set()  # 0.1 rad/s; the last command at 0.03 s
        monitor.state([0.3], 0.9)
        return monitor

    goes_on, from_rest, from_measured, jump, soon = (moving() for _ in range(5))
    # Δ = Δ² = 0.002 from rest, where 0.001 is allowed
    assert set(goes_on.command([0.0045], 1.0)) == {"acceleration"}
    assert goes_on.summary()["peak"]["acceleration"] == pytest.approx(2.0)
    assert from_rest.command([0.0025], 1.0) == () and from_rest.command([0.003], 1.01) == ()
    assert from_measured.command([0.303], 1.0) == ()  # sensors have noise
    assert from_measured.command([0.303], 1.01) == ()
    assert set(from_measured.command([0.305], 1.02)) == {"acceleration"}  # it began at rest
    assert jump.command([0.25], 1.0) == ("jump",)
    assert {"velocity", "acceleration", "jerk"} == set(soon.command([0.3], 0.05))  # no gap: nothing to excuse it
    assert jump.summary()["gaps"] == 1 and jump.summary()["peak"]["velocity"] == pytest.approx(0.1)


@pytest.mark.parametrize("stall_s", [0.06, 0.15, 0.24, 1.0])
def test_a_motion_that_goes_on_at_full_speed_after_a_stall_is_counted(stall_s: float) -> None:
    """By the clock: what was sent as if nothing had been, and the same read late but sent in time."""
    # 9 rad/s² up to 0.45 rad/s in 5 periods, then no acceleration
    q = np.cumsum([0.0, 0.0009, 0.0018, 0.0027, 0.0036, *[0.0045] * 30])
    late, in_time = one_joint(jerk=1e4), one_joint(jerk=1e4)
    seen: set[str] = set()
    for k, position in enumerate(q):
        at = k * DT + (stall_s if k >= 15 else 0.0)
        late.state([q[max(k - 1, 0)]], at - 0.001)  # the arm stands at the last command
        seen.update(late.command([position], at))
        assert in_time.command([position], k * DT) == (), "sent in time, whenever it is read"
    assert "acceleration" in seen and late.summary()["peak"]["acceleration"] > 3.0


def test_a_motion_that_starts_from_rest_after_a_stall_is_in_order() -> None:
    # Δ grows by at most 0.001 from rest, and by 0.0005 at most at a time
    up = np.cumsum([0.0005, 0.0015, 0.0025, 0.0035])
    for periods in (3.0, 4.0, 5.5, 20.0):
        monitor = one_joint(jerk=1e4)
        assert feed(monitor, [0.0, *up]) == set()
        assert feed(monitor, [up[-1], *(up[-1] + up)], start=(4 + periods) * DT) == set(), periods
    goes_on = one_joint(jerk=1e4)  # a stall that an arm hardly notices
    assert feed(goes_on, [0.0, *up]) == set()
    assert goes_on.command([up[-1] + 0.0035], 8 * DT) == ()


def test_the_first_command_must_be_where_the_arm_is() -> None:
    monitor = one_joint()
    monitor.state([0.5], 0.0)
    assert monitor.command([0.0], 0.01) == ("jump",)
    monitor.new_motion()
    assert monitor.command([-0.5], 0.02) == ()  # elsewhere, and not measured there yet
    monitor.new_motion()
    monitor.state([0.2], 0.03)
    assert monitor.command([0.2], 0.03) == ()


def test_commands_that_come_faster_than_nominal_are_counted_once_per_window() -> None:
    nominal, fast = one_joint(), one_joint()
    assert feed(nominal, [0.0] * 500, every=DT / 1.2) == set()
    assert feed(fast, [0.0] * 500, every=DT / 2) == {"rate"}  # 2.5 s: 63 commands are too many after 0.31 s
    assert fast.summary()["violations_by_kind"]["rate"] == 500 // 63
    # A burst after a stall is no faster on the whole.
    late = one_joint()
    assert feed(late, [0.0] * 50) == set() and feed(late, [0.0] * 10, start=0.6, every=1e-4) == set()


def test_age_counts_where_standing_still_would_be_no_proper_stop() -> None:
    monitor = one_joint()
    feed(monitor, [0.0, 0.0005, 0.001, 0.001])  # 0.05 rad/s can be stopped within a period at 10 rad/s²
    monitor.state([0.0], 9.0)
    assert monitor.summary()["max_command_age_s"] == 0.0
    monitor.new_motion()
    feed(monitor, [0.0, 0.0005, 0.0015, 0.003], start=10.0)  # 0.15 rad/s cannot
    monitor.state([0.0], 10.28)
    assert monitor.summary()["max_command_age_s"] == pytest.approx(0.25)
    monitor.command([0.0045], 10.05)  # had come in long before, and was read late
    assert monitor.summary()["max_command_age_s"] == pytest.approx(0.02)
    monitor.state([0.0], 10.15)
    monitor.new_motion()
    monitor.state([0.0], 20.0)
    assert monitor.summary()["max_command_age_s"] == pytest.approx(0.1)


def test_bad_limits_are_refused() -> None:
    with pytest.raises(BadInput):
        LimitMonitor([0.0], [1.0, 2.0], [1.0], [1.0], [1.0], DT)
    with pytest.raises(BadInput):
        LimitMonitor.of(PANDA, 0.0)


def test_it_shares_nothing_with_what_it_watches() -> None:
    imported = set()
    for node in ast.walk(ast.parse(Path(str(hardware.observing.monitor.__file__)).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert imported == {
        "__future__",
        "collections",
        "typing",
        "numpy",
        "numpy.typing",
        "robolearn.core.errors",
        "robots",
    }
