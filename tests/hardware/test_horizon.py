"""Set-points sent ahead of the arm, followed by a trajectory controller that is written down here by itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import CubicHermiteSpline

from hardware.execution.ahead import send_ahead
from hardware.execution.horizon import Horizon, Knots, Point
from hardware.safety.states import ArmCommand

PERIOD, AHEAD = 0.005, 0.04


def q_of(k: float) -> np.ndarray:
    """A swing of one joint: 0.5 rad at 0.5 Hz."""
    return np.array([0.5 * (1 - np.cos(np.pi * k * PERIOD))])


def v_of(k: float) -> np.ndarray:
    return np.array([0.5 * np.pi * np.sin(np.pi * k * PERIOD)])


def braked(k: float) -> Knots:
    """The swing comes to rest within 0.1 s, on the way that half its speed takes it."""
    q, v = q_of(k), v_of(k)
    return Knots(np.array([0.05, 0.1]), np.array([q + 0.025 * v, q + 0.05 * v]), np.array([v, 0 * v]))


STANDS = Knots(np.empty(0), np.empty((0, 1)), np.empty((0, 1)))


def followed(due: list[Point], t: float) -> float:
    """Where a controller is at `t` that goes from point to point in a straight line and stands at the last."""
    return float(np.interp(t, [p.at for p in due], [p.positions[0] for p in due]))


def drive(late: dict[int, float], delayed: dict[int, float] | None = None) -> tuple[np.ndarray, np.ndarray, Horizon]:
    """Times and positions of the arm, 1 kHz. `late`: step → how late it is taken; `delayed`: how late it arrives."""
    horizon = Horizon(PERIOD, AHEAD)
    horizon.begin()
    arriving, now = [], 0.0
    for k in range(300):
        now = max(k * PERIOD + late.get(k, 0.0), now)
        assert horizon.late(now) is None
        due = horizon.points(q_of(k), v_of(k), braked(k), now)
        horizon.sent()
        arriving.append((now + (delayed or {}).get(k, 0.0), due))
    times = np.arange(0.001, 1.4, 0.001)
    positions, newest = [], None
    arriving.sort(key=lambda pair: pair[0])
    for t in times:
        while arriving and arriving[0][0] <= t:
            newest = arriving.pop(0)[1]
        assert newest is not None
        positions.append(followed(newest, t))
    return times, np.array(positions), horizon


def greatest(positions: np.ndarray) -> tuple[float, float]:
    """Velocity [rad/s], and its greatest change within a period [rad/s]."""
    v = np.diff(positions) / 0.001
    return float(np.abs(v).max()), float(np.abs(v[5:] - v[:-5]).max())


def test_the_arm_follows_one_horizon_later() -> None:
    times, positions, _ = drive({})
    expected = [q_of((t - AHEAD) / PERIOD)[0] if t > AHEAD else 0.0 for t in times]
    assert np.abs(positions - expected).max() < 2e-4


@pytest.mark.parametrize("how", ["taken", "arrives"])
def test_a_message_late_by_15_ms_neither_stops_the_arm_nor_makes_it_jump(how: str) -> None:
    late = {150: 0.015, 151: 0.01, 152: 0.005}
    _, positions, _ = drive(*((late, {}) if how == "taken" else ({}, late)))
    velocity, change = greatest(positions)
    smooth_velocity, smooth_change = greatest(drive({})[1])
    assert velocity < 1.03 * smooth_velocity
    assert change < smooth_change + 0.05


@pytest.mark.parametrize("late", [0.0, 0.02, 0.034, 0.06])
def test_a_motion_from_rest_begins_one_horizon_ahead_however_late_its_tick_is(late: float) -> None:
    """By then its message may have been on its way for 35 ms, and the arm begins from rest all the same."""
    horizon, now = Horizon(PERIOD, AHEAD), 0.0
    horizon.begin()
    for _ in range(10):
        horizon.points(q_of(0), v_of(0), STANDS, now)
        horizon.sent()
        now += PERIOD
    now += late
    due = horizon.points(q_of(1), v_of(1), braked(1), now)
    moves = [p.at for p in due if np.any(p.velocities)]
    rests = [p.at for p in due if p.at < moves[0]]
    assert now + AHEAD - 0.6 * PERIOD <= moves[0] <= now + AHEAD + 0.6 * PERIOD
    assert np.all(np.diff([p.at for p in due]) > 0) and rests[-1] >= moves[0] - 1.01 * PERIOD
    assert followed(due, now + 0.9 * AHEAD - PERIOD) == q_of(0)[0]


@pytest.mark.parametrize(("sag", "most"), [(0.0005, 1.0), (0.0014, 3.0), (0.01, np.inf)])
def test_an_arm_that_sags_is_led_from_where_it_is_held_to_where_its_motion_begins(sag: float, most: float) -> None:
    """Armed anew beside where the controller holds it; one that was moved begins where it is."""
    horizon = Horizon(PERIOD, AHEAD)
    horizon.begin()
    horizon.points(q_of(0), v_of(0), STANDS, 0.0)
    horizon.sent()
    horizon.begin()
    horizon.begin()  # refused at first
    due = horizon.points(q_of(0) - sag, v_of(0), STANDS, 1.0)
    horizon.sent()
    times, held = np.array([p.at for p in due]), np.array([p.positions[0] for p in due])
    assert np.all(np.diff(times) > 0) and held[-1] == held[-2] == q_of(0)[0] - sag
    assert times[0] == 1.0
    if sag > 0.0015:
        assert np.all(held == held[-1]) and times[-1] == pytest.approx(1.0 + AHEAD)
        return
    assert held[0] == q_of(0)[0] == followed(due, 1.015), "also where the message is late"
    ends, now = times[-1], 1.0
    while now < ends + 0.1:  # at rest, it is soon one horizon ahead again
        now += PERIOD
        rests = horizon.points(q_of(0) - sag, v_of(0), STANDS, now)
        horizon.sent()
    assert rests[-1].at <= now + AHEAD + PERIOD and rests[-1].positions == q_of(0) - sag
    # By hand: cubics through positions and velocities, a millisecond apart.
    fine = np.concatenate([np.full(5, held[0]), cubics(due, np.arange(1.0, times[-1], 0.001)), np.full(5, held[-1])])
    assert np.abs(np.diff(fine, n=2)).max() / 1e-6 < most and np.abs(np.diff(fine, n=3)).max() / 1e-9 < 5000.0


def cubics(due: list[Point], t: np.ndarray) -> np.ndarray:
    return CubicHermiteSpline(
        [p.at for p in due], [p.positions[0] for p in due], [p.velocities[0] for p in due]
    )(t)  # fmt: skip


def test_jitter_of_a_millisecond_is_not_seen() -> None:
    rng = np.random.default_rng(3)
    jitter = {k: float(x) for k, x in enumerate(rng.uniform(0, 0.0015, 300))}
    assert greatest(drive(jitter, jitter)[1])[1] < greatest(drive({})[1])[1] + 0.05


def test_lost_time_is_led_back_slowly() -> None:
    horizon = Horizon(PERIOD, AHEAD)
    now, ahead = 0.0, []
    for k in range(1000):
        now += PERIOD + (0.015 if k == 100 else 0.0)
        ahead.append(horizon.points(q_of(k), v_of(k), braked(k), now)[-1].at - 0.1 - now)
        horizon.sent()
    assert ahead[99] == pytest.approx(AHEAD) and ahead[100] == pytest.approx(AHEAD - 0.015, abs=2e-4)
    assert ahead[-1] == pytest.approx(AHEAD, abs=1e-5)
    assert np.abs(np.diff(ahead[102:])).max() < 0.02 * PERIOD, "no joint feels it"


def test_a_message_is_one_that_the_trajectory_controller_takes() -> None:
    horizon = Horizon(PERIOD, AHEAD)
    for k in range(100):
        now = k * PERIOD
        due = horizon.points(q_of(k), v_of(k), braked(k), now)
        horizon.sent()
        times = [p.at for p in due]
        assert times[0] <= now and np.all(np.diff(times) > 0), "the first is due, so that nothing is interpolated to it"
        assert not due[-1].velocities.any(), "one that ends moving is refused"
        assert len(due) <= AHEAD / PERIOD + 5


def moving(steps: int = 100) -> Horizon:
    horizon = Horizon(PERIOD, AHEAD)
    for k in range(steps):
        horizon.points(q_of(k), v_of(k), braked(k), k * PERIOD)
        horizon.sent()
    return horizon


def test_a_controller_that_hears_nothing_more_comes_to_rest_by_the_way_it_was_sent() -> None:
    horizon, end = moving(), 99 * PERIOD + AHEAD
    assert horizon.late(end - 0.5 * AHEAD) is None, "a message is still in time"
    rest = horizon.late(end - 0.3 * AHEAD)
    assert rest is not None, "one might come after the arm began to brake"
    assert rest.at == pytest.approx(end + 0.1, abs=1e-3)
    assert rest.positions == pytest.approx(q_of(99) + 0.05 * v_of(99)) and not rest.velocities.any()
    assert horizon.late(end) is None, "it is said once"


def test_nothing_is_sent_until_it_stands_and_the_next_motion_begins_there() -> None:
    horizon, now = moving(), 99 * PERIOD + AHEAD
    rest = horizon.late(now)
    assert rest is not None
    while now < rest.at:
        assert horizon.points(rest.positions, 0 * rest.velocities, STANDS, now) == []
        now += PERIOD
    due = horizon.points(rest.positions + 1e-5, rest.velocities + 0.01, braked(3), now)
    assert due[0].positions == pytest.approx(rest.positions) and due[1].positions == pytest.approx(rest.positions)
    assert due[1].at == pytest.approx(now + AHEAD - PERIOD) and due[2].at == pytest.approx(now + AHEAD)
    assert due[2].positions == pytest.approx(rest.positions + 1e-5), "one period later, as it was made"


def test_points_that_were_made_and_not_sent_do_not_count() -> None:
    """The process is held up between the two: the controller comes to rest where it was told before."""
    horizon, end = moving(), 99 * PERIOD + AHEAD
    horizon.points(q_of(100), v_of(100), braked(100), 100 * PERIOD)
    rest = horizon.late(end)
    assert rest is not None and rest.positions == pytest.approx(q_of(99) + 0.05 * v_of(99))


def test_at_rest_nothing_is_late() -> None:
    horizon = Horizon(PERIOD, AHEAD)
    for k in range(10):
        horizon.points(q_of(0), 0 * v_of(0), STANDS, k * PERIOD)
        horizon.sent()
    assert horizon.late(99.0) is None
    horizon = moving()
    horizon.begin()
    assert horizon.late(99.0) is None, "a new motion starts from rest"


POSE = (np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))


class Guard:
    """Of a safety filter what sending ahead asks for."""

    def __init__(self, now: ArmCommand | None) -> None:
        self.now = now
        self.rest: list[tuple[np.ndarray, float]] = []
        self.asked: list[ArmCommand] = []

    def checked(self, command: ArmCommand) -> ArmCommand | None:
        self.asked.append(command)
        return self.now

    def knots_to_rest(self) -> Knots:
        return braked(100)

    def left_to_rest(self, q: np.ndarray, seconds: float) -> None:
        self.rest.append((q, seconds))


def sent_at(*clock: float, now: ArmCommand | None) -> tuple[list[list[Point]], Guard, Horizon]:
    """What a command leads to beside the one that the filter has `now`, where the clock is read in turn."""
    horizon, guard, times = moving(), Guard(now), iter(clock)
    published: list[list[Point]] = []
    command = ArmCommand(q_of(0), v_of(0), POSE, None)
    send_ahead(horizon, guard, command, lambda: next(times), lambda due: lambda: published.append(due))  # type: ignore[arg-type]
    assert guard.asked == [command]
    return published, guard, horizon


def test_what_is_sent_ahead_is_what_the_filter_has_right_before() -> None:
    at, newest = 100 * PERIOD, ArmCommand(q_of(100), v_of(100), POSE, None)
    ((due,), guard, horizon) = sent_at(at, at, at, now=newest)
    assert any(np.array_equal(point.positions, newest.positions) for point in due) and not guard.rest
    rest = horizon.late(at + AHEAD)
    assert rest is not None and rest.positions == pytest.approx(q_of(100) + 0.05 * v_of(100)), "it counts as sent"
    assert sent_at(now=None)[0] == [], "it may not leave any more"


def test_what_comes_too_late_is_not_sent_and_the_filter_learns_where_the_arm_rests() -> None:
    at, late, newest = 100 * PERIOD, 99 * PERIOD + AHEAD, ArmCommand(q_of(100), v_of(100), POSE, None)
    for clock in ((late,), (at, at, late)):  # before points are made, and before they are published
        published, guard, _ = sent_at(*clock, now=newest)
        ((rest, seconds),) = guard.rest
        assert published == [] and seconds == pytest.approx(0.1, abs=1e-3)
        assert rest == pytest.approx(q_of(99) + 0.05 * v_of(99)), "by what it was sent before"
