"""RO2O: smoothness, doubt and the loosened pessimism by hand, and a line on which it goes the better way."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.core import BadInput
from robolearn.data.replay import ReplayBuffer
from robolearn.rl.algorithms.ro2o import Ro2o, least_return, mean_of_pair_minima, uneven_square
from robolearn.rl.experience import Experience
from robolearn.rl.student_settings import Ro2oConfig

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, base, windows
from line import GAMMA, PLACES, seen, wandering


def made(**settings: Any) -> Ro2o:
    return Ro2o(base(), Ro2oConfig(**SMALL | settings), seed=0)


def test_a_value_that_rises_costs_more_than_one_that_falls() -> None:
    """α = ¼: ¾ δ² above 0, ¼ δ² below."""
    found = uneven_square(torch.tensor([2.0, 0.0, -2.0]), 0.25)
    assert found.tolist() == [3.0, 0.0, 1.0]


@pytest.mark.parametrize("members", [2, 3, 7])
def test_pairs_are_all_pairs(members: int) -> None:
    values = np.random.default_rng(0).standard_normal((members, 5))
    pairs = [np.minimum(values[i], values[j]) for i, j in itertools.combinations(range(members), 2)]
    np.testing.assert_allclose(mean_of_pair_minima(torch.from_numpy(values)).numpy(), np.mean(pairs, 0), rtol=1e-12)


def test_a_target_is_the_least_value_offline_and_that_of_pairs_online() -> None:
    """Of 0, 1, 2 and 5: the least is 0; three pairs have 0, two 1 and one 2: ⅔. What is added is −½."""
    algorithm = made()
    values = torch.tensor([2.0, 0.0, 5.0, 1.0])[:, None, None].expand(4, 3, 1)
    algorithm.critic.targets = lambda features, actions: values  # type: ignore[method-assign, assignment]
    algorithm.next_chunk = lambda seen: (torch.zeros(3, 2), torch.zeros(3, 2), torch.full((3,), -0.5))  # type: ignore
    observation = {"proprio": torch.zeros(3, 2)}
    assert algorithm.next_value(observation).tolist() == [-0.5] * 3
    algorithm.online = True
    assert algorithm.next_value(observation).tolist() == pytest.approx([4 / 6 - 0.5] * 3)


def test_doubt_ends_at_the_least_return_that_there_is() -> None:
    """Rewards of 0 and 1 have returns of 0 at least; −½ for each step, with γ = ¾, −2 at least."""
    assert least_return(torch.tensor([0.0, 1.0]), 0.75) == 0.0
    assert least_return(torch.tensor([-0.5, 1.0]), 0.75) == -2.0
    assert least_return(torch.tensor([-0.5]), 1.0) == -np.inf
    algorithm = made(critics=2, smooth_critic=0.0, unseen=1.0, uncertainty=3.0)
    low = torch.tensor([-1.0, 0.25])[:, None, None]
    algorithm.critic.targets = lambda features, actions: low.expand(2, 3, 1)  # type: ignore[method-assign, assignment]
    algorithm.next_chunk = lambda seen: (torch.zeros(3, 2), torch.zeros(3, 2), torch.full((3,), -0.5))  # type: ignore
    algorithm.least = 0.0
    assert algorithm.next_value({"proprio": torch.zeros(3, 2)}).tolist() == [-0.5] * 3
    # The deviation is ⅝: −1 and ¼ less 15/8 are below 0, and are drawn to 0.
    algorithm.critic.values = lambda rows, actions: low.expand(2, len(rows), 2)  # type: ignore
    assert algorithm.penalty(torch.ones(8, 2), windows(8))(low[:, :, 0].expand(2, 8)).item() == (1 + 1 / 16) / 2


def test_own_episodes_make_it_online_and_a_resumed_one_stays_so() -> None:
    algorithm = made()
    (episode,) = wandering(1, 0)
    experience = Experience(algorithm, [episode])
    before = algorithm.state()
    assert not algorithm.online
    experience.add(episode)
    assert algorithm.online
    after, again = algorithm.state(), made()
    again.load_state(*after)
    assert again.online
    again.load_state(*before)
    assert not again.online


def test_features_are_perturbed_by_up_to_what_was_asked_for() -> None:
    algorithm = made(perturbation=0.25, perturbed=3)
    features = torch.randn(200, 2)
    apart = algorithm.around(features) - features[:, None]
    assert apart.shape == (200, 3, 2)
    assert 0.24 < apart.max() <= 0.25 and -0.25 <= apart.min() < -0.24 and abs(apart.mean()) < 0.02


def test_the_penalty_of_values_that_change_nearby_is_of_the_worst_change() -> None:
    """Q_e = k_e s_0 with k = 1 and −2; s_0 = 1 becomes 1.5 and 0.8: δ = ½, −⅕ and −1, ⅖; α = ¼."""
    algorithm = made(critics=2, perturbed=2, smooth_critic=3.0, unseen=0.0, asymmetry=0.25)
    slopes = torch.tensor([1.0, -2.0])[:, None, None]
    algorithm.critic.values = lambda rows, actions: (slopes * rows[:, :1]).expand(2, -1, 2)  # type: ignore
    near = torch.tensor([[1.5, 0.0], [0.8, 0.0]]).expand(8, 2, 2)
    algorithm.around = lambda features: near  # type: ignore[method-assign]
    added = algorithm.penalty(torch.ones(8, 2), windows(8))
    now = torch.tensor([[1.0] * 8, [-2.0] * 8], requires_grad=True)
    loss = added(now)
    # ¾ · ¼ beats ¼ · 1/25; ¼ · 1 beats ¾ · 4/25
    assert loss.item() == pytest.approx(3.0 * (0.1875 + 0.25) / 2)
    loss.backward()
    # d l / d Q(s, a) = −2 (1 − α) δ or −2 α δ, over 2 · 8 values
    assert now.grad[:, 0].tolist() == pytest.approx([3 * -2 * 0.75 * 0.5 / 16, 3 * -2 * 0.25 * -1 / 16])  # type: ignore


def test_what_was_done_and_what_the_policy_does_are_judged_nearby() -> None:
    algorithm = made(perturbed=2, perturbation=0.0)
    met: list[tuple[torch.Tensor, torch.Tensor]] = []

    def values(rows: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        met.append((rows, actions))
        return actions.sum(-1)[None].expand(4, -1, -1)

    algorithm.critic.values = values  # type: ignore[method-assign]
    algorithm.sampled = lambda net, cond, noise: 0.1 * cond[:, :2]  # type: ignore[method-assign]
    batch = windows(3)
    features = algorithm.policy.encode(batch.observation)
    algorithm.penalty(features, batch)(torch.zeros(4, 3))
    ((rows, actions),) = met
    for window, i in itertools.product(range(3), range(2)):
        row = 2 * window + i
        torch.testing.assert_close(rows[row], features[window])
        torch.testing.assert_close(actions[row, 0], batch.action[window].flatten())
        torch.testing.assert_close(actions[row, 1], 0.1 * features[window])


def test_critics_that_differ_are_to_be_lower_there() -> None:
    """Values 0 and 1 have the deviation ½; λ = 3, η = 2: the loss is 2 (3/2)², each gradient 2 · 2 · 3/2 / 2."""
    algorithm = made(critics=2, smooth_critic=0.0, unseen=2.0, uncertainty=3.0)
    level = torch.tensor([0.0, 1.0], requires_grad=True)
    algorithm.critic.values = lambda rows, actions: level[:, None, None].expand(2, len(rows), 2)  # type: ignore
    batch = windows(8)
    loss = algorithm.penalty(algorithm.policy.encode(batch.observation), batch)(torch.zeros(2, 8))
    assert loss.item() == pytest.approx(2 * 1.5**2)
    loss.backward()
    assert level.grad.tolist() == pytest.approx([3.0, 3.0])  # type: ignore[union-attr]


def test_the_actor_pays_for_chunks_that_change_nearby() -> None:
    """a = s_0, which becomes s_0 + ½ and s_0 − 1: the larger square is 1; the rest of the loss is ReBRAC's."""
    algorithm = made(smooth_actor=5.0, perturbed=2, actor_bc=3.0)
    batch = windows(4)
    features = algorithm.policy.encode(batch.observation)
    noises: list[torch.Tensor] = []

    def sampled(net: Any, cond: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        noises.append(noise)
        return cond[:, :1].expand(-1, 2)

    algorithm.sampled = sampled  # type: ignore[method-assign]
    algorithm.around = lambda seen: torch.stack((seen + 0.5, seen - 1.0), 1)  # type: ignore[method-assign]
    algorithm._moved = lambda batch: torch.zeros(4, 2)  # type: ignore[method-assign]
    algorithm.student.loss = lambda *_: torch.tensor(0.7)  # type: ignore[method-assign]
    loss, metrics = algorithm.actor_loss(features, batch)
    values = algorithm.critic.net(torch.cat((features, torch.zeros(4, 2)), 1))
    climbed = values.mean() / values.abs().mean()
    assert float(metrics["actor_roughness"]) == pytest.approx(1.0)
    assert loss.item() == pytest.approx(3.0 * 0.7 - climbed.item() + 5.0, abs=1e-5)
    here, there = noises
    assert torch.equal(there, here.repeat_interleave(2, 0))


@pytest.mark.long
def test_it_goes_the_better_way_of_random_steps() -> None:
    """Half of what was recorded went left."""
    line: dict[str, Any] = {"width": 32, "critics": 4, "gamma": GAMMA, "lr": 3e-3, "tau": 0.05, "imitate_lr": 3e-3}
    config = Ro2oConfig(**line, actor_bc=0.1, critic_bc=0.0, imitate_average=0.98, perturbed=1, uncertainty=0.1)
    algorithm = Ro2o(base(horizon=1), config, seed=0)
    buffer = ReplayBuffer(INTERFACE, 1, 5000, plan=algorithm.plan)
    for episode in wandering(150, 0):
        buffer.add(episode)
    order = torch.Generator().manual_seed(0)
    for _ in range(400):
        algorithm.update(buffer.sample(48, GAMMA, order))
    many = {"proprio": torch.tensor([seen(place) for place in range(PLACES)]).repeat(40, 1).numpy()}
    assert (algorithm.act(many, explore=False) > 0).mean() > 0.9


def test_settings_that_make_no_sense() -> None:
    below_0 = ("perturbation", "smooth_critic", "smooth_actor", "unseen", "uncertainty", "actor_bc")
    for wrong in ({"perturbed": 0}, {"asymmetry": 1.5}, {"critics": 1, "subset": 1}, *({key: -0.1} for key in below_0)):
        with pytest.raises(BadInput):
            Ro2oConfig(**wrong)  # type: ignore[arg-type]
