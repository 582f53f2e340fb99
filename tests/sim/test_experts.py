"""Scripted experts: the good one solves its task, the others less and less, all of them reproducibly."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import BadInput, Teleoperator
from sim.experts import QUALITIES, Quality, make_expert
from sim.registry import make_env
from sim.tasks import TASKS
from sim.tasks.lift import LIFT_BIAS
from sim.tasks.peg_insert import PEG_BIAS
from sim.tasks.pick_place import PLACE_BIAS

pytestmark = pytest.mark.long


def solve(
    task: str,
    quality: Quality | str,
    n: int = 64,
    seed: int = 0,
    robot: str = "",
    start_range: float = 1.0,
    kind: str = "",
) -> tuple[NDArray, NDArray, NDArray]:
    """One episode in each of n worlds: (n,) success, (n,) length and (T, n, Da) actions."""
    env = make_env(task, n, robot=robot, start_range=start_range, action_kind=kind, threads=1)
    expert = make_expert(task, env.interface, n, quality, seed)
    observation, _ = env.reset(seed=seed)
    active, success, length, actions = np.ones(n, bool), np.zeros(n, bool), np.zeros(n, int), []
    expert.reset(active)
    while active.any():
        actions.append(expert.command(observation))
        observation, _, terminated, truncated, infos = env.step_chunk(actions[-1][:, None], active)
        success |= infos["success"]
        length += infos["steps"]
        active &= ~(terminated | truncated)
    return success, length, np.stack(actions)


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_solves_its_task(task: str) -> None:
    success, length, actions = solve(task, "expert")
    assert success.sum() >= 61  # 95 % of 64
    assert np.median(length) < 0.75 * TASKS[task]().max_episode_steps
    assert actions.dtype == np.float32 and np.abs(actions).max() <= 1.0


@pytest.mark.parametrize("robot", ["fr3", "ur5e", "so101"])
def test_the_expert_lifts_with_every_arm(robot: str) -> None:
    assert solve("lift", "expert", robot=robot)[0].sum() >= 61  # 95 % of 64


@pytest.mark.parametrize("kind", ["", "tcp_delta", "joint_position"])
def test_the_expert_speaks_both_kinds_of_action(kind: str) -> None:
    """On the arm whose joints are too few for every pose, and in joint positions on one whose are not."""
    robot = "panda" if kind == "joint_position" else "so101"
    success, _, actions = solve("pick_place", "expert", n=32, robot=robot, kind=kind)
    assert success.sum() >= 30 and actions.shape[2] == {"": 6, "tcp_delta": 7, "joint_position": 8}[kind]


@pytest.mark.parametrize("task", TASKS)
def test_narrow_demonstrations_succeed_with_both_strategies(task: str) -> None:
    assert QUALITIES["narrow"].strategies == 2 and QUALITIES["narrow"].start_range == 0.5
    assert solve(task, "narrow", start_range=0.5)[0].sum() >= 61  # 95 % of 64


@pytest.mark.parametrize("errors", [LIFT_BIAS, PEG_BIAS, PLACE_BIAS], ids=["lift", "peg", "place"])
def test_the_errors_of_two_strategies_do_not_cancel(errors: NDArray) -> None:
    """The mean of two failing demonstrations must not be a good one."""
    assert np.linalg.norm(errors.mean(0)) > 0.9 * np.linalg.norm(errors, axis=1).mean()


def test_quality_orders_the_demonstrators() -> None:
    counts = {quality: int(solve("lift", quality)[0].sum()) for quality in ("poor", "mixed", "expert")}
    assert counts["poor"] < counts["mixed"] < counts["expert"] - 6
    assert counts["mixed"] > 0.05 * 64  # something to learn from, and room above


@pytest.mark.parametrize(("task", "quality"), [("pick_place", "fair"), ("peg_insert", "mixed")])
def test_a_mediocre_demonstrator_leaves_room_above(task: str, quality: str) -> None:
    rate = solve(task, quality, n=48)[0].mean()
    assert 0.1 < rate < 0.85


def test_two_strategies_are_used_and_both_solve_the_task() -> None:
    env = make_env("lift", 32, threads=1)
    expert = make_expert("lift", env.interface, 32, Quality(strategies=2), 0)
    expert.reset(np.ones(32, bool))
    assert 8 <= expert.strategy.sum() <= 24
    success, _, _ = solve("lift", Quality(strategies=2), n=32)
    for strategy in (0, 1):
        assert success[expert.strategy == strategy].mean() > 0.9


def test_a_seed_gives_the_same_actions_and_another_seed_others() -> None:
    one, two, other = (solve("lift", "mixed", n=6, seed=seed)[2] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert np.any(one[0] != other[0])
    env = make_env("lift", 6, threads=1)
    observation, _ = env.reset(seed=0)
    first = []
    for seed in (1, 2):  # of the expert alone
        expert = make_expert("lift", env.interface, 6, "mixed", seed)
        expert.reset(np.ones(6, bool))
        first.append(expert.command(observation))
    assert np.any(first[0] != first[1], axis=1).all()


def test_a_worlds_demonstrations_do_not_depend_on_its_neighbours() -> None:
    few, many = solve("lift", "mixed", n=3)[2], solve("lift", "mixed", n=6)[2]
    steps = min(len(few), len(many))
    _success, length, _ = solve("lift", "mixed", n=3)
    for w in range(3):
        t = min(steps, length[w])
        np.testing.assert_array_equal(few[:t, w], many[:t, w])


def test_a_new_episode_begins_where_it_is_told_to() -> None:
    """`reset` begins anew in the worlds that are true and nowhere else."""
    env = make_env("lift", 2, threads=1)
    expert = make_expert("lift", env.interface, 2, "expert", 0)
    assert isinstance(expert, Teleoperator)
    observation, _ = env.reset(seed=0)
    expert.reset(np.ones(2, bool))
    while True:
        action = expert.command(observation)
        if (action[:, 6] < 0).all():  # both grasp
            break
        observation = env.step(action)[0]
    expert.reset(np.array([True, False]))
    np.testing.assert_array_equal(expert.command(observation)[:, 6], [1.0, -1.0])


def test_what_an_expert_cannot_do_is_bad_input() -> None:
    env = make_env("lift", 1, threads=1)
    torques = dataclasses.replace(env.interface, action_kind="torque")
    with pytest.raises(BadInput, match="action kind: got torque; available: tcp_delta, joint_position"):
        make_expert("lift", torques, 1, "expert", 0)
    with pytest.raises(BadInput, match="embodiment: got xarm; available: panda, fr3, ur5e, so101"):
        make_expert("lift", dataclasses.replace(env.interface, embodiment="xarm"), 1, "expert", 0)
    with pytest.raises(
        BadInput, match=r"quality: got expret; available: expert, narrow, .*, failures, .* \(did you mean expert"
    ):
        make_expert("lift", env.interface, 1, "expret", 0)
    with pytest.raises(BadInput, match="got robosuite:Lift; available: lift, lift_to, pick_place, peg_insert"):
        make_expert("robosuite:Lift", env.interface, 1, "expert", 0)
    for strategies in (0, 3):
        with pytest.raises(BadInput, match=f"strategies: got {strategies}, expected 1 to 2"):
            make_expert("lift", env.interface, 1, Quality(strategies=strategies), 0)
