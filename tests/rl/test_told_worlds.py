"""Worlds that say what to do: bit for bit those that stand in them, and one policy of two tasks by the words alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.core import BadInput
from robolearn.core.specs import PROMPT
from robolearn.eval import evaluate
from robolearn.rollout.told_worlds import ToldWorlds

Make = Callable[..., Any]
WORDS = {"come to 0": [1.0, 0.0, 0.0], "the other way round": [0.0, 1.0, 0.0]}


def embed(sentences: Any) -> np.ndarray:
    return np.array([WORDS[one] for one in sentences], np.float32)


def reversed_point(point: Make, num_envs: int, **settings: Any) -> Any:
    """A point that every action moves the other way."""
    world = point(num_envs, **settings)
    one, many = world.step, getattr(world, "step_chunk", None)
    world.task, world.prompt = "reversed", "the other way round"
    world.step = lambda actions, active=None: one(-actions, active)
    if many is not None:
        world.step_chunk = lambda chunks, active=None: many(-chunks, active)
    return world


def both(point: Make, counts: tuple[int, int] = (3, 2), **settings: Any) -> tuple[ToldWorlds, list[Any]]:
    """Worlds of two tasks together, and the same alone."""
    made = [[point(counts[0], **settings), reversed_point(point, counts[1], **settings)] for _ in range(2)]
    return ToldWorlds(made[0], embed, "both"), made[1]


def assert_alike(told: Any, alone: list[Any], counts: tuple[int, int] = (3, 2)) -> None:
    """What `told` gives is what the parts give `alone`, one after the other, and the words of each."""
    observation, reward, terminated, truncated, infos = told
    np.testing.assert_array_equal(observation["proprio"], np.concatenate([one[0]["proprio"] for one in alone]))
    np.testing.assert_array_equal(observation[PROMPT], np.repeat([*WORDS.values()], counts, axis=0))
    for i, value in ((1, reward), (2, terminated), (3, truncated)):
        np.testing.assert_array_equal(value, np.concatenate([one[i] for one in alone]))
    np.testing.assert_array_equal(infos["success"], np.concatenate([one[4]["success"] for one in alone]))
    ended = np.concatenate([one[4]["_final_obs"] for one in alone])
    np.testing.assert_array_equal(infos["_final_obs"], ended)
    if ended.any():
        final = [one[4]["final_obs"].get("proprio", np.zeros((n, 2))) for one, n in zip(alone, counts, strict=True)]
        np.testing.assert_array_equal(infos["final_obs"]["proprio"][ended], np.concatenate(final)[ended])
        assert infos["final_obs"][PROMPT].shape == (5, 3)


@pytest.mark.parametrize("chunks", [True, False])
def test_they_are_the_worlds_that_stand_in_them(point: Make, chunks: bool) -> None:
    told, alone = both(point, chunks=chunks)
    rng, ends, counts = np.random.default_rng(0), 0, np.zeros((2, 2))
    seen = told.reset(seed=7)[0]
    np.testing.assert_array_equal(seen["proprio"], np.concatenate([one.reset(seed=7)[0]["proprio"] for one in alone]))
    for k in range(12):
        actions, active = rng.uniform(-1, 1, (5, 1)).astype(np.float32), rng.random(5) < 0.7
        active[[0, 3]] = True
        result = told.step(actions, active) if k % 2 else told.step(actions)
        parts = [(actions[:3], active[:3]), (actions[3:], active[3:])]
        assert_alike(result, [one.step(*(part if k % 2 else part[:1])) for one, part in zip(alone, parts, strict=True)])
        ends += int(result[4]["_final_obs"].sum())
        for k, rows in enumerate((slice(0, 3), slice(3, 5))):  # success ends an episode here
            counts[k] += result[4]["success"][rows].sum(), result[4]["_final_obs"][rows].sum()
    assert ends == counts[:, 1].sum() > 5 and (counts[:, 0] > 0).all()
    rates = counts[:, 0] / counts[:, 1]
    assert told.success_of_tasks() == {"success/point": rates[0], "success/reversed": rates[1]}
    assert all(np.isnan(rate) for rate in told.success_of_tasks().values()), "none since"
    kept = told.snapshot()
    assert kept is not None
    first = told.step(actions)
    told.restore(kept)
    for a, b in zip(first[:4], told.step(actions)[:4], strict=True):
        np.testing.assert_equal(a, b)


def test_chunks_end_where_they_end_alone(point: Make) -> None:
    told, alone = both(point)
    told.reset(seed=3)
    for one in alone:
        one.reset(seed=3)
    rng = np.random.default_rng(1)
    for _ in range(6):
        chunks = rng.uniform(-1, 1, (5, 3, 1)).astype(np.float32)
        result = told.step_chunk(chunks)
        expected = [alone[0].step_chunk(chunks[:3]), alone[1].step_chunk(chunks[3:])]
        assert_alike(result, expected)
        for key in ("steps", "step_rewards"):
            np.testing.assert_array_equal(result[4][key], np.concatenate([one[4][key] for one in expected]))


def test_worlds_that_forget_or_say_no_success_or_step_together_are_so_together(point: Make) -> None:
    told, _ = both(point)
    assert told.reports_success and not told.steps_together and told.max_episode_steps == 4 and told.num_envs == 5
    with pytest.raises(AttributeError):
        _ = told.seeds  # of which part?
    forgetful = ToldWorlds([point(1), reversed_point(point, 1, forgetful=True)], embed, "both")
    forgetful.reset(seed=0)
    assert forgetful.snapshot() is None
    assert not ToldWorlds([point(1), reversed_point(point, 1, mute=True)], embed, "both").reports_success
    assert ToldWorlds([point(1), reversed_point(point, 1, together=True)], embed, "both").steps_together
    assert ToldWorlds([point(1), reversed_point(point, 1, limit=9)], embed, "both").max_episode_steps == 9
    assert ToldWorlds([point(1), reversed_point(point, 1, limit=0)], embed, "both").max_episode_steps == 0
    one = ToldWorlds([point(2)], embed, "point")
    one.reset(seed=5)
    assert one.seeds == [5] and one.prompt == "come to 0" and one.success_of_tasks() == {}


def test_what_was_solved_before_the_end_of_an_episode_counts_when_it_ends_and_is_kept(point: Make) -> None:
    parts = [point(3, limit=3), reversed_point(point, 2, limit=3)]
    told = ToldWorlds(parts, embed, "both")
    told.reset(seed=0)
    for part in parts:  # solved at once, and it goes on
        step = part.step_chunk

        def solved(chunks: Any, active: Any = None, step: Any = step) -> Any:
            *rest, infos = step(chunks, active)
            return *rest, infos | {"success": ~infos["_final_obs"]}

        part.step_chunk = solved
    away = np.zeros((5, 1, 1), np.float32)
    told.step_chunk(away)
    kept = told.snapshot()
    assert kept is not None
    for _ in range(2):
        told.step_chunk(away)
    assert told.success_of_tasks() == {"success/point": 1.0, "success/reversed": 1.0}
    told.restore(kept | {"solved": np.zeros(5, np.bool_)})
    for part in parts:
        del part.step_chunk
    for _ in range(2):
        told.step_chunk(away)
    assert told.success_of_tasks() == {"success/point": 0.0, "success/reversed": 0.0}


def test_what_cannot_stand_together_is_refused(point: Make) -> None:
    silent, other = point(1), point(1, pixels=True)
    silent.prompt = ""
    other.interface = replace(other.interface, control_hz=20.0)
    for part, why in ((silent, "worlds of point: got no task in words"), (other, "control rate")):
        with pytest.raises(BadInput, match=why):
            ToldWorlds([point(1), part], embed, "both")
    told, _ = both(point)
    told.reset(seed=0, options={"start_ids": np.array([0, 0, 1, 2, 2])})
    with pytest.raises(BadInput, match="worlds: got 5 of 2 tasks, in groups that begin alike"):
        told.reset(seed=0, options={"start_ids": np.array([0, 0, 1, 1, 2])})


@pytest.mark.long
@pytest.mark.parametrize("algo", ["reinflow", "grpo"])
def test_one_policy_learns_two_tasks_that_only_words_tell_apart(
    make_policy: Make, point: Make, kit: Any, algo: str
) -> None:
    """What solves the one fails in the other, so a policy that does not hear the words solves half of all at most."""
    torch.set_num_threads(1)
    judge = lambda policy, worlds: evaluate(worlds, policy, 400, 1000).success.rate  # noqa: E731
    worlds = both(point, (64, 64))[0]
    begun = make_policy(worlds.interface, width=64, steps=2, horizon=1, execute=1)
    before = judge(begun, both(point, (50, 50))[0])
    noise = replace(kit.NOISE, sigma_min=0.1, sigma_max=0.8)
    settings = {"minibatch": 256, "actor_lr": 1e-3, "clip": 0.2, "epochs": 4, "noise": noise}
    critic = {"chunks_per_rollout": 8, "critic_epochs": 2, "critic_warmup": 1}
    runner = kit.runner(
        worlds, begun, algo, env_steps=100_000, **settings, **({"group": 8} if algo == "grpo" else critic)
    )
    kit.run(runner, 0, runner.iterations)
    tuned = runner.algorithm.policy()
    swapped = ToldWorlds([point(50), reversed_point(point, 50)], lambda told: embed(told)[::-1], "swapped")
    rates = before, judge(tuned, both(point, (50, 50))[0]), judge(tuned, swapped)
    assert before < 0.5 and rates[1] > 0.9 and rates[2] < 0.5, rates
