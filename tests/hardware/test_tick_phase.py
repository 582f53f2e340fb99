"""Ticks that are led to what arrives: judged by arrivals of a clock of their own, and by how fast a motion becomes."""

from __future__ import annotations

import random

import pytest

from hardware.execution.tick_phase import TickPhase

PERIOD = 0.005
EVERY = 40  # ticks from one arrival to the next
TRANSIT_S = 0.0003  # from sending to where a tick finds it
JITTER_S = 0.0003


def played(phase_s: float, *, decisions: int = 120, at_rest: int = 0, seed: int = 0) -> tuple[list[float], list[float]]:
    """(waits of what arrives [s], intervals of the ticks [s]); arrivals come `phase_s` after the ticks as they begin,
    the first `at_rest` decisions with the arm at rest."""
    ticks, draw = TickPhase(PERIOD), random.Random(seed)
    arrivals = [phase_s + k * EVERY * PERIOD + draw.gauss(0.0, JITTER_S) for k in range(1, decisions + 1)]
    now, waits, intervals = 0.0, [], []
    while arrivals:
        if arrivals[0] + TRANSIT_S <= now:
            waits.append(now - arrivals.pop(0))
            ticks.waited(waits[-1])
        interval = PERIOD + ticks.shift(at_rest=len(waits) < at_rest)
        intervals.append(interval)
        now += interval
    return waits, intervals


@pytest.mark.parametrize("phase_ms", [0.0, 0.4, 1.1, 2.4, 2.6, 3.3, 4.2, 4.9])
def test_what_arrives_at_a_steady_phase_waits_for_a_third_of_the_time(phase_ms: float) -> None:
    waits, _ = played(1e-3 * phase_ms)
    settled = waits[40:]
    late = [wait for wait in settled if wait > PERIOD]
    assert sum(settled) / len(settled) < 0.35 * PERIOD, "half a period without"
    assert len(late) <= 0.05 * len(settled), "those that came too late for the tick before"


@pytest.mark.parametrize("seed", range(4))
def test_few_that_are_slow_do_not_make_all_others_wait(seed: int) -> None:
    """One in ten comes 2 ms later than the others and waits for another tick, the others for a tenth of a period."""
    ticks, draw = TickPhase(PERIOD), random.Random(seed)
    sent = [0.001 + k * EVERY * PERIOD + (0.002 if k % 10 == 5 else draw.random() * JITTER_S) for k in range(1, 200)]
    now, waits = 0.0, []
    while len(waits) < len(sent):
        if sent[len(waits)] + TRANSIT_S <= now:
            waits.append(now - sent[len(waits)])
            ticks.waited(waits[-1])
        now += PERIOD + ticks.shift(at_rest=False)
    settled = sorted(waits[80:])
    assert settled[len(settled) // 2] < 0.2 * PERIOD and sum(settled) / len(settled) < 0.3 * PERIOD
    assert sum(wait > 0.35 * PERIOD for wait in settled) <= 0.11 * len(settled)


@pytest.mark.parametrize("phase_ms", [0.5, 2.0, 3.5, 4.8])
def test_a_motion_becomes_no_faster_than_its_ticks_are_noisy(phase_ms: float) -> None:
    _, intervals = played(1e-3 * phase_ms)
    assert min(intervals) >= 0.998 * PERIOD - 1e-12, "two thousandths faster"
    assert max(intervals) <= 1.02 * PERIOD + 1e-12


def test_an_arm_at_rest_has_its_ticks_led_at_once() -> None:
    slow, quick = (played(0.0028, at_rest=n)[0] for n in (0, 2))
    assert quick[1] + 3e-4 < slow[1]


def test_what_was_held_up_and_what_comes_from_the_future_say_nothing() -> None:
    ticks = TickPhase(PERIOD)
    for wait in (0.02, 1.0, -0.001, float("nan")):
        ticks.waited(wait)
    assert ticks.shift(at_rest=True) == 0.0


def test_one_that_came_just_too_late_moves_the_ticks_later() -> None:
    ticks = TickPhase(PERIOD)
    ticks.waited(PERIOD + 0.0002)
    moved = [ticks.shift(at_rest=False) for _ in range(20)]
    assert sum(moved) == pytest.approx(0.0003) and min(moved) >= 0.0
