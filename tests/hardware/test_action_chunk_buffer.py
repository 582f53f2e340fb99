"""The chunk stream under a fake clock: what is executed when, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.execution.chunk_buffer import ActionChunkBuffer, ChunkRefused
from hardware.execution.streamer import Streamer
from robots.stations import load_contract

NAMES = ("dx", "dy", "gripper")
DT = 0.05
WALL = 1.7e9  # a wall clock that has nothing to do with the steady one


class Clock:
    def __init__(self) -> None:
        self.t = 1000.0

    def __call__(self) -> float:
        return self.t


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, **options) -> ActionChunkBuffer:
    return ActionChunkBuffer(NAMES, DT, clock=clock, **options)


def ramp(n: int, start: float = 0.0) -> np.ndarray:
    """Actions whose first component is start, start + 0.1, …"""
    rows = np.zeros((n, 3))
    rows[:, 0] = start + 0.1 * np.arange(n)
    return rows


def give(
    stream: ActionChunkBuffer, clock: Clock, actions, *, age: float = 0.0, stamp: float | None = None, **other
) -> None:
    """A chunk whose observation was taken `age` seconds ago, on a wall clock that runs with the steady one."""
    wall = WALL + clock.t - 1000.0
    at = wall - age if stamp is None else stamp
    times = np.arange(len(actions)) * DT
    stream.accept(at, wall, other.get("names", NAMES), actions, other.get("times", times), other.get("sender"))


def first(stream: ActionChunkBuffer) -> float:
    step = stream.step()
    assert step is not None
    return round(float(step.action[0]), 6)


def test_actions_belong_to_the_time_of_the_observation(clock: Clock) -> None:
    stream = make(clock)
    assert stream.step() is None and stream.reason
    give(stream, clock, ramp(4), age=0.12)  # two steps have elapsed
    step = stream.step()
    assert step is not None and step.index == 2 and first(stream) == 0.2 and not stream.reason
    assert stream.latency_s == pytest.approx(0.12)
    clock.t += 0.029
    assert first(stream) == 0.2
    clock.t += 0.002
    assert first(stream) == 0.3


def test_the_last_action_is_held_for_one_period_and_then_there_is_nothing(clock: Clock) -> None:
    stream = make(clock)
    give(stream, clock, ramp(4))
    clock.t += 0.199
    step = stream.step()
    assert step is not None and step.index == 3 and not step.held
    for late in (0.002, 0.048):
        clock.t += late
        step = stream.step()
        assert step is not None and step.held and step.index == 3 and first(stream) == 0.3
    clock.t += 0.002
    assert stream.step() is None and "ran out" in stream.reason and not stream.running
    give(stream, clock, ramp(4, 0.5))
    assert first(stream) == 0.5


def test_without_grace_it_ends_on_time(clock: Clock) -> None:
    stream = make(clock, grace_s=0.0)
    give(stream, clock, ramp(1))
    clock.t += 0.0501
    assert stream.step() is None


def test_a_chunk_that_follows_is_taken_from_where_time_is(clock: Clock) -> None:
    stream = make(clock)
    give(stream, clock, ramp(4))
    clock.t += 0.2 + 0.03  # observed at the end of the first chunk, 30 ms of thinking
    step = stream.step()
    assert step is not None and step.held
    give(stream, clock, ramp(4, -0.4), age=0.03)
    assert first(stream) == -0.4
    clock.t += 0.021
    assert first(stream) == -0.3


def test_the_overlap_is_blended_over_the_latency_but_not_the_gripper(clock: Clock) -> None:
    stream = make(clock)
    old = np.zeros((8, 3))
    give(stream, clock, old)
    new = np.ones((8, 3))
    clock.t += 0.2 + 0.09
    # k₀ = 1, d = 2: w = 1/3 at step 1, 2/3 at step 2, then 1
    give(stream, clock, new, age=0.09)
    seen = []
    for _ in range(4):
        step = stream.step()
        assert step is not None
        seen.append((step.index, *np.round(step.action, 6)))
        clock.t += DT
    assert seen == [
        (1, 0.333333, 0.333333, 1.0),
        (2, 0.666667, 0.666667, 1.0),
        (3, 1.0, 1.0, 1.0),
        (4, 1.0, 1.0, 1.0),
    ]


def test_frozen_steps_follow_the_old_chunk_even_with_the_gripper(clock: Clock) -> None:
    stream = make(clock, freeze=1)
    give(stream, clock, np.zeros((8, 3)))
    clock.t += 0.1 + 0.04
    give(stream, clock, np.ones((8, 3)), age=0.04)  # k₀ = 0, d = 1
    seen = []
    for _ in range(3):
        step = stream.step()
        assert step is not None
        seen.append(tuple(step.action))
        clock.t += DT
    assert seen == [(0, 0, 0), (0.5, 0.5, 1), (1, 1, 1)]


def test_blending_ends_where_the_old_chunk_does(clock: Clock) -> None:
    stream = make(clock)
    give(stream, clock, np.zeros((4, 3)))
    clock.t += 0.1 + 0.14  # the old one is over
    give(stream, clock, np.ones((8, 3)), age=0.14)
    assert first(stream) == 1.0


def test_no_blending_when_told_so(clock: Clock) -> None:
    stream = make(clock, blend=False)
    give(stream, clock, np.zeros((8, 3)))
    clock.t += 0.19
    give(stream, clock, np.ones((8, 3)), age=0.09)
    assert first(stream) == 1.0


def test_actions_are_clipped(clock: Clock) -> None:
    stream = make(clock)
    give(stream, clock, np.full((2, 3), 7.0))
    assert first(stream) == 1.0


BAD = {
    "future": ({"age": -0.051}, "future"),
    "zero": ({"stamp": 0.0}, "without an observation stamp"),
    "negative": ({"stamp": -1.0}, "without an observation stamp"),
    "nan stamp": ({"stamp": float("nan")}, "without an observation stamp"),
    "too late": ({"age": 0.2}, "too late"),
    "an hour ago": ({"age": 3600.0}, "too late"),
    "names": ({"names": ("dx", "dz", "gripper")}, "expected dx, dy, gripper"),
    "order": ({"names": ("dy", "dx", "gripper")}, "expected dx, dy, gripper"),
    "no names": ({"names": ()}, "names nothing"),
    "times fall": ({"times": np.array([0, 0.05, 0.04, 0.15])}, "do not rise"),
    "times stand": ({"times": np.array([0, 0.05, 0.05, 0.15])}, "do not rise"),
    "times nan": ({"times": np.array([0, np.nan, 0.1, 0.15])}, "do not rise"),
    "times elsewhere": ({"times": np.array([0, 0.02, 0.04, 0.06])}, "are not 0, 0.05"),
    "times short": ({"times": np.array([0, 0.05])}, "do not rise"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused_and_the_chunk_before_goes_on(clock: Clock, name: str) -> None:
    options, why = BAD[name]
    stream = make(clock)
    give(stream, clock, ramp(8), age=0.01)
    with pytest.raises(ChunkRefused, match=why):
        give(stream, clock, ramp(4, 0.9), **options)
    assert first(stream) == 0.0 and stream.latency_s == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        (np.zeros((0, 3)), "empty"),
        ([], "empty"),
        (np.zeros((4, 2)), "wrong length"),
        (np.zeros(4), "wrong length"),
        ([np.zeros(3), np.zeros(2)], "wrong length"),
        (np.zeros((257, 3)), "at most 256"),
        (np.array([[0, 0, np.nan]]), "not finite"),
        (np.array([[0, -np.inf, 0]]), "not finite"),
    ],
)
def test_malformed_actions_are_refused(clock: Clock, actions, why: str) -> None:
    with pytest.raises(ChunkRefused, match=why):
        give(make(clock), clock, actions)


def test_repeated_and_reordered_chunks_are_refused(clock: Clock) -> None:
    stream = make(clock)
    give(stream, clock, ramp(8))
    with pytest.raises(ChunkRefused, match="out of order"):
        give(stream, clock, ramp(8))  # the very same again
    clock.t += 0.1
    with pytest.raises(ChunkRefused, match="out of order"):
        give(stream, clock, ramp(8), age=0.11)
    stream.halt("stopped")
    with pytest.raises(ChunkRefused, match="out of order"):
        give(stream, clock, ramp(8), age=0.11)
    stream.clear()
    give(stream, clock, ramp(8), age=0.11)


def test_two_policies_at_once_are_refused(clock: Clock) -> None:
    stream = make(clock)
    give(stream, clock, ramp(8), sender="a")
    clock.t += 0.1
    with pytest.raises(ChunkRefused, match="two policies"):
        give(stream, clock, ramp(8), sender="b")
    give(stream, clock, ramp(8), sender="a")
    stream.clear()
    give(stream, clock, ramp(8), sender="b")


def test_a_small_difference_of_clocks_is_forgiven(clock: Clock) -> None:
    stream = make(clock)
    give(stream, clock, ramp(4), age=-0.04)
    assert first(stream) == 0.0 and stream.latency_s == 0.0


def test_a_frozen_wall_clock_does_not_prolong_a_chunk(clock: Clock) -> None:
    stream = make(clock)
    times = np.arange(4) * DT
    stream.accept(WALL, WALL, NAMES, ramp(4), times)
    clock.t += 0.3
    assert stream.step() is None
    with pytest.raises(ChunkRefused, match="out of order"):
        stream.accept(WALL, WALL, NAMES, ramp(4), times)


@given(
    gaps=st.lists(st.floats(0.001, 0.4), min_size=1, max_size=12),
    ages=st.lists(st.floats(0.0, 0.3), min_size=12, max_size=12),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_whatever_arrives_when_steps_follow_time(gaps: list[float], ages: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    clock = Clock()
    stream = make(clock)
    latest = -np.inf
    for gap, age in zip(gaps, ages, strict=False):
        wall = WALL + clock.t - 1000.0
        try:
            give(stream, clock, rng.uniform(-1, 1, (6, 3)), age=age)
            latest = wall - age
        except ChunkRefused:
            pass
        for _ in range(3):
            wall = WALL + clock.t - 1000.0
            step = stream.step()
            if step is None:
                assert wall - latest > 6 * DT + DT - 1e-3
            else:
                assert stream.stamp == latest and np.abs(step.action).max() <= 1.0
                assert (
                    step.index == min(int((wall - latest) / DT + 1e-5), 5)
                    or abs((wall - latest) / DT - round((wall - latest) / DT)) < 1e-4
                )
            clock.t += gap / 3


@pytest.mark.parametrize(("robot", "asked", "grace_s"), [("sim", None, 0.15), ("fr3", None, 0.05), ("sim", 0.02, 0.02)])
def test_a_simulated_arm_is_waited_for_longer_whoever_starts_it(
    robot: str, asked: float | None, grace_s: float
) -> None:
    streamer = Streamer(load_contract(robot), lambda what: None, grace_s=asked)
    assert streamer.stream.grace_s == pytest.approx(grace_s)
