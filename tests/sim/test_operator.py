"""The scripted operator: leaves good work alone, takes over from bad work in time, hands back, saves the episode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import BadInput, Observation
from sim.experts import Patience, make_expert, make_operator
from sim.experts.waypoints import Quality
from sim.registry import make_env
from sim.tasks import TASKS

ALONE = [name for name, make in TASKS.items() if make().arms == 1]  # an operator has one device

pytestmark = pytest.mark.long

Drive = Callable[[Observation], NDArray[np.float32]]


def still(observation: Observation) -> NDArray[np.float32]:
    """Nothing moves; what is in the gripper stays there."""
    action = np.zeros((len(observation["proprio"]), 7), np.float32)
    action[:, 6] = np.where(observation["proprio"][:, 7] < 0.05, -1.0, 1.0)  # the gripper's width [m]
    return action


class Watched:
    """One episode in each of n worlds, in which `drive` acts wherever the operator does not."""

    def __init__(self, task: str, n: int, drive: Drive, patience: Patience, *, seed: int = 0) -> None:
        env = make_env(task, n, threads=1)
        operator = make_operator(task, env.interface, n, seed, patience)
        observation, _ = env.reset(seed=seed)
        self.success = np.zeros(n, bool)
        going, steering, actions = np.ones(n, bool), [], []
        while going.any():
            steers, by_hand = operator.command(observation)
            policy = drive(observation)
            action = np.where(steers[:, None], by_hand, policy).astype(np.float32)
            steering.append(steers & going)
            actions.append(action)
            observation, _, terminated, truncated, infos = env.step(action, going)
            self.success |= infos["success"]
            going = going & ~(terminated | truncated)
        self.steering, self.actions = np.stack(steering), np.stack(actions)  # (T, n), (T, n, 7)
        env.close()

    def first(self) -> NDArray[np.int64]:
        """(n,) the control step of the first takeover; T where there was none."""
        return np.where(self.steering.any(0), self.steering.argmax(0), len(self.steering))


@pytest.mark.parametrize("task", ALONE)
@pytest.mark.parametrize("strategy", [0, 1])
def test_good_work_is_left_alone(task: str, strategy: int) -> None:
    env = make_env(task, 24, threads=1)
    expert = make_expert(task, env.interface, 24, Quality(noise=0.05, strategies=2), 3)
    expert.reset(np.ones(24, bool))
    expert.strategy[:] = strategy
    watched = Watched(task, 24, expert.command, Patience())
    assert watched.success.mean() > 0.9
    assert watched.steering.any(0).sum() <= 2


def test_an_arm_that_stands_is_taken_over_in_time() -> None:
    patience = Patience(limit=9.0, reaction=4)
    first = Watched("lift", 16, still, patience).first()
    # The first step has nothing to be compared with; nine without progress are enough, and the hand needs four.
    assert (first >= 9 + 4).all() and np.median(first) <= 9 + 4 + 2


def test_an_arm_that_goes_the_wrong_way_is_taken_over_sooner() -> None:
    env = make_env("peg_insert", 16, threads=1)
    expert = make_expert("peg_insert", env.interface, 16, "expert", 0)
    expert.reset(np.ones(16, bool))

    def away(observation: Observation) -> NDArray[np.float32]:
        return expert.command(observation) * np.array([-1, -1, -1, 1, 1, 1, 1], np.float32)

    wrong = Watched("peg_insert", 16, away, Patience()).first()
    standing = Watched("peg_insert", 16, still, Patience()).first()
    assert np.median(wrong) < np.median(standing) - 3


def test_reaction_is_counted_in_steps() -> None:
    quick, slow = (Watched("lift", 8, still, Patience(reaction=steps)).first() for steps in (0, 10))
    np.testing.assert_array_equal(slow - quick, 10)


def test_an_intervention_ends_and_the_policy_gets_another_chance() -> None:
    watched = Watched("lift", 16, still, Patience(hold=(5, 8)))
    for column in watched.steering.T:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], column.astype(int), [0]])))
        lengths = edges[1::2] - edges[::2]
        assert len(lengths) >= 2
        assert ((lengths[:-1] >= 5) & (lengths[:-1] <= 8)).all()  # the episode may end within the last one


@pytest.mark.parametrize("task", ALONE)
def test_an_operator_who_does_not_let_go_solves_the_task(task: str) -> None:
    watched = Watched(task, 32, still, Patience(hold=(1000, 1000)))
    assert watched.success.mean() > 0.9


def test_a_takeover_in_the_middle_goes_on_where_the_task_is() -> None:
    """Who takes over from an arm that carries the cube must not open the gripper."""
    env = make_env("pick_place", 16, threads=1)
    expert = make_expert("pick_place", env.interface, 16, "expert", 0)
    expert.reset(np.ones(16, bool))
    steps = 0

    def half(observation: Observation) -> NDArray[np.float32]:
        nonlocal steps
        steps += 1
        action = expert.command(observation)
        return action if steps < 45 else action * np.array([0, 0, 0, 0, 0, 0, 1], np.float32)

    watched = Watched("pick_place", 16, half, Patience(hold=(1000, 1000)))
    late = watched.first()
    assert ((late >= 45) & (late < len(watched.steering))).sum() >= 12
    grips = [watched.actions[t, w, 6] for w, t in enumerate(late) if 45 <= t < len(watched.steering)]
    assert np.mean(np.array(grips) < 0) > 0.8
    assert watched.success.mean() > 0.85


def test_worlds_do_not_influence_each_other() -> None:
    few, many = (Watched("lift", n, still, Patience()) for n in (3, 7))
    steps = min(len(few.actions), len(many.actions))
    np.testing.assert_array_equal(few.steering[:steps], many.steering[:steps, :3])


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"limit": 0.0}, {"against": 0.5}, {"reaction": -1}, {"hold": (5, 3)}, {"tremor": -0.1}):
        with pytest.raises(BadInput):
            Patience(**wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="scripted expert for task"):
        make_operator("robosuite:Lift", make_env("lift", 1, threads=1).interface, 1, 0)
