"""Implicit Q-learning: expectiles in closed form, weights by hand, and a line whose optimal values are known."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from robolearn.core import BadInput
from robolearn.data.replay import ReplayBuffer
from robolearn.rl.algorithms.iql import Iql, expectile_loss
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.student_settings import IqlConfig

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, base, windows
from line import GAMMA, PLACES, optimal, seen, wandering


def expectile(share: float, kappa: float) -> float:
    """Of 1 with probability `share`, else 0:  κ p (1 − v) = (1 − κ) (1 − p) v."""
    return kappa * share / (kappa * share + (1 - kappa) * (1 - share))


@pytest.mark.parametrize("kappa", [0.5, 0.7, 0.9])
def test_the_loss_is_least_at_the_expectile(kappa: float) -> None:
    values = torch.cat((torch.ones(22), torch.zeros(78)))
    v = torch.linspace(0, 1, 10_001)
    loss = expectile_loss(values[:, None] - v, kappa).mean(0)
    assert float(v[loss.argmin()]) == pytest.approx(expectile(0.22, kappa), abs=2e-4)


@pytest.mark.long
@pytest.mark.parametrize("kappa", [0.3, 0.8])
def test_the_value_of_a_state_is_the_expectile_of_what_was_done_there(kappa: float) -> None:
    """One state, in which one window of four is worth 1 and the others 0."""
    algorithm = Iql(base(), IqlConfig(**SMALL | {"lr": 3e-3}, expectile=kappa), seed=0)
    batch = windows(8)
    here = {"proprio": torch.zeros(8, 2)}
    worth = (torch.arange(8) % 4 == 0).float()
    algorithm.critic.pessimistic = lambda features, actions, order: worth[:, None]  # type: ignore[method-assign]
    for _ in range(400):
        algorithm.update(replace(batch, observation=here, next_observation=here))
    with torch.no_grad():
        assert algorithm.next_value(here).mean() == pytest.approx(expectile(0.25, kappa), abs=0.02)


def test_windows_weigh_by_their_advantage() -> None:
    """A = Q − V of −½, 0, ½ and 9, β = 2: e^−1, 1, e, and no more than 5."""
    algorithm = Iql(base(), IqlConfig(**SMALL, beta=2.0, weight_max=5.0), seed=0)
    worth = torch.tensor([0.25, 0.75, 1.25, 9.75])
    algorithm.critic.pessimistic = lambda features, actions, order: worth[:, None]  # type: ignore[method-assign]
    algorithm.value = lambda features: torch.full((4,), 0.75)  # type: ignore[assignment]
    met: list[torch.Tensor] = []
    algorithm.student.imitate = lambda batch, rows, weight: met.append(weight[rows]) or torch.zeros(())  # type: ignore
    batch = windows(4)
    algorithm.improve(algorithm.policy.encode(batch.observation), batch)
    torch.testing.assert_close(met[0], torch.tensor([math.exp(-1), 1.0, math.e, 5.0]))


def test_the_loss_of_imitation_is_a_weighted_mean_of_what_was_commanded() -> None:
    """Errors 1 2 | 3 4, of which the last was not commanded; weights 2 and 1: (2·1 + 2·2 + 3) / (2 + 2 + 1)."""
    student = Iql(base(), IqlConfig(**SMALL), seed=0).student
    scale = torch.nn.Parameter(torch.tensor(1.0))
    errors = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    student.net.errors = lambda *_: scale * errors
    batch = replace(windows(2), planned=torch.tensor([[True, True], [True, False]]))
    rows = torch.arange(2)
    assert float(student.imitate(batch, rows, torch.tensor([2.0, 1.0]))) == pytest.approx(9 / 5)
    assert float(scale.grad) == pytest.approx(9 / 5)  # type: ignore[arg-type]
    assert float(student.imitate(batch, rows)) == pytest.approx(6 / 3)


def test_small_weights_count_as_large_ones_of_the_same_proportions() -> None:
    """16 windows of two actions, each with an error of 1 and a weight of 10⁻⁴: the loss is 1; without any weight 0."""
    student = Iql(base(), IqlConfig(**SMALL), seed=0).student
    scale = torch.nn.Parameter(torch.tensor(1.0))
    student.net.errors = lambda *_: scale * torch.ones(16, 2)
    rows = torch.arange(16)
    small, none = (student.loss(windows(16), rows, torch.full((16,), each)).item() for each in (1e-4, 0.0))
    assert small == pytest.approx(1.0) and none == 0.0


def learned(algorithm: OffPolicy, updates: int, right: float = 0.5) -> OffPolicy:
    """`algorithm` after so many updates from 150 episodes of wandering, half of which go to the right."""
    buffer = ReplayBuffer(INTERFACE, 1, 5000)
    for episode in wandering(150, 0, right):
        buffer.add(episode)
    order = torch.Generator().manual_seed(0)
    for _ in range(updates):
        algorithm.update(buffer.sample(64, GAMMA, order))
    return algorithm


LINE: dict[str, Any] = {"width": 32, "depth": 2, "critics": 2, "subset": 2, "gamma": GAMMA, "lr": 3e-3, "tau": 0.05}
EVERYWHERE = {"proprio": torch.tensor([seen(place) for place in range(PLACES)])}


@pytest.mark.long
def test_optimal_values_are_recovered_from_random_steps() -> None:
    """By value iteration over the line itself. Random steps are worth far less (0.06 in the first place, not 0.66)."""
    config = IqlConfig(**LINE, expectile=0.95, beta=20.0, imitate_lr=3e-3, imitate_average=0.98)
    algorithm = learned(Iql(base(horizon=1), config, seed=0), 1200)
    v, q = optimal()
    with torch.no_grad():
        found = algorithm.next_value(EVERYWHERE)
        features = algorithm.policy.encode(EVERYWHERE)
        left, right = (algorithm.critic.values(features, torch.full((5, 1, 1), a)).mean(0)[:, 0] for a in (-0.7, 0.7))
    torch.testing.assert_close(found, torch.tensor(v, dtype=torch.float32), atol=0.08, rtol=0.0)
    torch.testing.assert_close(right, torch.tensor(q[:, 1], dtype=torch.float32), atol=0.08, rtol=0.0)
    torch.testing.assert_close(left, torch.tensor(q[:, 0], dtype=torch.float32), atol=0.1, rtol=0.0)
    # What acts goes right nearly always, though half of the steps that it learned from went left.
    many = {"proprio": EVERYWHERE["proprio"].repeat(40, 1).numpy()}
    assert (algorithm.act(many, explore=False) > 0).mean() > 0.9


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"expectile": 1.0}, {"beta": -1.0}, {"weight_max": 0.0}, {"cross_q": True}, {"proposals": 0}):
        with pytest.raises(BadInput):
            IqlConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="mask-padding"):
        Iql(base(mask_padding=False), IqlConfig(**SMALL), seed=0)
