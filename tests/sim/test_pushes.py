"""Pushes: momentum by arithmetic, their time and their draw, and worlds that go on from a snapshot."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import BadInput
from sim.embedded.pushes import MOMENTS, NONE, PUSH_STEPS, PUSHES, PushedWorlds
from sim.registry import WorldConfig


def worlds(n: int = 2, pushed: str = "thing", task: str = "lift") -> PushedWorlds:
    made = WorldConfig(task, pushed=pushed, threads=1).build(n)
    assert isinstance(made, PushedWorlds)
    return made


def one(k: int) -> NDArray[np.float64]:
    return np.eye(len(PUSHES))[k]


def still(env: PushedWorlds) -> NDArray[np.float32]:
    return np.zeros((env.num_envs, env.interface.action.size), np.float32)


@pytest.mark.long
def test_a_thing_moves_as_mujoco_alone_has_it_under_that_force() -> None:
    for k, direction in ((0, 0.0), (3, 0.75 * math.pi)):
        env = worlds()
        env.push(one(k), 3.0)
        env.reset(seed=0)
        before = env.truth.bodies["cube"].pos.copy()
        for _ in range(round(MOMENTS[0] * env.max_episode_steps)):
            env.step(still(env))
        np.testing.assert_allclose(env.truth.bodies["cube"].pos[:, :2], before[:, :2], atol=1e-4)
        alone = [env.batch.get_data(w) for w in range(2)]
        env.step(still(env))
        for w, data in enumerate(alone):
            model = env.batch.get_model(w)
            data.xfrc_applied[model.body("cube").id, :2] = 3.0 * math.cos(direction), 3.0 * math.sin(direction)
            for _ in range(round(0.05 / model.opt.timestep)):
                mujoco.mj_step(model, data)
            moved = env.truth.bodies["cube"].linear[w]
            np.testing.assert_allclose(moved, data.joint("cube").qvel[:3], atol=1e-6)
            assert 0.5 < np.hypot(*moved[:2]) < 3.0 * 0.05 / float(model.body("cube").mass[0]), "v < F t / m"
            assert math.atan2(moved[1], moved[0]) == pytest.approx(direction, abs=0.15)


def test_an_arm_yields_for_the_time_of_the_push_and_stays_there() -> None:
    env = worlds(pushed="arm")
    env.push(one(2), 40.0)  # along +y
    env.reset(seed=0)
    first = round(MOMENTS[0] * env.max_episode_steps)
    way = []
    for _ in range(first + PUSH_STEPS + 12):
        env.step(still(env))
        way.append(env.truth.tcp_pos[0].copy())
    moved = np.array(way) - way[first - 1]
    assert np.abs(moved[:first]).max() < 1e-3
    pushed = moved[first + PUSH_STEPS - 1]
    assert pushed[1] > 0.01 and pushed[1] > 3.0 * abs(pushed[0])
    later = moved[first + PUSH_STEPS + 3 :]
    assert np.ptp(later, axis=0).max() < 1e-3, "an action begins where the arm is, and nothing pushes any more"


def test_shares_of_pushes_are_those_that_were_asked_for_and_the_ended_one_is_known() -> None:
    env = worlds(40)
    half = 0.25 * (one(4) + one(9))
    env.push(half, 5.0)
    drawn = []
    for seed in range(10):
        env.reset(seed=seed)
        drawn.append(env.snapshot()["push"])
    counts = {int(k): int((np.array(drawn) == k).sum()) for k in np.unique(drawn)}
    assert counts.keys() == {NONE, 4, 9} and counts[NONE] + counts[4] + counts[9] == 400
    assert 160 <= counts[NONE] <= 240 and 70 <= counts[4] <= 130
    np.testing.assert_array_equal(env.ended_push, drawn[-2])


def test_unpushed_worlds_are_plain_ones_and_a_snapshot_goes_on_within_a_push() -> None:
    env, plain = worlds(), WorldConfig("lift", threads=1).build(2)
    for world in (env, plain):
        world.reset(seed=3)
    for _ in range(12):
        a, b = env.step(still(env)), plain.step(still(env))
        np.testing.assert_array_equal(a[0]["objects"], b[0]["objects"])
    env.push(one(0), 2.0)
    env.reset(seed=3)
    for _ in range(round(MOMENTS[0] * env.max_episode_steps) + 1):
        env.step(still(env))
    other = worlds()
    other.restore(env.snapshot())
    env.push(one(0), 0.0)  # the running episodes keep their force
    other.push(one(0), 9.0)
    for _ in range(5):
        np.testing.assert_array_equal(env.step(still(env))[0]["objects"], other.step(still(env))[0]["objects"])


def test_what_cannot_be_pushed_is_refused() -> None:
    with pytest.raises(BadInput, match="pushed: got table; available: arm, thing"):
        worlds(pushed="table")
    with pytest.raises(BadInput, match="pushes: got panda_pair, expected a task for one arm"):
        worlds(task="lift_two")


def test_a_force_that_is_no_push_is_refused_and_the_strongest_breaks_no_world() -> None:
    env = worlds(pushed="arm")
    for wrong in (-1.0, 1000.1, 1e9, math.nan, math.inf):
        with pytest.raises(BadInput, match=r"force of a push: got .* N, expected 0 to 1000 N"):
            env.push(one(0), wrong)
    env.push(one(2), env.strongest)
    seen = env.reset(seed=0)[0]
    for _ in range(round(MOMENTS[0] * env.max_episode_steps) + PUSH_STEPS + 1):
        seen = env.step(still(env))[0]
    assert np.isfinite(seen["proprio"]).all()
