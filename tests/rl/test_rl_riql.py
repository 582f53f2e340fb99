"""RIQL: Huber's loss and the quantile by hand, and a line on which every fifth reward is wrong."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robolearn.core import BadInput
from robolearn.data.replay import PlayedEpisode, ReplayBuffer
from robolearn.rl.algorithms.iql import Iql
from robolearn.rl.algorithms.riql import Riql
from robolearn.rl.student_settings import IqlConfig, RiqlConfig

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, base, windows
from line import GAMMA, PLACES, optimal, seen, wandering

EVERYWHERE = {"proprio": torch.tensor([seen(place) for place in range(PLACES)])}
LINE = {"width": 32, "depth": 2, "subset": 2, "gamma": GAMMA, "lr": 3e-3, "tau": 0.05}


def test_the_loss_of_the_critics_is_hubers_over_its_delta() -> None:
    """δ = 0.5: x² while |x| ≤ 0.5, then |x| − 0.25."""
    algorithm = Riql(base(), RiqlConfig(**SMALL, huber=0.5), seed=0)
    x = torch.tensor([-3.0, -0.5, 0.0, 0.25, 0.5, 2.0])
    torch.testing.assert_close(algorithm.critic.error(x), torch.tensor([2.75, 0.25, 0.0, 0.0625, 0.25, 1.75]))
    loss = algorithm.update(windows(8))["critic_loss"]
    algorithm.critic.error = torch.square  # type: ignore[method-assign]
    assert float(algorithm.update(windows(8))["critic_loss"]) != pytest.approx(float(loss))


def test_a_window_is_worth_the_quantile_of_all_critics() -> None:
    """Of 0, 1, 2, 3 and 10: by linear interpolation 0.75 of the way from 0 to 1, at q = 3/16."""
    algorithm = Riql(base(), RiqlConfig(**SMALL | {"critics": 5}, quantile=3 / 16), seed=0)
    values = torch.tensor([10.0, 0.0, 2.0, 1.0, 3.0])
    algorithm.critic.targets = lambda features, actions, members=None: values[:, None, None].expand(5, 8, 1)  # type: ignore[method-assign]
    batch = windows(8)
    found = algorithm._worth(algorithm.policy.encode(batch.observation), batch.action.flatten(1))
    assert found.tolist() == pytest.approx([0.75] * 8)
    assert np.quantile(values.numpy(), 3 / 16) == pytest.approx(0.75)


def corrupted(episodes: list[PlayedEpisode], share: float) -> list[PlayedEpisode]:
    """The same with this share of their rewards drawn from −5 to 5."""
    rng, found = np.random.default_rng(3), []
    for episode in episodes:
        wrong = rng.random(len(episode.reward)) < share
        found.append(
            replace(episode, reward=np.where(wrong, rng.uniform(-5, 5, len(wrong)), episode.reward).astype("f"))
        )
    return found


@pytest.mark.long
def test_wrong_rewards_mislead_it_less() -> None:
    """Every fifth reward is drawn anew, five times as large as the largest true one."""
    buffer = ReplayBuffer(INTERFACE, 1, 5000)
    for episode in corrupted(wandering(150, 0), 0.2):
        buffer.add(episode)
    v, _ = optimal()
    off = {}
    for name, kind, config in (
        ("iql", Iql, IqlConfig(**LINE, critics=2, expectile=0.9)),
        ("riql", Riql, RiqlConfig(**LINE, critics=5, expectile=0.9)),
    ):
        algorithm, order = kind(base(horizon=1), config, seed=0), torch.Generator().manual_seed(0)
        for _ in range(1200):
            algorithm.update(buffer.sample(64, GAMMA, order))
        with torch.no_grad():
            off[name] = float((algorithm.next_value(EVERYWHERE) - torch.tensor(v)).abs().mean())
    assert off["riql"] < 0.5 * off["iql"], off


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"quantile": 1.1}, {"huber": 0.0}, {"expectile": 1.0}):
        with pytest.raises(BadInput):
            RiqlConfig(**wrong)  # type: ignore[arg-type]
