"""Pairs that are not looked at each time hide nothing: MuJoCo judges both arms at every posture of fast motions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import pi

import numpy as np
import pytest

from hardware.safety import Limits
from hardware.safety.collision import Collision
from robolearn.bench.safety.pair import PairJudge
from robots import PAIRS, PANDA, UR5E, PairSpec
from robots.spec import ArmPart, Base

PERIOD, AHEAD = 0.01, 4  # [s], postures that are looked at ahead of each
FACING = PairSpec(
    "facing", (ArmPart("left", PANDA, Base((0.0, 0.1, 0.0))), ArmPart("right", UR5E, Base((1.1, 0.0, 0.1), pi)))
)
BOTH = pytest.mark.parametrize("pair", [PAIRS["panda_pair"], FACING], ids=["panda_pair", "facing"])


def collision(pair: PairSpec) -> Collision:
    return Collision([part.chain for part in pair.parts], pair.pieces, Limits.of(pair), np.array(pair.home))


def fast(pair: PairSpec, postures: int, seed: int) -> Iterator[np.ndarray]:
    """Ways (`AHEAD` + 2, n) of postures one period apart, each beginning one further on: every joint as fast as it may
    be to one random place after the other, and home again."""
    rng, limits = np.random.default_rng(seed), Limits.of(pair)
    step, home = PERIOD * limits.velocity, np.array(pair.home)
    way, goal = [home], home
    while len(way) < postures + AHEAD + 2:
        if np.array_equal(way[-1], goal):
            goal = rng.uniform(limits.lower, limits.upper) if goal is home else home
        way.append(way[-1] + np.clip(goal - way[-1], -step, step))
    for k in range(postures):
        yield np.stack(way[k : k + AHEAD + 2])


@pytest.mark.long
@BOTH
def test_no_pair_comes_near_between_two_looks_at_it(pair: PairSpec) -> None:
    found, judge = collision(pair), PairJudge(pair, Limits.of(pair))
    allowed, near, clear, gone = found.arm.allowed[0, 0], 0, [], [0.0]
    gaps: deque[float] = deque([np.inf], AHEAD + 2)  # of the postures of a way; overlaps have no depth
    for way in fast(pair, 1600, seed=4):
        excess = found.look(way, PERIOD * AHEAD)[0].excess
        clear.append(np.mean(found.odometers.until > -np.inf))
        gone.append(found.odometers.readings[0].max())
        gaps.append(max(judge.between(way[-1]), 0.0))
        assert excess >= allowed - min(gaps) - 1e-5
        near += min(gaps) < allowed
    assert near > 25 and np.median(clear) > 0.5, (near, np.median(clear))
    assert min(np.diff(gone)) < -49.0  # they began anew


@pytest.mark.long
@BOTH
def test_looking_less_often_changes_no_verdict(pair: PairSpec) -> None:
    """To the last bit, also over a jump, and back: as if every bound were worked out each time."""
    found, all_of_them, rng = collision(pair), collision(pair), np.random.default_rng(1)
    home, seen = np.array(pair.home), 0
    for k, way in enumerate(fast(pair, 2500, seed=5)):
        if k % 100 == 50:
            way = rng.uniform(pair.lower, pair.upper)[None]
        elif k % 100 == 75:
            way = home + rng.uniform(-0.1, 0.1) * np.arange(3)[:, None] * np.sign(home)
        all_of_them.odometers.until[:] = -np.inf
        verdict = found.look(way, PERIOD * AHEAD)
        assert verdict == all_of_them.look(way, PERIOD * AHEAD)
        np.testing.assert_array_equal(found.arm.apart, all_of_them.arm.apart)
        seen += verdict[0].excess > 0.0
    assert seen > 100
