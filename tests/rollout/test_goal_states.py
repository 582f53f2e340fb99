"""Ends of demonstrations: the goal of each episode, beside worlds that are stepped by hand."""

from __future__ import annotations

import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.rollout.collect import goal_states
from sim.experts import make_expert
from sim.registry import make_env

SEED, EACH = 11, np.array([2, 1, 2])


@pytest.mark.long
def test_each_episode_has_the_end_of_the_demonstration_from_its_own_start() -> None:
    env = make_env("lift_to", 3, threads=1)
    ends, success = goal_states(env, make_expert("lift_to", env.interface, 3, "expert", 0), EACH, SEED, ("objects",))
    assert success == 1.0 and list(ends) == ["objects"] and ends["objects"].shape == (3, 2, 12)
    np.testing.assert_array_equal(ends["objects"][1, 0], ends["objects"][1, 1])  # it has one episode
    # By hand, with no engine, in more worlds, and whoever meets the same seed meets the same targets.
    other = make_env("lift_to", 4, threads=1)
    expert = make_expert("lift_to", other.interface, 4, "expert", 0)
    observation, _ = other.reset(seed=SEED)
    expert.reset(np.ones(4, bool))
    done, targets = np.zeros(4, np.int64), {(w, 0): observation["target"][w].copy() for w in range(4)}
    for _ in range(200):
        last = {key: value.copy() for key, value in observation.items()}
        observation, _, terminated, truncated, _ = other.step(expert.command(observation))
        for w in np.flatnonzero(terminated | truncated):
            if w < 3 and done[w] < EACH[w]:
                place = last["objects"][w, :3]
                assert np.linalg.norm(ends["objects"][w, done[w], :3] - place) < 0.005  # strategies draw no other way
                assert np.linalg.norm(place - targets[w, done[w]]) < 0.02
            done[w] += 1
            targets[w, done[w]] = observation["target"][w].copy()
        expert.reset(terminated | truncated)
        if (done[:3] >= 2).all():
            break
    assert (done[:3] >= 2).all()
    assert np.linalg.norm(targets[0, 0] - targets[0, 1]) > 0.01 < np.linalg.norm(targets[0, 0] - targets[2, 0])


def test_no_camera_and_no_object_shows_the_goal() -> None:
    """Two worlds with equal starts and other targets look alike."""
    env = make_env("lift_to", 1, cameras=("front",), image_size=48, threads=1)
    observation, _ = env.reset(seed=3)
    before = {key: value.copy() for key, value in observation.items()}
    snapshot = env.snapshot()
    assert snapshot is not None
    env.physics._mocap_pos[:] += 0.05  # type: ignore[attr-defined]
    moved = env.restore({**snapshot, "state": env.batch.state.copy()})  # type: ignore[attr-defined]
    np.testing.assert_allclose(moved["target"], before["target"] + 0.05, atol=1e-6)
    for key in ("objects", "proprio", "images.front"):
        np.testing.assert_array_equal(moved[key], before[key])
    assert "target" in env.interface.privileged
    env.close()


def test_an_expert_without_the_goal_is_refused() -> None:
    from dataclasses import replace

    interface = make_env("lift_to", 1, threads=1).interface
    blind = replace(interface, observation={k: s for k, s in interface.observation.items() if k != "target"})
    with pytest.raises(BadInput, match="scripted expert for task lift_to: got no 'target', expected the goal"):
        make_expert("lift_to", blind, 1, "expert", 0)
