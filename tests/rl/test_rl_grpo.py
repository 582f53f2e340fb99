"""Group-relative fine-tuning: equal starts, credit by comparison, and groups that teach nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.rl.actors.denoising import gaussian_stats

Make = Callable[..., Any]


def test_the_worlds_of_a_group_begin_alike_and_each_rollout_elsewhere(point: Make, kit: Any):
    world = point(8)
    made = kit.runner(world, algo="grpo", group=4)
    starts = []
    update = made.algorithm.update

    def watched(batch: Any, *rest: Any) -> dict[str, float]:
        starts.append(batch.observation["proprio"][batch.grid[0]])
        return update(batch, *rest)

    made.algorithm.update = watched
    kit.run(made, 0, 3)
    assert world.ids == [[0] * 4 + [1] * 4] * 3 and len(set(world.seeds)) == 3
    for first in starts:
        assert (first[:4] == first[0]).all() and (first[4:] == first[4]).all() and (first[0] != first[4]).any()
    assert not torch.equal(starts[0], starts[1])


def test_every_world_plays_one_episode_and_each_decision_has_its_credit(
    point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch
):
    made = kit.runner(point(8), algo="grpo", group=4, gamma=0.5)
    credited: list[tuple[Any, torch.Tensor]] = []
    monkeypatch.setattr(made.algorithm, "_improve", lambda batch, a, _: credited.append((batch, a)) or {})
    row = made.iterate(0)
    ((batch, advantage),) = credited
    assert batch.episodes == 8 == batch.ended.sum()
    returns = np.zeros(8)
    for w in range(8):
        rows = [r for r in batch.grid[:, w].tolist() if r >= 0]
        returns[w] = sum(0.5**t * batch.reward[r].item() for t, r in enumerate(rows))
    expected = returns - np.repeat(returns.reshape(2, 4).mean(1), 4)
    for w in range(8):
        for r in batch.grid[:, w].tolist():
            assert r < 0 or advantage[r].item() == pytest.approx(expected[w], abs=1e-6)
    assert row["return"] == pytest.approx(returns.mean())
    differ = (np.abs(expected.reshape(2, 4)).sum(1) > 1e-9).mean()
    assert row["groups_that_differ"] == pytest.approx(differ) and differ > 0


def test_groups_that_went_alike_teach_nothing(make_policy: Make, point: Make, kit: Any):
    """Without any noise that matters, all episodes of a group are the same: the policy stays where it is."""
    world = point(8)
    policy = make_policy(world.interface, horizon=2, execute=2, initial_noise_std=0.0)
    tiny = kit.NOISE.__class__(sigma_min=1e-9, sigma_max=1e-9)
    made = kit.runner(world, policy, "grpo", noise=tiny)
    before = {key: value.clone() for key, value in made.algorithm.net.state_dict().items()}
    rows = kit.run(made, 0, 2)
    assert all(row["groups_that_differ"] == 0.0 and "kl" not in row for row in rows)
    assert all(torch.equal(value, before[key]) for key, value in made.algorithm.net.state_dict().items())


@pytest.mark.parametrize(("dual_clip", "bad"), [(None, 8.0), (3.0, 3.0)])
def test_the_loss_with_and_without_dual_clip_by_hand(point: Make, kit: Any, dual_clip: float | None, bad: float):
    """Ratios of 8 for a good and for a bad sample; advantages 1 and −1 stay centred where they are."""
    algorithm = kit.runner(point(8), algo="grpo", dual_clip=dual_clip).algorithm
    chain, zero = torch.zeros(2, 2, 1), torch.zeros(2, 1, 1)
    old = gaussian_stats(chain, torch.full((2, 1, 1), math.sqrt(2 * math.log(8))), zero)
    new = gaussian_stats(chain, zero, zero)
    a = 1 / math.sqrt(2)  # the deviation of (1, −1) is √2
    loss = algorithm.surrogate(old, torch.tensor([1.0, -1.0]))(new, slice(0, 2))
    assert loss.item() == pytest.approx(-(1.1 * a - bad * a) / 2, rel=1e-5)
    # (3, 1) is not centred: good stays good.
    loss = algorithm.surrogate(old, torch.tensor([3.0, 1.0]))(new, slice(0, 2))
    assert loss.item() == pytest.approx(-1.1 * (3 * a + a) / 2, rel=1e-5)


def test_episodes_count_alike_however_long_they_last(point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch):
    made = kit.runner(point(8), algo="grpo", group=4, gamma=0.5, weigh="episode")
    credited: list[tuple[Any, torch.Tensor]] = []
    monkeypatch.setattr(made.algorithm, "_improve", lambda batch, a, _: credited.append((batch, a)) or {})
    made.iterate(0)
    ((batch, credit),) = credited
    present = batch.grid >= 0
    lengths = present.sum(0)
    assert lengths.unique().numel() > 1
    returns = (0.5 ** torch.arange(len(batch.grid))[:, None] * batch.on_grid(batch.reward)).sum(0)
    advantage = returns - returns.reshape(2, 4).mean(1).repeat_interleave(4)
    # Σ_t over an episode / n_i, then the mean over episodes, is the mean over decisions of A_i B / (N n_i).
    for w in range(8):
        for row in batch.grid[present[:, w], w].tolist():
            assert credit[row].item() == pytest.approx((advantage[w] * len(batch) / (8 * lengths[w])).item(), abs=1e-6)
    assert credit.mean().item() == pytest.approx(advantage.mean().item(), abs=1e-6)
