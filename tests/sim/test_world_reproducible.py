"""World w depends on (seed, w) and its actions alone, bit for bit; snapshots continue exactly."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import BadInput
from sim.embedded.world import MujocoWorlds
from sim.experts import make_expert
from sim.registry import make_env
from sim.tasks import TASKS

# Long enough that every world of every task ends at least one episode by time-out or loss.
CHUNKS, LENGTH = 52, 4


def actions(n: int, seed: int = 0, task: str = "lift") -> NDArray[np.float32]:
    """(CHUNKS, n, LENGTH, 7 of each arm) random actions; world w's do not depend on n."""
    size = 7 * TASKS[task]().arms
    draws = [np.random.default_rng([seed, w]).uniform(-1, 1, (CHUNKS, LENGTH, size)) for w in range(n)]
    return np.stack(draws, 1).astype(np.float32)


def play(env: MujocoWorlds, chunks: NDArray[np.float32]) -> dict[str, NDArray]:
    """Everything that the env says, stacked over chunks."""
    rows: dict[str, list[NDArray]] = {}
    for chunk in chunks:
        observation, reward, terminated, truncated, infos = env.step_chunk(chunk)
        said = {**observation, "reward": reward, "terminated": terminated, "truncated": truncated}
        said |= {"success": infos["success"], "steps": infos["steps"], "state": env.batch.state}
        for key, value in infos["final_obs"].items():
            said[f"final_{key}"] = np.where(infos["_final_obs"][:, None], value, 0)
        for key in ("final_proprio", "final_objects"):
            said.setdefault(key, np.zeros_like(observation[key.removeprefix("final_")]))
        for key, value in said.items():
            rows.setdefault(key, []).append(np.array(value))
    return {key: np.stack(values) for key, values in rows.items()}


def same(a: dict[str, NDArray], b: dict[str, NDArray], worlds: slice = slice(None)) -> None:
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_array_equal(a[key][:, worlds], b[key][:, worlds], err_msg=key)


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_threads_and_the_number_of_worlds_change_nothing(task: str) -> None:
    runs = []
    for n, threads in ((3, 1), (3, 2), (8, 1)):
        env = make_env(task, n, threads=threads)
        first = env.reset(seed=7)[0]
        runs.append((first, play(env, actions(n, task=task))))
    ended = runs[0][1]["terminated"] | runs[0][1]["truncated"]
    assert ended.any(0).all()  # resets are compared as well
    for first, said in runs[1:]:
        for key, value in runs[0][0].items():
            np.testing.assert_array_equal(first[key][:3], value)
        same({k: v[:, :3] for k, v in said.items()}, runs[0][1])


@pytest.mark.long
def test_a_seed_is_one_sequence_of_starts_whatever_happened_before() -> None:
    env = make_env("lift", 3, threads=1)
    env.reset(seed=1)
    once = play(env, actions(3))
    env.reset(seed=2)
    other = play(env, actions(3))
    env.reset(seed=1)
    same(play(env, actions(3)), once)
    assert np.any(other["objects"][0] != once["objects"][0], axis=1).all()


def test_the_starts_do_not_depend_on_the_episodes_lengths() -> None:
    """Two policies that are compared with one seed meet the same starts, each in its own time."""
    starts = []
    for hasty in (False, True):
        env = make_env("lift", 2, threads=1)
        observation, _ = env.reset(seed=3)
        seen = [observation["objects"].copy()]
        expert = make_expert("lift", env.interface, 2, "expert", 0)
        expert.reset(np.ones(2, bool))
        active = np.ones(2, bool)
        while active.any():  # one episode each: quick by the expert, or 100 idle steps
            action = expert.command(observation) if hasty else np.zeros((2, 7), np.float32)
            observation, _, terminated, truncated, _ = env.step_chunk(action[:, None], active)
            active &= ~(terminated | truncated)
        seen.append(observation["objects"].copy())
        starts.append(seen)
    np.testing.assert_array_equal(starts[0][0], starts[1][0])
    np.testing.assert_array_equal(starts[0][1], starts[1][1])


def test_without_a_seed_the_sequence_goes_on_and_the_first_is_random() -> None:
    env, other = make_env("lift", 2, threads=1), make_env("lift", 2, threads=1)
    a, b = env.reset()[0]["objects"], other.reset()[0]["objects"]
    assert np.any(a != b)
    env.reset(seed=4)
    second = env.reset()[0]["objects"].copy()
    env.reset(seed=4)
    np.testing.assert_array_equal(env.reset()[0]["objects"], second)
    assert np.any(env.reset(seed=4)[0]["objects"] != second)


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_a_snapshot_continues_bit_for_bit_through_ends_of_episodes(task: str) -> None:
    env = make_env(task, 3, threads=1)
    env.reset(seed=5)
    chunks = actions(3, seed=1, task=task)
    play(env, chunks[:20])
    kept = env.snapshot()
    future = play(env, chunks[20:])
    assert (future["terminated"] | future["truncated"]).any()
    for place in (env, make_env(task, 3, threads=2)):  # here, and in another process' place
        observation = place.restore(kept)
        for key, value in place._observation.items():
            np.testing.assert_array_equal(observation[key], value)
        same(play(place, chunks[20:]), future)


def test_a_snapshot_is_a_copy_of_plain_arrays() -> None:
    env = make_env("lift", 2, threads=1)
    env.reset(seed=0)
    kept = env.snapshot()
    copies = {key: value.copy() for key, value in kept.items()}
    play(env, actions(2)[:3])
    for key, value in kept.items():
        assert isinstance(value, np.ndarray) and value.dtype != object
        np.testing.assert_array_equal(value, copies[key])


def test_a_snapshot_of_other_worlds_is_refused() -> None:
    env, more, other = make_env("lift", 2), make_env("lift", 3), make_env("peg_insert", 2)
    env.reset(seed=0)
    for place in (more, other):
        with pytest.raises(BadInput, match="snapshot"):
            place.restore(env.snapshot())
