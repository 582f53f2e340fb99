"""Calibrated conservative critics: the penalty by hand, and values of a line that hardly anybody walked to its end."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch

from robolearn.core import BadInput
from robolearn.data.replay import ReplayBuffer
from robolearn.rl.algorithms.cal_ql import CalQl, conservatism
from robolearn.rl.ensemble_critic import EnsembleCritic
from robolearn.rl.student_settings import CalQlConfig

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, base
from line import GAMMA, PLACES, optimal, seen, wandering


def test_the_penalty_by_hand() -> None:
    """One window of one critic: a proposal worth ln 2 where ln 4 was reached, a random chunk worth ln 6, and 1 for what
    was done: ln((4 + 6) / 2) − 1. The random chunk is not lifted to what was reached."""
    proposed, random = torch.tensor([[[math.log(2.0)]]]), torch.tensor([[[math.log(6.0)]]])
    done, low = torch.tensor([[1.0]]), torch.tensor([[[math.log(0.5)]]])
    reached = torch.tensor([math.log(4.0)])
    assert float(conservatism(proposed, random, done, reached)) == pytest.approx(math.log(5.0) - 1)
    assert float(conservatism(proposed, low, done, reached)) == pytest.approx(math.log(4.5 / 2) - 1)
    assert float(conservatism(proposed, random, done, reached - 9)) == pytest.approx(math.log(4.0) - 1)


def test_values_are_pressed_down_no_further_than_what_was_reached() -> None:
    """Gradients of a proposal's value: none where it is below the return, its share of the sum where it is above."""
    for reached, share in ((5.0, 0.0), (-5.0, 0.5)):
        proposed = torch.zeros(1, 1, 1, requires_grad=True)
        conservatism(proposed, torch.zeros(1, 1, 1), torch.zeros(1, 1), torch.tensor([reached])).backward()
        assert float(proposed.grad) == pytest.approx(share)  # type: ignore[arg-type]


@pytest.mark.long
def test_the_loss_has_the_penalty_and_says_so() -> None:
    """(Q − 1)² alone leads to 1; with 4 Q beside it to −1."""
    found = {}
    for weight in (0.0, 4.0):
        algorithm = CalQl(base(), CalQlConfig(**SMALL | {"lr": 3e-2}), seed=0)
        critic: EnsembleCritic = algorithm.critic
        x, a = torch.zeros(8, 2), torch.zeros(8, 2)
        for _ in range(400):
            metrics = critic.fit(x, a, torch.ones(8), lambda q, weight=weight: weight * q.mean())
        found[weight] = critic.values(x, a[:, None]).mean().item()
        assert float(metrics["penalty"]) == pytest.approx(weight * found[weight], abs=0.1)
    assert found[0.0] == pytest.approx(1.0, abs=0.05) and found[4.0] == pytest.approx(-1.0, abs=0.1)


@pytest.mark.long
@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_what_was_not_done_is_worth_less_than_what_was(alpha: float) -> None:
    """Recorded steps are ±0.7; that a step of 0.0 is worth as much is only believed without conservatism. What was done
    is worth no more than value iteration says."""
    size = {"width": 32, "depth": 2, "critics": 2, "subset": 1}
    config = CalQlConfig(**size, gamma=GAMMA, lr=3e-3, tau=0.05, conservatism=alpha, imitate_average=0.98,
                         imitate_lr=3e-3, caution=0.0)  # fmt: skip
    algorithm, buffer = CalQl(base(horizon=1), config, seed=0), ReplayBuffer(INTERFACE, 1, 5000)
    for episode in wandering(150, 0, 0.7):
        buffer.add(episode)
    order = torch.Generator().manual_seed(0)
    for _ in range(700):
        algorithm.update(buffer.sample(64, GAMMA, order))
    here = {"proprio": torch.tensor([seen(place) for place in range(PLACES)])}
    with torch.no_grad():
        features = algorithm.policy.encode(here)
        right, still = (algorithm.critic.values(features, torch.full((5, 1, 1), a)).mean() for a in (0.7, 0.0))
    assert 0.3 < float(right) < optimal()[1][:, 1].mean() + 0.05
    assert (float(right - still) > 0.15) == (alpha > 0)


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"conservatism": -1.0}, {"unseen": 0}, {"backup_proposals": 0}, {"cross_q": True}):
        with pytest.raises(BadInput):
            CalQlConfig(**wrong)  # type: ignore[arg-type]
