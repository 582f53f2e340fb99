"""Advantages against numbers worked out by hand: GAE, and episodes that are compared with others of their group."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.rl.returns import gae, group_advantage


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)[:, None]


def test_gae_of_an_episode_that_the_world_ends():
    # γ = 0.5, λ = 0.5. The second decision terminates: V(s') = 100 must not count there.
    advantage, target = gae(
        reward=column(1.0, 2.0),
        value=column(0.5, 1.0),
        next_value=column(1.0, 100.0),
        terminated=column(0, 1).bool(),
        ended=column(0, 1).bool(),
        gamma=0.5,
        lam=0.5,
    )
    # δ_1 = 2 − 1 = 1;  δ_0 = 1 + 0.5·1 − 0.5 = 1;  A_0 = 1 + 0.25·1
    torch.testing.assert_close(advantage, column(1.25, 1.0))
    torch.testing.assert_close(target, column(1.75, 2.0))


def test_gae_at_the_clock_bootstraps_from_the_final_observation_and_stops_there():
    # The first decision is truncated: V(final) = 4 counts, the second decision belongs to the next episode.
    advantage, target = gae(
        reward=column(0.0, 8.0),
        value=column(1.0, 3.0),
        next_value=column(4.0, 2.0),
        terminated=column(0, 0).bool(),
        ended=column(1, 0).bool(),
        gamma=0.5,
        lam=0.5,
    )
    # δ_0 = 0 + 0.5·4 − 1 = 1 and nothing of A_1 = 8 + 0.5·2 − 3 = 6
    torch.testing.assert_close(advantage, column(1.0, 6.0))
    torch.testing.assert_close(target, column(2.0, 9.0))


def test_gae_does_not_mix_worlds():
    one = gae(column(1.0), column(0.0), column(0.0), column(1).bool(), column(1).bool(), 0.9, 0.9)[0]
    many = gae(
        torch.tensor([[1.0, 0.0]]),
        torch.zeros(1, 2),
        torch.zeros(1, 2),
        torch.tensor([[True, False]]),
        torch.tensor([[True, False]]),
        0.9,
        0.9,
    )[0]
    assert many[0, 0] == one[0, 0] and many[0, 1] == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5, 0.99, 1.0]), st.sampled_from([0.0, 0.9, 1.0]))
def test_gae_is_the_discounted_sum_of_the_errors_within_the_episode(seed: int, gamma: float, lam: float):
    rng = np.random.default_rng(seed)
    T, N = 7, 3
    reward, value, after = rng.normal(size=(3, T, N))
    terminated = rng.random((T, N)) < 0.2
    ended = terminated | (rng.random((T, N)) < 0.2)
    advantage, target = gae(*map(torch.from_numpy, (reward, value, after, terminated, ended)), gamma, lam)
    for w in range(N):
        for t in range(T):
            expected, weight = 0.0, 1.0
            for s in range(t, T):
                bootstrap = 0.0 if terminated[s, w] else gamma * after[s, w]
                expected += weight * (reward[s, w] + bootstrap - value[s, w])
                weight *= gamma * lam
                if ended[s, w]:
                    break
            assert advantage[t, w].item() == pytest.approx(expected, abs=1e-6)
            assert target[t, w].item() == pytest.approx(expected + value[t, w], abs=1e-6)


# --- groups ------------------------------------------------------------------------------------------------

RETURNS = torch.tensor([1.0, 0.0, 0.5, 0.5, 2.0, 2.0, 2.0, 2.0])
GROUP = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])


def test_an_episode_is_compared_with_the_others_of_its_group():
    found = group_advantage(RETURNS, GROUP)
    torch.testing.assert_close(found, torch.tensor([0.5, -0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    # The deviation of (1, 0, ½, ½) is √(½/4); a group that went alike is not divided by nothing.
    scaled = group_advantage(RETURNS, GROUP, divide_by_std=True)
    torch.testing.assert_close(scaled, found / np.sqrt(0.125))


def test_groups_are_by_number_not_by_place():
    order = torch.tensor([4, 1, 5, 0, 2, 6, 3, 7])
    torch.testing.assert_close(group_advantage(RETURNS[order], GROUP[order]), group_advantage(RETURNS, GROUP)[order])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 4), st.booleans())
def test_the_advantages_of_a_group_against_numpy(seed: int, size: int, groups: int, divide: bool):
    returns = np.random.default_rng(seed).normal(size=(groups, size))
    expected = returns - returns.mean(1, keepdims=True)
    if divide:
        expected /= returns.std(1, keepdims=True)
    found = group_advantage(torch.from_numpy(returns.ravel()), torch.arange(groups).repeat_interleave(size), divide)
    np.testing.assert_allclose(found.numpy(), expected.ravel(), atol=1e-9)
