"""Potential-based shaping: what it adds telescopes, and the optimum stays."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sim.embedded.world import MujocoWorlds
from sim.experts import make_expert
from sim.shaping import SCALE, shape
from sim.tasks import TASKS


def test_rewards_by_hand() -> None:
    no = np.zeros(3, bool)
    reward = shape(np.array([0.0, 1.0, 0.0]), np.array([0.2, 0.4, 0.4]), np.array([0.4, 0.9, 0.1]), no, 0.5)
    np.testing.assert_allclose(reward, [0.0 + 0.5 * 0.4 - 0.2, 1.0 + 0.5 * 0.9 - 0.4, 0.5 * 0.1 - 0.4])
    ended = shape(np.array([1.0]), np.array([0.4]), np.array([0.9]), np.array([True]), 0.5)
    np.testing.assert_allclose(ended, [1.0 - 0.4])


def optimum(rewards: NDArray, transitions: NDArray, terminal: NDArray, gamma: float) -> NDArray:
    """(S, A) optimal action values by value iteration; nothing follows a terminal state."""
    q = np.zeros(rewards.shape[:2])
    for _ in range(2000):
        value = np.where(terminal, 0.0, q.max(1))
        q = np.einsum("sat,sat->sa", transitions, rewards + gamma * value)
    return q


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_the_optimum_of_a_random_decision_process_stays(seed: int) -> None:
    """Value iteration, with the rewards of `shape`: the same greedy actions, and Q' = Q - phi."""
    rng = np.random.default_rng(seed)
    states, actions, gamma = 8, 3, 0.9
    transitions = rng.dirichlet(np.full(states, 0.3), (states, actions))
    terminal = np.arange(states) >= states - 2
    sparse = np.zeros((states, actions, states))
    sparse[:, :, -1] = 1.0  # the last state is success, the one before it failure
    potential = rng.random(states)
    shaped = shape(sparse, potential[:, None, None], potential[None, None], terminal[None, None], gamma)
    plain, other = optimum(sparse, transitions, terminal, gamma), optimum(shaped, transitions, terminal, gamma)
    np.testing.assert_allclose(other, plain - potential[:, None], atol=1e-9)
    np.testing.assert_array_equal(other.argmax(1)[~terminal], plain.argmax(1)[~terminal])


def episodes(task: str, gamma: float) -> tuple[MujocoWorlds, NDArray, NDArray, NDArray, list[NDArray]]:
    """One episode in each of 8 worlds, half of them by the expert and half of them held still."""
    env = MujocoWorlds(TASKS[task](), 8, reward="dense", shaping_gamma=gamma, threads=1)
    expert = make_expert(task, env.interface, 8, "expert", 0)
    observation, _ = env.reset(seed=0)
    first = SCALE * env.world_task.progress(env.truth)
    expert.reset(np.ones(8, bool))
    active, rewards = np.ones(8, bool), []
    success = np.zeros(8, bool)
    while active.any():
        action = expert.command(observation)
        action[4:, :6] = 0.0
        action[4:, 6] = -1.0
        observation, reward, terminated, truncated, infos = env.step(action, active)
        rewards.append(np.where(active, reward, np.nan))
        success |= infos["success"]
        assert not reward[~active].any()
        active &= ~(terminated | truncated)
    return env, first, success, np.array([r.sum() for r in np.nan_to_num(rewards)]), rewards


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_what_shaping_adds_over_an_episode_is_minus_its_first_potential(task: str) -> None:
    _, first, success, _, rewards = episodes(task, gamma=1.0)
    assert success[:4].all() and not success[4:].any()
    total = np.nansum(rewards, 0)
    # Success: 1 + 0 - phi(s_0). Time-out: 0 - phi(s_0).
    np.testing.assert_allclose(total, np.where(success, 1.0, 0.0) - first, atol=1e-5)
    assert total[:4].min() > 0.5  # what succeeds is paid much better
    assert total[4:].max() <= 0.0
    assert np.unique(np.stack(rewards)[~np.isnan(np.stack(rewards))]).size > 50  # dense all the same


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_a_discounted_return_telescopes_with_its_gamma(task: str) -> None:
    gamma = 0.98
    _, first, success, _, rewards = episodes(task, gamma)
    table = np.array(rewards)
    steps = (~np.isnan(table)).sum(0)
    total = np.nansum(table * gamma ** np.arange(len(table))[:, None], 0)
    end = np.where(success, gamma ** (steps - 1), 0.0)
    np.testing.assert_allclose(total, end - first, atol=1e-5)


def test_hovering_pays_nothing() -> None:
    """Near the cube, gripper open, until time is over: less than nothing with γ < 1, and nothing with γ = 1."""
    for gamma in (1.0, 0.99):
        env = MujocoWorlds(TASKS["lift"](), 4, reward="dense", shaping_gamma=gamma, threads=1)
        expert = make_expert("lift", env.interface, 4, "expert", 0)
        observation, _ = env.reset(seed=0)
        expert.reset(np.ones(4, bool))
        for _ in range(20):  # the way there
            observation = env.step(expert.command(observation) * [1, 1, 1, 1, 1, 1, 0] + [0, 0, 0, 0, 0, 0, 1])[0]
        hold = np.zeros((4, 7), np.float32)
        hold[:, 6] = 1.0
        env.step(hold)
        before = env._potential.copy()
        total = np.sum([env.step(hold)[1] for _ in range(30)], 0)
        assert before.min() > 0.2 * SCALE
        assert np.all(total < 0.02) and (gamma == 1.0 or np.all(total < -0.02))
