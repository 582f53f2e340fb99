"""OGPO: advantages and target by hand, the likelihood ratio against torch's own Gaussian, and where it climbs."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.distributions import Normal

from robolearn.core import BadInput
from robolearn.rl.algorithms.ogpo import Ogpo, group_advantages
from robolearn.rl.student_settings import OgpoConfig

sys.path.insert(0, str(Path(__file__).parent))
from corridor import SMALL, base, windows

FAST = {"states": 8, "group": 16, "trust_after": 0, "imitate_average": 0.9, "epochs": 2}


def ogpo(**settings: float) -> Ogpo:
    return Ogpo(base(), OgpoConfig(**SMALL | FAST | settings), seed=0)  # type: ignore[arg-type]


def test_a_chunk_is_compared_with_its_own_group_by_the_mean_of_the_critics() -> None:
    """Two critics, two states: means 2, 4 and 7, 1. No minimum, and no division by the group's deviation."""
    values = torch.tensor([[[1.0, 6.0], [7.0, 0.0]], [[3.0, 2.0], [7.0, 2.0]]])
    torch.testing.assert_close(group_advantages(values), torch.tensor([[-1.0, 1.0], [3.0, -3.0]]))


def test_the_target_is_the_best_chunk_s_mean_over_the_slow_critics(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = ogpo(backup_proposals=3)
    told = torch.tensor([[[0.0, 4.0, 1.0], [1.0, 0.0, 0.0]], [[0.0, 0.0, 5.0], [2.0, 0.0, 1.0]]])  # (E, B, M)
    asked = []
    monkeypatch.setattr(
        "robolearn.rl.algorithms.ogpo.evaluate", lambda net, features, chunks: asked.append((net, chunks.shape)) or told
    )
    found = algorithm.next_value({"proprio": torch.zeros(2, 2)})
    torch.testing.assert_close(found, torch.tensor([3.0, 1.5]))
    assert asked == [(algorithm.critic.target, (2, 3, 2))]


def test_the_ratio_is_that_of_gaussians_around_what_the_flow_makes_of_its_noise() -> None:
    """log r of the executed components, by torch.distributions, divided by the root of their number."""
    algorithm, moved = ogpo(sigma=0.2), ogpo(sigma=0.2)
    with torch.no_grad():
        for parameter in moved.student.net.parameters():
            parameter.add_(0.02)
        seen = {"proprio": torch.randn(6, 2, generator=torch.Generator().manual_seed(3))}
        chain = algorithm.actor.sample(seen, algorithm.generator)
        ratio = moved.actor.evaluate(seen, chain).joint() - algorithm.actor.evaluate(seen, chain).joint()
        likelihood = []
        for net in (moved.student.net, algorithm.student.net):
            x, cond = chain[:, 0].view(6, 2, 1), net.encode(seen)
            for k in range(net.config.steps):
                x = net.denoise(x, k, cond)
            likelihood.append(Normal(x.flatten(1), 0.2).log_prob(chain[:, 1]).sum(1))
    torch.testing.assert_close(ratio, (likelihood[0] - likelihood[1]) / math.sqrt(2), atol=1e-4, rtol=1e-4)
    assert ratio.abs().mean() > 0.01


@pytest.mark.long
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_policy_goes_where_the_critics_say(sign: float) -> None:
    """Q = ± Σ a. Nothing is worth imitating; the average, which is exported, follows."""
    algorithm = ogpo(imitate_lr=1e-3, clip=0.1, sigma=0.2)
    algorithm.policy.values = lambda features, chunks: sign * chunks.sum(-1).expand(4, -1, -1)  # type: ignore
    batch = windows(16, merit=False)
    noise = torch.randn(16, *algorithm.policy.noise.shape, generator=torch.Generator().manual_seed(5))

    @torch.no_grad()
    def chunks() -> float:
        return float(algorithm.policy.propose(batch.observation, noise).mean())

    before = chunks()
    for _ in range(60):
        metrics = algorithm.improve(algorithm.policy.encode(batch.observation), batch)
    assert sign * (chunks() - before) > 0.1 and float(metrics["imitation"]) == 0.0


@pytest.mark.long
def test_what_succeeded_is_imitated_beside_it_and_alone_until_the_critics_are_trusted() -> None:
    def drift(trust: int, imitation: float) -> tuple[float, dict[str, torch.Tensor]]:
        """How far −0.8, which was shown, is from what is proposed after 60 updates, where Q = Σ a."""
        algorithm = ogpo(imitate_lr=1e-2, trust_after=trust, imitation=imitation, epochs=1)
        algorithm.policy.values = lambda features, chunks: chunks.sum(-1).expand(4, -1, -1)  # type: ignore
        shown = torch.full((16, 2, 1), -0.8)
        batch = replace(windows(16), action=shown, plan=shown)
        for _ in range(60):
            metrics = algorithm.improve(algorithm.policy.encode(batch.observation), batch)
        noise = torch.randn(16, *algorithm.policy.noise.shape, generator=torch.Generator().manual_seed(5))
        with torch.no_grad():
            return float((algorithm.policy.propose(batch.observation, noise) + 0.8).mean()), metrics

    (alone, metrics), (beside, both), (without, _) = drift(10**9, 1.0), drift(0, 30.0), drift(0, 0.0)
    assert "surrogate" not in metrics and "surrogate" in both
    assert abs(alone) < 0.2 and abs(beside) < 0.4 < without


def test_what_explores_has_the_noise_and_stays_in_the_world_s_range() -> None:
    algorithm = Ogpo(base(initial_noise_std=0.0), OgpoConfig(**SMALL | FAST, sigma=0.1), seed=0)  # type: ignore
    seen = {"proprio": torch.zeros(4000, 2)}
    explored = algorithm.explore(seen)
    with torch.no_grad():
        without = algorithm.policy.propose(seen, torch.zeros(4000, 1, *algorithm.policy.noise.shape[1:]))[:, 0]
    assert explored.shape == (4000, 2) and float((explored - without).std()) == pytest.approx(0.1, rel=0.05)
    loud = Ogpo(base(), OgpoConfig(**SMALL | FAST, sigma=3.0), seed=0)  # type: ignore[arg-type]
    assert float(loud.explore(seen).abs().max()) == 1.0


def test_an_actor_explores_with_what_its_learner_sends() -> None:
    learner, actor = ogpo(imitate_lr=1e-2), ogpo()
    for _ in range(5):
        learner.update(windows(16))
    actor.load_acting(learner.acting())
    seen = {"proprio": torch.randn(6, 2, generator=torch.Generator().manual_seed(3))}
    before = learner.explore(seen)
    learner.generator.manual_seed(4), actor.generator.manual_seed(4)
    torch.testing.assert_close(actor.explore(seen), learner.explore(seen), atol=0.0, rtol=0.0)
    assert not torch.equal(before, learner.explore(seen))


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"group": 1}, {"sigma": 0.0}, {"clip": 0.0}, {"epochs": 0}, {"imitation": -1.0}, {"states": 0}):
        with pytest.raises(BadInput):
            OgpoConfig(**wrong)  # type: ignore[arg-type]
