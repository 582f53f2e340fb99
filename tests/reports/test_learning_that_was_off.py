"""Learning that was off by a mask, a logarithm or a scale; worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer
from robolearn.core import ArraySpec, Interface
from robolearn.data.replay import End, PlayedEpisode, ReplayBuffer, ReplayStep
from robolearn.data.replay.records import Assembler
from robolearn.rl.actors.denoising import gaussian_stats
from robolearn.rl.returns import clipped_surrogate, gae, standardise

STATE = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 10.0)


@pytest.mark.parametrize(("terminated", "advantage"), [(True, 0.5 - 3.0), (False, 0.5 + 0.9 * 2.0 - 3.0)])
def test_hil_serl_20_on_policy_a_time_limit_is_no_end_of_the_world(terminated: bool, advantage: float) -> None:
    one = torch.ones(1, 1)
    ended, over = one.bool(), torch.full((1, 1), terminated)
    found, _ = gae(0.5 * one, 3.0 * one, 2.0 * one, over, ended, gamma=0.9, lam=0.95)
    assert found.item() == pytest.approx(advantage)


@pytest.mark.parametrize("terminated", [True, False])
def test_hil_serl_49_a_demonstration_is_masked_at_its_last_step_only_where_the_world_ended(terminated: bool) -> None:
    seen = {"proprio": np.arange(5, dtype=np.float32)[:, None]}  # four steps, and what was seen after them
    nothing = np.zeros(4, np.float32)
    buffer = ReplayBuffer(STATE, chunk=2, capacity=100)
    buffer.add(PlayedEpisode(seen, nothing[:, None], nothing, nothing > 1, terminated, terminated))
    batch = buffer.sample(64, 0.9, torch.Generator().manual_seed(0))
    start = batch.observation["proprio"][:, 0]
    assert set(start.tolist()) >= {0.0, 1.0, 2.0}
    torch.testing.assert_close(batch.discount[start < 2], torch.full_like(batch.discount[start < 2], 0.9**2))
    last = batch.discount[start == 2]
    torch.testing.assert_close(last, torch.full_like(last, 0.0 if terminated else 0.9**2))
    if not terminated:
        assert (batch.next_observation["proprio"][start == 2] == 4.0).all()


@pytest.mark.parametrize("success", [True, False])
def test_hil_serl_44_a_person_s_key_in_the_middle_of_a_take_rewards_that_step_and_ends_it(success: bool) -> None:
    assembler, seen = Assembler(), {"proprio": np.arange(4, dtype=np.float32)[:, None]}
    for t in range(3):  # the key is pressed in the third of twenty possible steps
        row = {"proprio": seen["proprio"][t]}
        reward = float(success and t == 2)
        assert assembler.add(ReplayStep(0, t, row, np.zeros(1, np.float32), reward, False)) is None
    episode = assembler.add(End(0, 3, {"proprio": seen["proprio"][3]}, True, False, success))
    assert episode is not None and episode.terminated and episode.reward.tolist() == [0.0, 0.0, float(success)]
    buffer = ReplayBuffer(STATE, chunk=1, capacity=100)
    buffer.add(episode)
    batch = buffer.sample(64, 0.9, torch.Generator().manual_seed(0))
    last = batch.observation["proprio"][:, 0] == 2
    assert last.any() and not batch.discount[last].any(), "nothing comes after the key"
    assert (batch.reward[last] == float(success)).all() and not batch.reward[~last].any()


def test_tianshou_312_the_likelihood_is_of_what_was_drawn_not_of_what_was_clipped_for_the_world() -> None:
    """x₁ = 3 of N(1, 1) is executed as 1. Its likelihood is that of 3, so the first ratio is 1 and the gradient is
    (3 − 1) A; taken at the executed 1 it would be nothing at all."""
    mean = torch.tensor([[[1.0]]], requires_grad=True)
    chain, zero = torch.tensor([[[0.0], [3.0]]]), torch.zeros(1, 1, 1)
    new, old = (gaussian_stats(chain, m, zero).joint() for m in (mean, mean.detach()))
    loss = clipped_surrogate(new - old, torch.tensor([1.0]), 0.1)
    assert (new - old).item() == 0.0
    loss.backward()
    assert mean.grad is not None and mean.grad.item() == pytest.approx(-2.0)


def test_flow_grpo_143_a_sum_of_logarithms_is_scaled_openly() -> None:
    """D components each off by one: −½ z² − ½ log 2π a component. The root keeps one clip for every size; the mean
    shrinks a ratio to its D-th root."""
    one = -0.5 - 0.5 * math.log(2 * math.pi)
    for size in (1, 4, 100):
        stats = gaussian_stats(torch.ones(1, 2, size), torch.zeros(1, 1, size), torch.zeros(1, 1, size))
        assert stats.log_prob.item() == pytest.approx(size * one, rel=1e-5)
        assert stats.joint().item() == pytest.approx(math.sqrt(size) * one, rel=1e-5)


def test_stable_baselines3_325_a_single_advantage_is_a_number() -> None:
    assert torch.isfinite(standardise(torch.tensor([3.0]))).all()
    assert torch.isfinite(standardise(torch.tensor([3.0]), centre=False)).all()


RARE = torch.cat([torch.zeros(99, 1), torch.tensor([[0.9]])])  # one action ten deviations from the mean
NUMBERS = {"mean": [0.009], "std": [0.09], "min": [0.0], "max": [0.9]}
SCALED = Normalizer.from_statistics(STATE, {"proprio": NUMBERS, "action": NUMBERS})


def test_lerobot_1498_an_action_far_from_the_mean_is_within_what_a_sampler_keeps_to() -> None:
    assert SCALED.action(RARE).abs().max() <= 1.0


def test_innate_os_474_an_action_far_from_the_mean_comes_back_from_a_sampler_s_clip() -> None:
    torch.testing.assert_close(SCALED.action_back(SCALED.action(RARE).clamp(-1, 1)), RARE)
