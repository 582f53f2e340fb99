"""A thing that the words do not mean: it changes nothing else, and who grasps it has failed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.core.specs import DISTRACTOR
from sim.experts import QUALITIES, make_expert
from sim.experts.failures import KINDS
from sim.registry import WorldConfig, make_env

TASKS = ("lift", "pick_place")


def lying(env: Any) -> np.ndarray:
    """(N, 3) where the distractor is, by the engine's own state."""
    at = int(env.model.joint(DISTRACTOR).qposadr[0])
    return env.physics.qpos[:, at : at + 3].copy()


@pytest.mark.parametrize("task", TASKS)
def test_it_lies_aside_and_starts_are_those_without_it(task: str) -> None:
    """It is where the observation says, a hand's room from the cube and the disc, and again there with the seed."""
    plain: Any = make_env(task, 40, threads=1)
    env: Any = make_env(task, 40, distractor=True, threads=1)
    bare, _ = plain.reset(seed=5)
    seen, _ = env.reset(seed=5)
    assert set(seen) == {*bare, DISTRACTOR}
    for key, value in bare.items():
        np.testing.assert_array_equal(seen[key], value)
    found = lying(env)
    np.testing.assert_allclose(seen[DISTRACTOR][:, :3], found, atol=1e-6)
    for name in [body for body in ("cube", "target") if body in env.world_task.bodies]:
        gaps = np.linalg.norm((env.physics.state().bodies[name].pos - found)[:, :2], axis=1)
        assert gaps.min() > 0.11
    assert (np.abs(found[:, 2] - 0.02) < 1e-6).all() and np.ptp(found[:, 1]) > 0.3
    env.reset(seed=6)
    assert np.abs(lying(env) - found).max() > 0.1
    env.reset(seed=5)
    np.testing.assert_array_equal(lying(env), found)
    names = plain.interface.observation
    assert set(env.interface.seeing((), what="world").observation) == set(names), "policies do not see it"


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_who_grasps_it_carries_it_and_has_failed(task: str) -> None:
    env: Any = make_env(task, 24, distractor=True, threads=1)
    expert = make_expert(task, env.interface, 24, DISTRACTOR, 0)
    observation, _ = env.reset(seed=3)
    active = np.ones(24, bool)
    expert.reset(active)
    begun, highest = env.physics.state().bodies["cube"].pos.copy(), np.zeros(24)
    last, target = lying(env), env.physics.state().bodies.get("target", env.physics.state().bodies["cube"]).pos.copy()
    while active.any():
        now = lying(env)
        last[active], highest = now[active], np.where(active, np.maximum(highest, now[:, 2]), highest)
        cube = env.physics.state().bodies["cube"].pos
        assert np.abs(cube - begun)[active].max() < 0.01, "the cube lies where it lay"
        observation, _, terminated, truncated, infos = env.step_chunk(expert.command(observation)[:, None], active)
        assert not infos["success"].any() and not terminated.any()
        active &= ~(terminated | truncated)
    assert {expert.failure(w) for w in range(24)} == {DISTRACTOR}
    assert (highest > 0.06).mean() > 0.9
    if task == "pick_place":
        assert (np.linalg.norm((last - target)[:, :2], axis=1) < 0.03).mean() > 0.9, "on the disc"
    else:
        assert (last[:, 2] > 0.1).mean() > 0.9


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_it_is_in_nobodys_way(task: str) -> None:
    """The script succeeds in all of 100 episodes, beside it."""
    env: Any = make_env(task, 100, distractor=True, threads=1)
    expert = make_expert(task, env.interface, 100, "expert", 0)
    observation, _ = env.reset(seed=11)
    active, solved = np.ones(100, bool), np.zeros(100, bool)
    expert.reset(active)
    while active.any():
        observation, _, terminated, truncated, infos = env.step_chunk(expert.command(observation)[:, None], active)
        solved |= infos["success"] & active
        active &= ~(terminated | truncated)
    assert solved.all()


def test_all_kinds_have_it_where_it_lies() -> None:
    """And there alone: the turns of the kinds without it are as they were."""
    env = make_env("lift", 7, threads=1)
    beside = make_env("lift", 7, distractor=True, threads=1)
    for worlds, kinds in ((env, [*KINDS, KINDS[0]]), (beside, [*KINDS, DISTRACTOR])):
        expert = make_expert("lift", worlds.interface, 7, "failures", 0)
        expert.reset(np.ones(7, bool))
        assert [expert.failure(w) for w in range(7)] == kinds
    assert QUALITIES["failures"].failures == KINDS
    with pytest.raises(BadInput, match=r"got a world without one, expected --distractor, in lift or pick_place"):
        make_expert("lift", env.interface, 1, DISTRACTOR, 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": "peg_insert"}, "--distractor: got task peg_insert, expected lift or pick_place"),
        ({"task": "lift_to"}, "--distractor: got task lift_to, expected lift or pick_place"),
        ({"task": "gym:a:B-v0"}, "got option distractor, expected an embedded task"),
        ({"cousins": "train"}, "--distractor: got it with --cousins, expected one of them"),
        ({"two_way": True}, "--distractor: got it with --back-policy, expected one of them"),
        ({"begin_along": True}, "--distractor: got it with --begin-along, expected one of them"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said.replace("-", r"\-")):
        WorldConfig(**{"task": "lift", **options, "distractor": True}).build(1)
    assert WorldConfig("lift", distractor=True).drawn() == {"distractor": True} and not WorldConfig("lift").drawn()
