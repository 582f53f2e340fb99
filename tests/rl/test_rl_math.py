"""GAE, the losses of PPO, reward scaling and the noise network, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from robolearn.rl.gae import gae
from robolearn.rl.noise import NoiseConfig, NoiseNet
from robolearn.rl.ppo import (
    STD_FLOOR,
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    explained_variance,
    standardise,
    value_loss,
)

from robolearn.core import BadInput
from robolearn.rl.reward_scale import RewardScale


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)[:, None]


# --- GAE ---------------------------------------------------------------------------------------------------


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


# --- PPO ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.5, 2.0, -2.2, 0.0),  # cut at 1.1: no more reason to go there
        (1.5, -2.0, 3.0, 3.0),  # too likely and bad: not cut
        (0.5, -2.0, 1.8, 0.0),  # cut at 0.9
        (0.5, 2.0, -1.0, -1.0),  # too unlikely and good: not cut
    ],
)
def test_the_clipped_surrogate_by_hand(ratio: float, advantage: float, loss: float, slope: float):
    log_ratio = torch.tensor([math.log(ratio)], requires_grad=True)
    found = clipped_surrogate(log_ratio, torch.tensor([advantage]), 0.1)
    found.backward()
    assert found.item() == pytest.approx(loss)
    assert log_ratio.grad is not None and log_ratio.grad.item() == pytest.approx(slope)


def test_the_surrogate_is_a_mean():
    log_ratio, advantage = torch.tensor([1.0, 1.5, 0.5]).log(), torch.tensor([2.0, -2.0, 2.0])
    assert clipped_surrogate(log_ratio, advantage, 0.1).item() == pytest.approx((-2.0 + 3.0 - 1.0) / 3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_the_estimated_kl_is_never_negative(log_ratio: list[float]):
    kl = approximate_kl(torch.tensor(log_ratio, dtype=torch.float64)).item()
    assert kl >= -1e-12
    assert kl == pytest.approx(np.mean(np.exp(log_ratio) - 1 - np.array(log_ratio)), abs=1e-9)


def test_the_estimated_kl_estimates_the_kl():
    # KL(N(0, 1) ‖ N(0.3, 1)) = 0.3²/2
    old, new = torch.distributions.Normal(0.0, 1.0), torch.distributions.Normal(0.3, 1.0)
    x = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    assert approximate_kl(new.log_prob(x) - old.log_prob(x)).item() == pytest.approx(0.045, abs=0.002)


def test_the_other_losses_by_hand():
    assert clip_fraction(torch.tensor([1.0, 1.05, 1.2, 0.8]).log(), 0.1).item() == 0.5
    assert value_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0])).item() == pytest.approx(0.5 * (1 + 4) / 2)
    z = standardise(torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(z, torch.tensor([-1.0, 0.0, 1.0]))
    target = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert explained_variance(target, target).item() == pytest.approx(1.0)
    assert explained_variance(torch.zeros(4), target).item() == pytest.approx(0.0, abs=1e-6)
    assert explained_variance(-target, target).item() == pytest.approx(-3.0, abs=1e-5)


def test_advantages_without_a_reward_in_them_are_not_blown_up():
    assert STD_FLOOR == 0.01
    # Deviation 1: divided by it.  Deviation 0.001, the critic's error alone: divided by 0.01.  None at all: 0.
    for numbers, expected in (
        ([4.0, 5.0, 6.0], [-1.0, 0.0, 1.0]),
        ([0.02, 0.04, 0.06], [-1.0, 0.0, 1.0]),
        ([4.0, 4.001, 4.002], [-0.1, 0.0, 0.1]),
        ([-0.001, 0.0, 0.001], [-0.1, 0.0, 0.1]),
        ([7.0, 7.0, 7.0], [0.0, 0.0, 0.0]),
    ):
        torch.testing.assert_close(standardise(torch.tensor(numbers)), torch.tensor(expected), rtol=0, atol=2e-4)


# --- reward scale ------------------------------------------------------------------------------------------


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    rng = np.random.default_rng(0)
    gamma, T, N = 0.9, 40, 5
    reward, ended = rng.normal(2.0, 3.0, (T, N)).astype(np.float32), rng.random((T, N)) < 0.2
    scale = RewardScale(N, gamma)
    returns, G = [], np.zeros(N)
    for t in range(T):
        G = reward[t] + gamma * G
        returns.append(G.copy())
        expected = np.clip(reward[t] / np.std(returns), -10, 10)
        np.testing.assert_allclose(scale(reward[t], ended[t]), expected, rtol=2e-4)
        G[ended[t]] = 0.0


def test_rare_rewards_stay_bounded():
    scale = RewardScale(1000, 0.99)
    reward, none = np.zeros(1000, np.float32), np.zeros(1000, dtype=bool)
    assert (scale(reward, none) == 0).all()
    assert scale.std == 0.1  # the floor: nothing has been seen yet
    reward[0] = 1.0
    assert scale(reward, none)[0] == pytest.approx(10.0)  # 1/0.1, the deviation of 1 in 2000 is 0.02
    reward[:] = 0
    reward[1] = -1e6  # its deviation over 3000 is 1e6/√3000: about −55 of them
    out = scale(reward, none)
    assert out[1] == -10.0 and out.dtype == np.float32


def test_the_scale_goes_on_from_its_state():
    rng = np.random.default_rng(1)
    a, b = RewardScale(3, 0.9), RewardScale(3, 0.9)
    for _ in range(5):
        a(rng.normal(size=3).astype(np.float32), np.array([False, True, False]))
    b.load(a.state())
    reward = rng.normal(size=3).astype(np.float32)
    np.testing.assert_array_equal(a(reward, np.zeros(3, bool)), b(reward, np.zeros(3, bool)))
    np.testing.assert_array_equal(a.state(), b.state())


# --- noise -------------------------------------------------------------------------------------------------


def sigma(net: NoiseNet) -> torch.Tensor:
    return net(torch.tensor([0.0, 0.5]), torch.randn(2, 3)).exp()


def test_the_noise_begins_at_the_geometric_mean_and_stays_in_its_range():
    net = NoiseNet(3, 4, NoiseConfig(sigma_min=0.05, sigma_max=0.2))
    torch.testing.assert_close(sigma(net), torch.full((2, 4), 0.1))
    last = net.net[-1]
    assert isinstance(last, torch.nn.Linear)
    for bias, bound in ((50.0, 0.2), (-50.0, 0.05)):
        torch.nn.init.constant_(last.bias, bias)
        torch.testing.assert_close(sigma(net), torch.full((2, 4), bound))
    torch.nn.init.constant_(last.bias, 0.7)
    share = (1 + math.tanh(0.7)) / 2
    expected = math.exp(math.log(0.05) + share * (math.log(0.2) - math.log(0.05)))
    torch.testing.assert_close(sigma(net), torch.full((2, 4), expected))


@pytest.mark.parametrize(
    ("progress", "largest"),
    [(0.0, 0.2), (0.35, 0.2), (0.675, 0.155 + 0.045 / 2), (1.0, 0.3 * 0.05 + 0.7 * 0.2), (2.0, 0.155)],
)
def test_the_schedule_holds_and_then_falls_on_a_cosine(progress: float, largest: float):
    net = NoiseNet(3, 4, NoiseConfig(sigma_min=0.05, sigma_max=0.2))
    for _ in range(3):  # a function of the progress alone, not of how often it was asked
        net.schedule(progress)
    assert math.exp(0.5 * net.log_var_max.item()) == pytest.approx(largest, rel=1e-5)
    assert math.exp(0.5 * net.log_var_min.item()) == pytest.approx(0.05, rel=1e-5)


def test_the_noise_does_not_shape_the_observation():
    net = NoiseNet(3, 4, NoiseConfig(sigma_min=0.05, sigma_max=0.2))
    torch.nn.init.normal_(net.net[-1].weight)  # type: ignore[arg-type]
    cond = torch.randn(2, 3, requires_grad=True)
    out = net(torch.tensor([0.0, 0.5]), cond)
    assert out.std() > 0  # it does depend on what it sees
    out.sum().backward()
    assert cond.grad is None
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.1), (0.2, 0.1), (-0.1, 0.1), (0.1, math.nan), (0.1, math.inf)])
def test_a_noise_range_that_is_none(low: float, high: float):
    with pytest.raises(BadInput, match="noise"):
        NoiseNet(3, 4, NoiseConfig(sigma_min=low, sigma_max=high))
