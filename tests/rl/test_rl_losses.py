"""The losses of PPO and its relatives, and the KL divergence, against numbers worked out by hand and torch's own."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.rl.actors.denoising import gaussian_stats, kl_nats
from robolearn.rl.returns import (
    STD_FLOOR,
    clip_fraction,
    clipped_surrogate,
    explained_variance,
    standardise,
    value_loss,
)


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


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.5, -2.0, 3.0, 3.0),  # below the second clip: as without
        (4.0, -2.0, 6.0, 0.0),  # cut at c A = −6: a bad sample that became likely costs no more
        (4.0, 2.0, -2.2, 0.0),  # good samples are cut at 1 + ε as ever
        (0.5, -2.0, 1.8, 0.0),
    ],
)
def test_the_dual_clip_by_hand(ratio: float, advantage: float, loss: float, slope: float):
    log_ratio = torch.tensor([math.log(ratio)], requires_grad=True)
    found = clipped_surrogate(log_ratio, torch.tensor([advantage]), 0.1, dual_clip=3.0)
    found.backward()
    assert found.item() == pytest.approx(loss)
    assert log_ratio.grad is not None and log_ratio.grad.item() == pytest.approx(slope)


def test_a_clip_for_each_column():
    log_ratio = torch.tensor([[1.5, 1.5], [1.5, 1.5]]).log()
    advantage = torch.tensor([[1.0, 1.0], [2.0, 2.0]])
    found = clipped_surrogate(log_ratio, advantage, torch.tensor([0.01, 0.2]))
    assert found.item() == pytest.approx(-(1.01 + 1.2 + 2.02 + 2.4) / 4)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 5))
def test_the_divergence_in_nats_is_that_of_torch_the_old_policy_first(seed: int, steps: int, dim: int):
    generator = torch.Generator().manual_seed(seed)
    chain, *numbers = (torch.randn(3, steps + 1, dim, generator=generator, dtype=torch.float64) for _ in range(5))
    old, new = (gaussian_stats(chain, m[:, 1:], 0.5 * s[:, 1:]) for m, s in (numbers[:2], numbers[2:]))
    normals = [torch.distributions.Normal(found.mean, found.log_sigma.exp()) for found in (old, new)]
    expected = torch.distributions.kl_divergence(*normals).sum((1, 2))
    torch.testing.assert_close(kl_nats(old, new), expected)
    assert (kl_nats(old, old) == 0).all() and (expected > 0).all()


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
    z = standardise(torch.tensor([1.0, 2.0, 3.0]), centre=False)
    torch.testing.assert_close(z, torch.tensor([1.0, 2.0, 3.0]))  # advantages that are centred already
