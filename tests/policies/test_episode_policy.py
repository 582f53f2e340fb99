"""A recorded episode, replayed: the world itself says whether the same was done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from policies.storage.loading import check_policy, needed_by, open_policy
from robolearn import EpisodeWriter, make_env, make_expert
from robolearn.core import BadInput, Interface

SEED = 7


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[np.ndarray], Interface]:
    """A set of two episodes, the second of which lifts the cube; what was seen of it; its interface."""
    path = tmp_path_factory.mktemp("data") / "lift"
    env = make_env("lift", 1)
    with EpisodeWriter(path, env.interface) as writer:
        writer.add({key: np.zeros(spec.shape) for key, spec in env.interface.observation.items()}, np.zeros(7))
        writer.end(success=False, truncated=True, task="lift")
        expert = make_expert("lift", env.interface, 1, "narrow", 0)
        observation, _ = env.reset(seed=SEED)
        expert.reset(np.ones(1, bool))
        seen, done = [], False
        while not done:
            seen.append(observation["objects"][0].copy())
            action = expert.command(observation)
            writer.add({key: observation[key][0] for key in env.interface.observation}, action[0])
            observation, _, terminated, truncated, _ = env.step(action)
            done = bool(terminated[0] or truncated[0])
        assert terminated[0]
        writer.end(success=True, terminated=True, task="lift")
    return f"episode:{path}#1", seen, env.interface


def test_from_the_same_start_the_same_happens_to_the_bit(recorded) -> None:
    name, seen, _ = recorded
    policy, env = open_policy(name), make_env("lift", 1)
    policy.reset(0)
    for _ in range(2):  # a second episode begins with the first action again
        policy.begin(np.ones(1, bool))
        observation, _ = env.reset(seed=SEED)
        for t, was in enumerate(seen):
            assert np.array_equal(observation["objects"][0], was), t
            if t % policy.execute_steps == 0:
                chunk = policy.act(observation)
            else:
                policy.observe(observation)
            observation, _, terminated, _, _ = env.step(chunk[:, t % policy.execute_steps])
        assert terminated[0]


def test_worlds_that_began_at_different_times_are_at_different_steps(recorded) -> None:
    name, seen, _ = recorded
    policy = open_policy(name)
    first = {"proprio": np.zeros((2, *policy.interface.observation["proprio"].shape))}
    policy.begin(np.array([True, True]))
    for _ in range(3):
        policy.observe(first)
    policy.begin(np.array([False, True]))
    one, two = policy.act(first)
    assert np.array_equal(one[:8], two[3:11]) and not np.array_equal(one, two)
    for _ in range(len(seen)):
        policy.observe(first)
    after = policy.act(first)[0]
    assert not after[:, :6].any() and (after[:, 6] == after[0, 6]).all() and after[0, 6] != 0  # it holds, and grips


def test_it_says_where_the_arm_is_not_where_the_episode_begins(recorded) -> None:
    policy = open_policy(recorded[0])
    env = make_env("lift", 1)
    here = env.reset(seed=SEED)[0]["proprio"].astype(float)
    assert policy.unfamiliar({"proprio": here}) == ("", "")
    here[0, 2] += 0.06
    name = env.interface.observation["proprio"].names[2]
    refused, said = policy.unfamiliar({"proprio": here})
    assert not refused and f"{name} at {here[0, 2]:.3f}, recorded {here[0, 2] - 0.06:.3f}" in said and ";" not in said


def test_another_arm_and_an_episode_that_there_is_not_are_refused(recorded) -> None:
    name, _, interface = recorded
    assert set(needed_by(name).observation) == {"proprio"}
    check_policy(name, interface, what="x", simulated=False)
    with pytest.raises(BadInput, match="it was made for panda, this is fr3"):
        check_policy(name, make_env("lift", 1, robot="fr3").interface, what="x")
    for wrong, said in (("#2", "2"), ("#-1", "-1"), ("#x", "x")):
        with pytest.raises(BadInput, match=said):
            open_policy(name.replace("#1", wrong))
    with pytest.raises(BadInput, match="/nowhere"):
        open_policy("episode:" + str(Path("/nowhere/at/all")))
