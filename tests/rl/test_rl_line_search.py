"""A step that went too far ends where it should have, and one that did not is left alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from robolearn.rl.policy_step import KlLineSearch


@pytest.fixture
def line() -> nn.Linear:
    """Its divergence from where it starts, at 1, is the square of the way."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.ones_(module.weight)
    return module


def go(module: nn.Linear, way: float) -> None:
    with torch.no_grad():
        module.weight += way


def test_a_quadratic_divergence_is_met_at_once(line: nn.Linear) -> None:
    search = KlLineSearch(line)
    go(line, 3.0)  # KL 9
    asked: list[float] = []

    def kl() -> float:
        asked.append((line.weight.item() - 1) ** 2)
        return asked[-1]

    kept, found = search.within(kl(), kl, limit=0.4, target=0.1)
    assert kept == pytest.approx(math.sqrt(0.1 / 9)) and found == pytest.approx(0.1)  # 0.105
    assert asked == pytest.approx([9.0, 0.1])


def test_a_step_within_the_limit_stays(line: nn.Linear) -> None:
    search = KlLineSearch(line)
    go(line, 0.5)
    assert search.within(0.25, lambda: 0.25, limit=0.4, target=0.1) == (1.0, 0.25)
    assert line.weight.item() == 1.5


def test_a_divergence_that_grows_faster_is_met_too(line: nn.Linear) -> None:
    search = KlLineSearch(line)
    go(line, 3.0)

    def kl() -> float:
        return math.exp((line.weight.item() - 1) ** 4) - 1

    _, found = search.within(kl(), kl, limit=0.4, target=0.1)
    assert found == kl() <= 0.4
    assert 1.0 < line.weight.item() < 1.8


@pytest.mark.parametrize("kl", [math.inf, math.nan])
def test_from_where_nothing_is_finite_it_goes_back(line: nn.Linear, kl: float) -> None:
    search = KlLineSearch(line)
    go(line, math.inf)
    assert search.within(kl, lambda: 0.0, limit=0.4, target=0.1) == (0.0, 0.0)
    assert line.weight.item() == 1.0
