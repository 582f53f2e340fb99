"""The noise network and the reward scale against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from robolearn.core import BadInput
from robolearn.rl.actors import NoiseConfig, NoiseNet
from robolearn.rl.returns import RewardScale


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


def test_only_the_worlds_that_count_are_scaled_and_remembered():
    whole, part = RewardScale(2, 0.9), RewardScale(4, 0.9)
    rng = np.random.default_rng(2)
    for t in range(6):
        reward = rng.normal(size=4).astype(np.float32)
        ended = np.array([t == 2, True, False, True])  # of worlds that do not count it means nothing
        some = np.array([True, False, True, False])
        a, b = whole(reward[some], ended[some]), part(reward, ended & some, some)
        np.testing.assert_array_equal(a, b[some])
    np.testing.assert_allclose(whole.state()[3:], part.state()[3:][some])
    assert whole.std == part.std


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


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.1), (-0.1, 0.1), (0.1, math.nan), (0.1, math.inf)])
def test_a_noise_range_that_is_none(low: float, high: float):
    with pytest.raises(BadInput, match="noise"):
        NoiseNet(3, 4, NoiseConfig(sigma_min=low, sigma_max=high))


def test_the_smallest_noise_is_a_share_of_the_largest_unless_given():
    assert NoiseConfig(sigma_max=0.2, min_share=0.25).sigma_range == (0.05, 0.2)
    assert NoiseConfig(sigma_max=0.2, sigma_min=0.1, min_share=0.25).sigma_range == (0.1, 0.2)
