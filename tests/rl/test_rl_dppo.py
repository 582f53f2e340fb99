"""DPPO's loss against arithmetic by hand: a ratio, a clip and a discount for each denoising step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from robolearn.rl.actors.denoising import gaussian_stats

Make = Callable[..., Any]


@pytest.fixture
def algorithm(make_policy: Make, point: Make, kit: Any) -> Any:
    """One component, two denoising steps; ε grows from 0.02 to 0.1, γ_d = 0.9."""
    world = point(8)
    policy = make_policy(world.interface, family="diffusion", steps=2, horizon=1, execute=1)
    return kit.runner(world, policy, "dppo").algorithm


def test_the_loss_of_two_steps_and_one_component_by_hand(algorithm: Any):
    # σ = 1 and x = (0, 1, 2) for both samples: before, the means are 1 and 2, so z = 0 in each step.
    chain = torch.tensor([[[0.0], [1.0], [2.0]]]).repeat(2, 1, 1)
    zero = torch.zeros(2, 2, 1)
    old = gaussian_stats(chain, torch.tensor([[[1.0], [2.0]]]).repeat(2, 1, 1), zero)
    # Now z = 0.1 and 0.5 for the first sample, 0.3 and 0 for the second: log r = −z²/2.
    new = gaussian_stats(chain, torch.tensor([[[0.9], [1.5]], [[0.7], [2.0]]]), zero)
    scores = algorithm.surrogate(old, torch.tensor([3.0, 1.0]))
    # Standardised: ±1/√2. Of the first of two steps γ_d = 0.9 times as much.
    a = 1 / math.sqrt(2)
    r = [[math.exp(-0.005), math.exp(-0.125)], [math.exp(-0.045), 1.0]]
    first = [min(r[0][0] * 0.9 * a, max(r[0][0], 0.98) * 0.9 * a), min(r[0][1] * a, 0.9 * a)]
    second = [min(-r[1][0] * 0.9 * a, -0.98 * 0.9 * a), -a]  # unlikely and bad: cut at 1 − ε_0
    expected = -sum(first + second) / 4
    assert scores(new, slice(0, 2)).item() == pytest.approx(expected, rel=1e-5)
    # The shares of a minibatch: of the same scale, and their mean is the whole.
    halves = [scores(type(new)(*(column[part] for column in new)), part).item() for part in (slice(0, 1), slice(1, 2))]
    assert sum(halves) / 2 == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_the_clip_grows_exponentially_to_the_last_step(
    make_policy: Make, point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch, steps: int
):
    import robolearn.rl.algorithms.dppo as page

    world = point(8)
    policy = make_policy(world.interface, family="diffusion", steps=steps, horizon=1, execute=1)
    algorithm = kit.runner(world, policy, "dppo", clip=0.2, clip_first=0.0125, gamma_denoising=0.5).algorithm
    seen: list[tuple] = []
    monkeypatch.setattr(page, "clipped_surrogate", lambda *args: seen.append(args) or torch.zeros(()))
    chain = torch.zeros(2, steps + 1, 1)
    stats = gaussian_stats(chain, chain[:, 1:], chain[:, 1:])
    algorithm.surrogate(stats, torch.tensor([1.0, -1.0]))(stats, slice(0, 2))
    log_ratio, advantage, clip = seen[0]
    assert log_ratio.tolist() == [[0.0] * steps] * 2
    # ε_k = ε_first + (ε − ε_first)(e^{3k/(M−1)} − 1)/(e³ − 1): half way it has done 18.24% of the way.
    part = [(math.exp(3 * k / (steps - 1)) - 1) / (math.exp(3) - 1) for k in range(steps)] if steps > 1 else [1.0]
    assert clip.tolist() == pytest.approx([0.0125 + 0.1875 * x for x in part])
    if steps in (3, 5):
        assert clip[steps // 2].item() == pytest.approx(0.0125 + 0.1875 * 0.182426, rel=1e-5)
    assert advantage[0].tolist() == pytest.approx([0.5 ** (steps - 1 - k) / math.sqrt(2) for k in range(steps)])
    torch.testing.assert_close(advantage[1], -advantage[0])


def test_a_ratio_s_exponent_is_divided_by_the_root_of_its_components(make_policy: Make, point: Make, kit: Any):
    world = point(8)
    policy = make_policy(world.interface, family="diffusion", steps=1, horizon=4, execute=4)
    algorithm = kit.runner(world, policy, "dppo", clip=0.9, clip_first=0.9).algorithm
    chain, zero = torch.zeros(2, 2, 4), torch.zeros(2, 1, 4)
    old, new = gaussian_stats(chain, zero, zero), gaussian_stats(chain, torch.full((2, 1, 4), 0.2), zero)
    # log r = −4 · 0.2²/2 / √4 = −0.04, for the advantages ±1/√2 alike: they cancel but for the clip that is not met
    surrogate = algorithm.surrogate(old, torch.tensor([3.0, 1.0]))
    one = surrogate(type(new)(*(column[:1] for column in new)), slice(0, 1))
    assert one.item() == pytest.approx(-math.exp(-0.04) / math.sqrt(2), rel=1e-5)


def test_the_paper_s_exponent_is_the_mean_cut_to_its_bounds(make_policy: Make, point: Make, kit: Any):
    world = point(8)
    policy = make_policy(world.interface, family="diffusion", steps=1, horizon=4, execute=4)
    algorithm = kit.runner(world, policy, "dppo", exponent="mean", clip=0.99, clip_first=0.99).algorithm
    chain, zero = torch.zeros(2, 2, 4), torch.zeros(2, 1, 4)
    old = gaussian_stats(chain, zero, zero)
    # log r = −0.2²/2, and where the mean is 20 off, −200.9 is cut at −5: −5 + 0.919
    for off, log_ratio in ((0.2, -0.02), (20.0, -5.0 + 0.5 * math.log(2 * math.pi))):
        new = gaussian_stats(chain, torch.full((2, 1, 4), off), zero)
        loss = algorithm.surrogate(old, torch.tensor([3.0, 1.0]))
        one = loss(type(new)(*(column[:1] for column in new)), slice(0, 1))
        assert one.item() == pytest.approx(-math.exp(log_ratio) / math.sqrt(2), rel=1e-4)
