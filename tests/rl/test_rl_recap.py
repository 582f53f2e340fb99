"""RECAP: values, advantages and what counts as good by hand, and a line on which it goes the better way."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from robolearn.core import BadInput
from robolearn.data.replay import ReplayBuffer
from robolearn.rl.algorithms.recap import Recap, is_good
from robolearn.rl.student_settings import RecapConfig

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, base, windows
from line import GAMMA, PLACES, seen, wandering


def test_the_best_share_of_what_no_human_did_is_good() -> None:
    """Of the advantages 0 … 9 without a human the three largest are above the quantile 0.7, which is 6.3."""
    advantage = torch.tensor([3.0, 9.0, 0.0, 7.0, 50.0, 1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 40.0])
    human = torch.zeros(12, dtype=torch.bool)
    human[[4, 11]] = True
    assert is_good(advantage, human, 0.3).nonzero().flatten().tolist() == [1, 3, 4, 10, 11]
    assert is_good(advantage, human, 0.5).sum() == 2 + 5
    assert is_good(advantage, torch.ones(12, dtype=torch.bool), 0.3).all()
    assert not is_good(torch.zeros(12), ~torch.ones(12, dtype=torch.bool), 0.3).any()


def test_windows_are_learned_with_what_they_are_worth() -> None:
    """V = 2 x: A = R + d V(s') − V(s); the fourth window is a human's."""
    algorithm = Recap(base(), RecapConfig(**SMALL, positive=0.5), seed=0)
    algorithm.value = lambda features: 2.0 * features[:, 0]  # type: ignore[assignment]
    met: list[dict[str, torch.Tensor]] = []
    algorithm.student.loss = lambda batch, rows, given: met.append(given) or torch.zeros(())  # type: ignore
    algorithm.student.step = lambda loss: loss  # type: ignore[method-assign]
    batch = replace(
        windows(4),
        observation={"proprio": torch.tensor([[0.5, 0], [0.0, 0], [0.0, 0], [0.5, 0]])},
        next_observation={"proprio": torch.tensor([[1.0, 0], [0.5, 0], [1.0, 0], [0.0, 0]])},
        reward=torch.tensor([0.0, 1.0, 0.0, 0.0]),
        discount=torch.tensor([0.5, 0.0, 0.5, 0.5]),
        intervention=torch.tensor([False, False, False, True]),
    )
    found = algorithm.improve(algorithm.policy.encode(batch.observation), batch)
    # A: ½·2 − 1 = 0, 1, ½·2 = 1, −1; the median of the first three is 1, which none is above
    assert met[0]["indicator"].tolist() == [-1.0, -1.0, -1.0, 1.0] and float(found["good"]) == 0.25
    assert float(found["advantage_std"]) == pytest.approx(torch.tensor([0.0, 1.0, 1.0, -1.0]).std().item())
    algorithm.improve(algorithm.policy.encode(batch.observation), replace(batch, reward=torch.tensor([0.0, 1, 0.5, 0])))
    assert met[1]["indicator"].tolist() == [-1.0, -1.0, 1.0, 1.0]


@pytest.mark.long
def test_the_value_of_a_state_is_the_mean_of_the_returns_from_there() -> None:
    """One state, from which one return of four is 1 and the others are 0, whatever the rewards are."""
    algorithm = Recap(base(), RecapConfig(**SMALL | {"lr": 3e-3}), seed=0)
    here = {"proprio": torch.zeros(8, 2)}
    batch = replace(windows(8), observation=here, next_observation=here, to_go=torch.tensor([0.0, 0, 0, 1] * 2))
    first = algorithm.update(batch)
    assert float(first["value_loss"]) == pytest.approx(0.25, abs=0.02)  # of a value near 0
    for _ in range(400):
        algorithm.update(batch)
    with torch.no_grad():
        assert algorithm.next_value(here).mean() == pytest.approx(0.25, abs=0.02)


def test_the_loss_is_of_the_network_with_what_it_is_given() -> None:
    """Where nothing is dropped, another indicator is another error once the weights of its column are not 0."""
    algorithm = Recap(base(), RecapConfig(**SMALL, indicator_dropout=0.0), seed=0)
    with torch.no_grad():
        algorithm.student.net.field.mlp.first.weight[:, -1] = 1.0
    batch, found = windows(8), []
    for given in (1.0, -1.0, None):
        algorithm.generator.manual_seed(3)
        told: dict[str, Any] = {} if given is None else {"given": {"indicator": torch.full((8,), given)}}
        found.append(float(algorithm.student.loss(batch, torch.arange(8), **told).detach()))
    assert found[0] == found[2] != pytest.approx(found[1], abs=1e-4)


@pytest.mark.long
def test_it_goes_the_better_way_of_random_steps() -> None:
    """Half of what was recorded went left. What it would do of what was not good goes left mostly."""
    line: dict[str, Any] = {"width": 32, "critics": 2, "gamma": GAMMA, "lr": 3e-3, "imitate_lr": 3e-3}
    config = RecapConfig(**line, n_step=1, imitate_average=0.98, guidance=1.5)
    algorithm = Recap(base(horizon=1), config, seed=0)
    buffer = ReplayBuffer(INTERFACE, 1, 5000)
    for episode in wandering(150, 0):
        buffer.add(episode)
    order = torch.Generator().manual_seed(0)
    for _ in range(1200):
        algorithm.update(buffer.sample(64, GAMMA, order))
    many = {"proprio": torch.tensor([seen(place) for place in range(PLACES)]).repeat(40, 1).numpy()}
    good = (algorithm.act(many, explore=False) > 0).mean()
    algorithm.policy.proposer.net.indicator.forward = lambda seen: -torch.ones_like(seen[:, :1])
    other = (algorithm.act(many, explore=False) > 0).mean()
    assert good > 0.9 and other < 0.5, (good, other)


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"positive": 0.0}, {"positive": 1.0}, {"guidance": -1.0}, {"indicator_dropout": 1.0}):
        with pytest.raises(BadInput):
            RecapConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"--guidance: got 2\.0, expected 1, or --indicator-dropout above 0"):
        RecapConfig(guidance=2.0, indicator_dropout=0.0)
