"""H2O: weights and penalty by hand, a gap that is known, and which windows are real."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from robolearn.data.replay import PlayedEpisode
from robolearn.rl.algorithms.h2o import Discriminators, H2o, gap_penalty, weights
from robolearn.rl.experience import Experience
from robolearn.rl.h2o_settings import H2oConfig

sys.path.insert(0, str(Path(__file__).parent))
from corridor import SMALL, base, windows

REAL = torch.tensor([False, False, True, True])
GAP = torch.tensor([-math.log(2.0), 1.0, -5.0, 0.3])


def test_simulated_windows_count_by_how_real_they_are() -> None:
    """½ where the real arm would come there half as often, 1 where more often; real windows count whatever g says."""
    assert weights(GAP, REAL).tolist() == pytest.approx([0.5, 1.0, 1.0, 1.0])


def test_the_penalty_by_hand() -> None:
    """u = 1 and 3: ω = ¼ and ¾, values ln 4 and ln 8 of one critic: ln(1 + 6) − (1 + 2) / 2; another has 0 of all."""
    done = torch.tensor([[math.log(4.0), math.log(8.0), 1.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    gap = torch.tensor([-1.0, -3.0, -9.0, 9.0])
    assert float(gap_penalty(done, gap, REAL)) == pytest.approx((math.log(7.0) - 1.5) / 2)
    # u ends at 10, and at hardly anything where the real arm would come there more often: ω = 1 and 0.
    assert float(gap_penalty(done[:1], torch.tensor([-50.0, 4.0, 0.0, 0.0]), REAL)) == pytest.approx(
        math.log(4.0) - 1.5, abs=1e-4
    )
    # Equally real: the mean of exp Q.
    assert float(gap_penalty(done[:1], torch.tensor([2.0, 4.0, 0.0, 0.0]), REAL)) == pytest.approx(
        math.log(6.0) - 1.5, abs=1e-4
    )


@pytest.mark.long
def test_two_discriminators_find_a_gap_that_is_known() -> None:
    """s' is N(0, 1) in reality and N(1, 1) in the simulator, and so is a, by itself: g = ½ − s', whatever a is, which
    tells them apart as well. A share of ¼ is real."""
    torch.manual_seed(0)
    judges = Discriminators(1, 1, H2oConfig(width=32, depth=2, lr=3e-3), torch.device("cpu"))
    for _ in range(600):
        real = torch.arange(256) % 4 == 0
        s, (a, after) = torch.randn(256, 1), torch.randn(2, 256, 1) + 1.0 * ~real[:, None]
        judges.fit(s, a, after, real, lambda x: x)
    after = torch.linspace(-0.5, 1.5, 7)[:, None]
    for a in (-0.8, 1.8):  # where D_sa is 1.3 and −1.3
        found = judges.gap(torch.zeros(7, 1), torch.full((7, 1), a), after)
        assert (found - (0.5 - after[:, 0])).abs().max() < 0.6


def test_an_update_weighs_errors_and_presses_values() -> None:
    """The error of each critic is w times the square, and β times the penalty is added."""
    algorithm = H2o(base(), H2oConfig(**SMALL | {"batch": 4}, gap_penalty=0.5), seed=0)
    algorithm.online = True
    algorithm.judges.gap = lambda s, a, after: GAP  # type: ignore[method-assign]
    met: list[torch.Tensor] = []
    done = torch.tensor([[math.log(4.0), math.log(8.0), 1.0, 2.0]])

    def fit(features: torch.Tensor, actions: torch.Tensor, target: torch.Tensor, penalty: object) -> dict:
        met.extend((algorithm.critic.error(torch.full((2, 4), 3.0)), penalty(done)))  # type: ignore[operator]
        return {}

    algorithm.critic.fit = fit  # type: ignore[method-assign,assignment]
    metrics = algorithm.update(windows(4))
    assert torch.allclose(met[0], torch.tensor([4.5, 9.0, 9.0, 9.0]).expand(2, 4))
    assert float(met[1]) == pytest.approx(0.5 * (math.log(4.0) - 1.5), abs=1e-4), "the second u is hardly anything"
    assert float(metrics["simulated_weight"]) == pytest.approx(0.75)


def told_apart(source: float, steps: int = 12) -> PlayedEpisode:
    """An episode that says where it is from."""
    seen = np.full((steps + 1, 2), source, np.float32)
    never = np.zeros(steps, bool)
    return PlayedEpisode({"proprio": seen}, np.zeros((steps, 1), np.float32), np.ones(steps, np.float32), never,
                         False, False)  # fmt: skip


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_windows_of_stored_episodes_are_the_real_ones(share: float) -> None:
    algorithm = H2o(base(), H2oConfig(**SMALL | {"batch": 16}, demo_share=share), seed=0)
    experience = Experience(algorithm, [told_apart(1.0)])
    draws = torch.Generator().manual_seed(0)
    batch = experience.sample(draws)
    assert algorithm.real(len(batch)).all() and "gap_loss" not in algorithm.update(batch), "before the simulator"
    experience.add(told_apart(2.0))
    batch = experience.sample(draws)
    assert torch.equal(algorithm.real(len(batch)), batch.observation["proprio"][:, 0] == 1.0)
    assert int(algorithm.real(len(batch)).sum()) == 16 * share and "gap_loss" in algorithm.update(batch)
