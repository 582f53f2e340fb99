"""Which episode a world meets: start ids, and ranges of starts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import BadInput
from sim.embedded.task import Start
from sim.embedded.world import MujocoWorlds
from sim.registry import make_env
from sim.tasks import TASKS


def drawn(env: MujocoWorlds) -> NDArray:
    """(N, …) everything that is drawn for an episode: the state, friction, mass and delay."""
    friction, mass = (np.array(env.batch.expand(name)) for name in ("geom_friction", "body_mass"))
    n = env.num_envs
    return np.concatenate([env.batch.state, friction.reshape(n, -1), mass, env.physics.delay[:, None]], -1)


def noise(n: int, steps: int, seed: int = 0, size: int = 7) -> NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(-1, 1, (n, steps, size)).astype(np.float32)


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("threads", [1, 2])
def test_equal_ids_meet_equal_episodes_whatever_the_worlds_and_their_lengths(task: str, threads: int) -> None:
    env = make_env(task, 6, threads=threads)
    ids = np.array([9, 4, 9, 4, 9, 1])
    env.reset(seed=3, options={"start_ids": ids})
    first = drawn(env)
    for i, j in ((0, 2), (0, 4), (1, 3)):
        np.testing.assert_array_equal(first[i], first[j])
    assert np.any(first[0] != first[1]) and np.any(first[0] != first[5])
    # Episodes end at different times, in the course of stepping; the second of equal ids is equal again.
    second: dict[int, NDArray] = {}
    actions = noise(6, 2 * env.max_episode_steps, size=env.interface.action.size)
    for t in range(actions.shape[1]):
        delay = np.arange(6) * 3
        _, _, terminated, truncated, _ = env.step(actions[:, t], t >= delay)
        for w in np.flatnonzero(terminated | truncated):
            second.setdefault(int(w), drawn(env)[w])
    assert len(second) == 6
    for i, j in ((0, 2), (0, 4), (1, 3)):
        np.testing.assert_array_equal(second[i], second[j])
    assert np.any(second[0] != first[0]) and np.any(second[0] != second[1])


def test_ids_are_those_of_the_worlds_by_default_and_begin_their_sequences_anew() -> None:
    env = make_env("lift", 3, threads=1)
    env.reset(seed=5)
    default = drawn(env)
    env.reset(seed=5, options={"start_ids": np.arange(3)})
    np.testing.assert_array_equal(drawn(env), default)
    env.step_chunk(noise(3, 10))
    env.reset(options={"start_ids": [2, 2, 0]})  # the seed stays
    np.testing.assert_array_equal(drawn(env), default[[2, 2, 0]])
    env.reset()  # on in the sequences of these ids
    after = drawn(env)
    np.testing.assert_array_equal(after[0], after[1])
    env.reset(seed=5), env.reset()
    np.testing.assert_array_equal(after, drawn(env)[[2, 2, 0]])


def test_a_snapshot_keeps_ids_and_physics() -> None:
    env, other = make_env("lift", 4, threads=1), make_env("lift", 4, threads=1)
    env.reset(seed=1, options={"start_ids": [3, 3, 8, 8]})
    env.step_chunk(noise(4, 100), np.array([True, True, False, True]))  # some are in their second episode
    kept = env.snapshot()
    assert kept is not None
    other.restore(kept)
    np.testing.assert_array_equal(drawn(other), drawn(env))
    for place in (env, other):
        place.step_chunk(noise(4, 200, seed=1))
        place.reset()
    np.testing.assert_array_equal(drawn(other), drawn(env))


@pytest.mark.parametrize(
    "options",
    [{"start_ids": [1, 2]}, {"start_ids": [0.5, 1.0, 2.0]}, {"start_ids": [-1, 0, 1]}, {"start_id": [0, 1, 2]}],
)
def test_bad_ids_are_refused(options: dict) -> None:
    env = make_env("lift", 3, threads=1)
    with pytest.raises(BadInput, match="start_ids"):
        env.reset(seed=0, options=options)


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_a_narrow_range_lies_in_the_middle_of_the_whole(task: str) -> None:
    """By half: each drawn number lies as far from the middle of its range as before, halved."""
    for kind in range(3):
        rows = {}
        for share in (1.0, 0.5):
            made = TASKS[task](start_range=share)
            starts = [s for k in range(600) if kind_of(s := made.start(np.random.default_rng(k))) == kind]
            rows[share] = np.array(
                [
                    [
                        *np.ravel(s.tcp_offset),
                        *np.ravel(s.tcp_yaw),
                        *(x for pose in s.bodies.values() for x in pose[:2]),
                    ]
                    for s in starts
                ]
            )
        assert len(rows[1.0]) == len(rows[0.5])
        if not len(rows[1.0]):
            continue
        middle = 0.5 * (rows[1.0].max(0) + rows[1.0].min(0))
        extent, half = (np.ptp(rows[share], axis=0) for share in (1.0, 0.5))
        np.testing.assert_allclose(half, 0.5 * extent, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(rows[0.5] - middle, 0.5 * (rows[1.0] - middle), atol=0.01 * extent.max())


def kind_of(start: Start) -> int:
    """0; 1 where a thing is held, 2 where the cube lies on the disc: a way back begins now so, now so."""
    if start.held and "place" in start.bodies:
        return 1
    if not {"cube", "target", "place"} <= start.bodies.keys():
        return 0
    return 2 if np.abs((start.bodies["cube"] - start.bodies["target"])[:2]).max() < 0.021 else 0


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_a_range_of_nothing_is_refused(share: float) -> None:
    with pytest.raises(BadInput, match="start range"):
        make_env("lift", 1, start_range=share)
