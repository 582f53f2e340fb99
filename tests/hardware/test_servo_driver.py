"""The driver of bus servos against servos that do what real ones do: follow their goal while they have torque."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hardware.servos import ServoDriver, ServosLost
from hardware.servos.driver import BLOCKED_RAD, LOST_S, SILENCE_S

JOINTS = ("pan", "lift", "jaw")
LOWER, UPPER = np.array([-1.0, -1.0, -0.2]), np.array([1.0, 1.0, 1.7])
JUMP = np.array([0.35, 0.35, math.inf])
PERIOD, SPEED = 0.01, 4.0


class Servos:
    """Three servos; `stops` is what stands in their way. They fall without torque."""

    def __init__(self) -> None:
        self.now = 50.0
        self.q, self.goal = np.array([0.2, -0.4, 0.5]), np.array([0.9, 0.9, 0.9])  # somebody's old goal
        self.has_torque = False
        self.stops = np.full(3, np.inf)
        self.silent = False
        self.open_ = False
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def open(self) -> None:
        self.open_ = True
        self.log.append("open")

    def read(self) -> np.ndarray:
        self._answer()
        return self.q.copy()

    def write(self, goal: np.ndarray) -> None:
        self._answer()
        self.log.append("write")
        self.goal = np.array(goal)

    def torque(self, on: bool) -> None:
        self._answer()
        self.log.append(f"torque {on}")
        self.has_torque = on

    def close(self) -> None:
        self.open_ = False
        self.log.append("close")

    def _answer(self) -> None:
        assert self.open_
        if self.silent:
            raise OSError("no status packet")

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.has_torque:
            self.q = np.minimum(self.q + np.clip(self.goal - self.q, -SPEED * seconds, SPEED * seconds), self.stops)
        else:
            self.q[1] = max(self.q[1] - 0.5 * seconds, -1.5)


def started(servos: Servos | None = None, **options: bool) -> tuple[Servos, ServoDriver]:
    servos = servos or Servos()
    servos.pass_time(0.0)
    driver = ServoDriver(servos, JOINTS, LOWER, UPPER, JUMP, clock=servos, **options)
    driver.begin()
    return servos, driver


def run(servos: Servos, driver: ServoDriver, seconds: float, goal: object = None) -> None:
    for _ in range(round(seconds / PERIOD)):
        servos.pass_time(PERIOD)
        if goal is not None:
            driver.command(list(goal))  # type: ignore[call-overload]
        driver.tick()


def test_torque_comes_on_where_the_arm_is_and_not_where_somebody_once_wanted_it() -> None:
    servos, driver = started()
    begun = servos.q.copy()
    assert servos.log == ["open", "write", "torque True"], "the goal before the torque"
    run(servos, driver, 1.0)
    np.testing.assert_array_equal(servos.q, begun)


def test_set_points_are_followed_and_what_is_read_is_when_it_was_read() -> None:
    servos, driver = started()
    goal = np.array([0.4, -0.2, 1.5])  # the jaw may be told to go all the way
    run(servos, driver, 1.0, goal)
    np.testing.assert_allclose(servos.q, goal)
    servos.pass_time(0.123)
    reading = driver.tick()
    assert reading is not None and reading.began == reading.ended == servos.now
    np.testing.assert_array_equal(reading.positions, goal)
    assert driver.refused == 0 and driver.written == 100


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([math.nan, -0.4, 0.5], "pan at nan rad: not finite"),
        ([0.2, math.inf, 0.5], "lift at inf rad: not finite"),
        ([0.2, -0.4], "2 numbers; expected 3: pan, lift, jaw"),
        ([0.2, -0.4, 0.5, 0.0], "4 numbers; expected 3: pan, lift, jaw"),
        ([0.2, -0.4, 1.8], "jaw at 1.800 rad: outside its limits"),
        ([0.2, -1.02, 0.5], "lift at -1.020 rad: outside its limits"),
        ([0.6, -0.4, 0.5], "pan 0.400 rad from where it is, allowed 0.35"),
    ],
)
def test_what_is_no_set_point_is_never_written(bad: list[float], words: str, caplog: pytest.LogCaptureFixture) -> None:
    servos, driver = started()
    run(servos, driver, 0.1, servos.q)
    written, stood = driver.written, servos.q.copy()
    for _ in range(20):
        assert not driver.command(bad)
        run(servos, driver, PERIOD)
    assert (driver.written, driver.refused) == (written, 20)
    np.testing.assert_array_equal(servos.q, stood)
    assert [record.message for record in caplog.records] == [f"set-points are refused, the arm holds: {words}"]
    assert driver.command(stood.tolist()), "one that is right is followed again"


def test_a_newer_set_point_that_is_refused_takes_the_one_before_with_it() -> None:
    servos, driver = started()
    assert driver.command((servos.q + 0.1).tolist()) and not driver.command([math.nan] * 3)
    run(servos, driver, 0.1)
    assert driver.written == 0


def test_two_publishers_move_nothing() -> None:
    servos, driver = started()
    begun = servos.q.copy()
    assert not driver.command((begun + 0.1).tolist(), others=1)
    run(servos, driver, 0.2)
    np.testing.assert_array_equal(servos.q, begun)


def test_silence_leaves_the_arm_at_its_goal() -> None:
    servos, driver = started()
    goal = servos.q + np.array([0.1, -0.1, 0.1])
    run(servos, driver, 0.2, goal)
    written = driver.written
    run(servos, driver, 3.0)
    np.testing.assert_allclose(servos.q, goal)
    assert driver.written == written, "nothing more is written: an arm that sags a little must not sag again and again"


def test_a_blocked_arm_presses_no_more_after_silence_and_the_jaw_holds_on() -> None:
    servos, driver = started()
    servos.stops = np.array([0.25, np.inf, 0.6])  # a wall, and something that the jaw holds
    for pan in np.linspace(0.2, 0.25 + BLOCKED_RAD + 0.05, 60):
        run(servos, driver, PERIOD, [pan, -0.4, 1.5])
    pressing = servos.goal.copy()
    run(servos, driver, SILENCE_S - 2 * PERIOD)
    np.testing.assert_array_equal(servos.goal, pressing)
    run(servos, driver, 4 * PERIOD)
    np.testing.assert_allclose(servos.goal, [0.25, -0.4, 1.5])


def test_lost_packets_are_gaps_and_a_dead_bus_is_the_end() -> None:
    servos, driver = started()
    servos.silent = True
    servos.pass_time(PERIOD)
    assert driver.tick() is None and driver.lost == 1
    servos.silent = False
    servos.pass_time(PERIOD)
    assert driver.tick() is not None
    servos.silent = True
    with pytest.raises(ServosLost, match="silent for 1"):
        run(servos, driver, LOST_S + 2 * PERIOD)
    assert not driver.command(servos.q.tolist()), "where the arm is, is not known"


def test_a_goal_that_was_not_written_is_written_again() -> None:
    servos, driver = started()
    goal = servos.q + 0.1
    driver.command(goal.tolist())
    servos.silent = True
    driver.tick()
    servos.silent = False
    driver.tick()
    np.testing.assert_array_equal(servos.goal, goal)


def test_an_arm_keeps_its_torque_at_the_end_unless_it_is_to_be_released() -> None:
    for release in (False, True):
        servos, driver = started()
        driver.end(release)
        assert servos.has_torque is not release and not servos.open_
    servos, driver = started()
    servos.silent = True
    driver.end(release=True)
    assert not servos.open_, "whatever happens"


def test_a_limp_arm_is_measured_and_never_moved() -> None:
    servos = Servos()
    servos.has_torque = True  # as the last driver left it
    servos.goal = servos.q.copy()
    servos, driver = started(servos, limp=True)
    assert servos.log == ["open", "torque False"]
    assert not driver.command(servos.q.tolist())
    run(servos, driver, 0.5)
    assert not servos.has_torque and driver.written == 0


def test_servos_that_never_answer_get_no_torque() -> None:
    servos = Servos()
    servos.silent = True
    with pytest.raises(ServosLost, match="do not answer"):
        started(servos)
    assert servos.log == ["open", "close"]
