"""Off-policy learning: targets worked out by hand, likelihoods against torch, choices, a small world that is solved."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from policies.kinds.gaussian import GaussianConfig, GaussianPolicy, SquashedGaussian
from policies.networks.ensemble import EnsembleMlp, evaluate
from policies.storage.checkpoint import load_chunk_policy, save_policy
from policies.storage.loading import open_policy
from robolearn.core import BadInput, bind_policy
from robolearn.data.replay import ReplayBuffer
from robolearn.rl.algorithms.cal_ql import CalQl
from robolearn.rl.algorithms.dsrl import Dsrl
from robolearn.rl.algorithms.famo2o import FamO2o
from robolearn.rl.algorithms.h2o import H2o
from robolearn.rl.algorithms.iql import Iql
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.algorithms.ogpo import Ogpo
from robolearn.rl.algorithms.proposals import Proposals
from robolearn.rl.algorithms.rebrac import ReBrac
from robolearn.rl.algorithms.recap import Recap
from robolearn.rl.algorithms.riql import Riql
from robolearn.rl.algorithms.rlpd import Rlpd
from robolearn.rl.algorithms.ro2o import Ro2o
from robolearn.rl.algorithms.uni_o4 import UniO4
from robolearn.rl.ensemble_critic import EnsembleCritic
from robolearn.rl.h2o_settings import H2oConfig
from robolearn.rl.off_policy_settings import DsrlConfig, OffPolicyConfig, ProposalsConfig, RlpdConfig
from robolearn.rl.student_settings import (
    CalQlConfig,
    FamO2oConfig,
    IqlConfig,
    OgpoConfig,
    ReBracConfig,
    RecapConfig,
    RiqlConfig,
    Ro2oConfig,
    UniO4Config,
)

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, Corridor, acting, base, solved, windows


def test_an_ensemble_is_that_many_networks() -> None:
    """Each member against the same arithmetic by torch.nn."""
    torch.manual_seed(3)
    net = EnsembleMlp(3, 5, 2, width=8, depth=2)
    for parameter in [*net.scales, *net.shifts, *net.biases]:
        nn.init.normal_(parameter)
    x = torch.randn(7, 5)
    found = net(x)
    for e in range(3):
        h = x
        for layer in range(2):
            h = h @ net.weights[layer][e] + net.biases[layer][e]
            h = nn.functional.layer_norm(h, (8,), net.scales[layer][e, 0], net.shifts[layer][e, 0]).relu()
        torch.testing.assert_close(found[e], h @ net.weights[2][e] + net.biases[2][e], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(net(x, torch.tensor([2, 0])), found[[2, 0]])


def test_members_of_an_ensemble_begin_differently() -> None:
    values = EnsembleMlp(5, 3, 1)(torch.randn(1, 3)).flatten()
    assert len(values.unique()) == 5


def test_the_likelihood_of_a_squashed_gaussian_is_torch_s() -> None:
    torch.manual_seed(0)
    actor = SquashedGaussian(3, 2, width=8, depth=2)
    nn.init.normal_(actor.net.last.weight)
    x = torch.randn(500, 3)
    action, log_prob = actor.sample(x, torch.Generator().manual_seed(1))
    inside = (action.abs() < 0.999).all(1)
    mean, log_std = actor(x[inside])
    judge = TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), [TanhTransform()])
    torch.testing.assert_close(log_prob[inside], judge.log_prob(action[inside]), atol=2e-3, rtol=1e-3)
    assert inside.sum() > 100 and torch.equal(actor.mode(x[inside]), mean.tanh())


@pytest.mark.parametrize("backup_entropy", [False, True])
def test_the_value_of_what_comes_next_has_its_entropy_added(backup_entropy: bool) -> None:
    """V(s') = min Q' − α log π(a' | s')"""
    algorithm = Rlpd(base(), RlpdConfig(**SMALL, backup_entropy=backup_entropy, temperature=0.7), seed=0)
    seen = windows().next_observation
    _, action, bonus = algorithm.next_chunk(seen)
    if not backup_entropy:
        assert bonus == 0.0
        return
    mean, log_std = algorithm.policy.actor(algorithm.policy.encode(seen))
    judge = TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), [TanhTransform()])
    torch.testing.assert_close(bonus, -0.7 * judge.log_prob(action), atol=2e-3, rtol=1e-3)


def test_noise_is_drawn_from_the_actor_that_explores_and_in_targets() -> None:
    """The base makes one chunk of one noise: two that differ, in the same state, are of two draws."""
    algorithm = Dsrl(base(), DsrlConfig(**SMALL), seed=0)
    seen = {key: value[:1].expand(64, *value.shape[1:]) for key, value in windows().observation.items()}
    for chunks in (algorithm.explore(seen), algorithm.next_chunk(seen)[1]):
        assert chunks.std(0).max() > 1e-3
    drawn = algorithm.policy.actor.sample(algorithm.policy.encode(seen), torch.Generator().manual_seed(0))[0]
    assert drawn.std(0).min() > 0.1


class Fixed(OffPolicy):
    """Every next state is worth 2; nothing else learns."""

    def __init__(self) -> None:
        policy = base()
        acts = GaussianPolicy(policy.normalizer, INTERFACE, GaussianConfig(execute=2, width=8))
        critics = EnsembleMlp(4, 4, 1, width=32, depth=2)
        super().__init__(policy, acts, critics, OffPolicyConfig(**SMALL, actor_every=10**9), seed=0)

    def next_value(self, observation: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.full((len(observation["proprio"]),), 2.0)


@pytest.mark.long
@pytest.mark.parametrize("ends", [False, True])
def test_critics_learn_reward_and_discounted_value(ends: bool) -> None:
    """y = R + d · 2, where nothing comes after the end y = R."""
    algorithm, batch = Fixed(), windows(ends=ends)
    for _ in range(1500):
        algorithm.update(batch)
    features, actions = algorithm.policy.encode(batch.observation), batch.action.flatten(1)
    found = algorithm.critic.values(features, actions[:, None]).squeeze(-1)
    expected = batch.reward + (0.0 if ends else 1.8)
    torch.testing.assert_close(found.detach(), expected.expand(4, -1), atol=0.05, rtol=0.0)


def test_targets_follow_by_tau() -> None:
    critic = EnsembleCritic(
        EnsembleMlp(4, 3, 1, width=32, depth=2), OffPolicyConfig(**SMALL, tau=0.25, subset=1), torch.Generator()
    )
    assert critic.target is not None
    before = [p.clone() for p in critic.target.parameters()]
    critic.fit(torch.randn(16, 2), torch.randn(16, 1), torch.randn(16))
    for old, now, live in zip(before, critic.target.parameters(), critic.net.parameters(), strict=True):
        torch.testing.assert_close(now, old + 0.25 * (live - old))
    assert not any(p.requires_grad for p in critic.target.parameters())


def test_the_pessimistic_value_is_the_least_of_a_random_subset() -> None:
    critic = EnsembleCritic(
        EnsembleMlp(4, 3, 1, width=32, depth=2), OffPolicyConfig(**SMALL, subset=2), torch.Generator()
    )
    assert critic.target is not None
    features, actions = torch.randn(5, 2), torch.randn(5, 3, 1)
    every = torch.stack([critic.target(torch.cat((features, actions[:, c]), 1)).squeeze(-1) for c in range(3)], -1)
    pairs = {(i, j): torch.minimum(every[i], every[j]) for i in range(4) for j in range(i)}
    generator, met = torch.Generator().manual_seed(0), set()
    for _ in range(60):
        value = critic.pessimistic(features, actions, generator)
        met |= {pair for pair, least in pairs.items() if torch.allclose(value, least, atol=1e-6)}
    assert met == set(pairs)


def test_the_base_keeps_its_weights_and_its_copy_learns() -> None:
    policy = base()
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    algorithm = Proposals(policy, ProposalsConfig(**SMALL), seed=0)
    for _ in range(5):
        algorithm.update(windows())
    for key, value in policy.state_dict().items():
        assert torch.equal(value, before[key])
    proposer = algorithm.policy.proposer.state_dict()
    assert any(not torch.equal(value, before[key]) for key, value in proposer.items())


def mean_proposal(algorithm: Proposals, observation: dict[str, torch.Tensor]) -> torch.Tensor:
    """(B, 2)."""
    noise = torch.randn(len(observation["proprio"]), 64, 2, 1, generator=torch.Generator().manual_seed(0))
    return algorithm.policy.propose(observation, noise).mean(1).detach()


QUICK: dict[str, Any] = {"imitate_lr": 3e-3, "imitate_average": 0.9}


@pytest.mark.long
@pytest.mark.parametrize("own", [False, True])
def test_the_copy_learns_what_was_worth_imitating(own: bool) -> None:
    """The other half of the windows holds another action, which nobody learns."""
    algorithm = Proposals(base(), ProposalsConfig(**SMALL, **QUICK, imitate_own=own), seed=0)
    batch, worth = windows(32), torch.arange(32) % 2 == 0
    action = torch.where(worth[:, None, None], 0.3, -0.8).expand(32, 2, 1)
    marks = {"merit": worth, "intervention": ~worth} if own else {"merit": ~worth, "intervention": worth}
    batch = replace(batch, plan=action, **marks)
    for _ in range(300):
        algorithm.update(batch)
    found = mean_proposal(algorithm, batch.observation)
    torch.testing.assert_close(found, torch.full((32, 2), 0.3), atol=0.15, rtol=0.0)


@pytest.mark.long
def test_what_was_never_executed_is_not_imitated() -> None:
    algorithm = Proposals(base(), ProposalsConfig(**SMALL, **QUICK), seed=0)
    batch = windows(32)
    before = mean_proposal(algorithm, batch.observation)[:, 1]
    action = torch.full((32, 2, 1), 0.3)
    action[:, 1] = -0.9
    executed = torch.tensor([[True, False]]).repeat(32, 1)
    for _ in range(300):
        algorithm.update(replace(batch, plan=action, planned=executed))
    found = mean_proposal(algorithm, batch.observation)
    assert float((found[:, 0] - 0.3).abs().max()) < 0.15
    assert float((found[:, 1] - before).abs().mean()) < 0.3  # it learned nothing there; −0.9 is far away


def test_critics_choose_once_they_have_learned_long_enough() -> None:
    algorithm = Proposals(base(), ProposalsConfig(**SMALL, trust_after=3), seed=0)
    trusted = []
    for _ in range(4):
        algorithm.update(windows())
        trusted.append(bool(algorithm.policy.trusted))
    assert trusted == [False, False, True, True]
    # The actor gets to know it with the weights.
    other = Proposals(base(), ProposalsConfig(**SMALL, trust_after=3), seed=1)
    other.load_acting(algorithm.acting())
    assert bool(other.policy.trusted)


def test_a_state_is_worth_what_is_chosen_there() -> None:
    """Live critics choose the larger chunk, targets give each chunk the value of its sum; hand-worked maximum."""
    algorithm = Proposals(base(), ProposalsConfig(**SMALL, backup_proposals=3), seed=0)
    algorithm.policy.trusted.fill_(1.0)
    met: list[torch.Tensor] = []

    def by_sum(features: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        met.append(actions)
        return actions.sum(-1).expand(4, -1, -1)

    algorithm.policy.values = by_sum  # type: ignore[method-assign]
    algorithm.critic.pessimistic = lambda f, actions, g: 10.0 * actions.sum(-1)  # type: ignore[method-assign]
    with torch.no_grad():
        value = algorithm.next_value(windows().next_observation)
    torch.testing.assert_close(value, 10.0 * met[0].sum(-1).amax(1))


@pytest.mark.long
def test_noise_is_judged_by_what_the_policy_makes_of_it() -> None:
    """Q(s, a) = Σ a: the distilled critics of noise say so of the chunk that the noise becomes."""
    algorithm = Dsrl(base(), DsrlConfig(**SMALL, lr=3e-3), seed=0)
    algorithm.critic.values = lambda features, actions: actions.sum(-1).expand(4, -1, -1)  # type: ignore[method-assign]
    batch = windows(64)
    features = algorithm.policy.encode(batch.observation)
    for _ in range(400):
        algorithm.improve(features, batch)
    w = torch.rand(64, 2, generator=torch.Generator().manual_seed(5)) * 2 - 1
    with torch.no_grad():
        wanted = algorithm.policy.chunk(batch.observation, 1.5 * w).sum(1)
        found = evaluate(algorithm.noise_critics, features, w[:, None]).mean(0).squeeze(1)
        steered = algorithm.policy.decide(batch.observation, torch.empty(64)).sum(1)
    assert float((found - wanted).abs().mean()) < 0.15 and float(wanted.std()) > 0.3
    assert float((steered - wanted).mean()) > 0.3  # the actor goes where the sum is large


def test_the_temperature_follows_the_target_entropy() -> None:
    for goal, rises in ((-50.0, True), (50.0, False)):  # the entropy shall be +100 nats, or −100
        algorithm = Rlpd(base(), RlpdConfig(**SMALL, target_entropy=goal, actor_every=1), seed=0)
        before = algorithm.soft.log_alpha.item()
        for _ in range(20):
            algorithm.update(windows())
        assert (algorithm.soft.log_alpha.item() > before) == rises


def mixed(algorithm: H2o) -> H2o:
    """The same, whose batches have simulated windows, too."""
    algorithm.online = True
    return algorithm


ALGORITHMS: dict[str, Callable[[int], OffPolicy]] = {
    "proposals": lambda seed: Proposals(base(), ProposalsConfig(**SMALL), seed=seed),
    "rlpd": lambda seed: Rlpd(base(), RlpdConfig(**SMALL), seed=seed),
    "dsrl": lambda seed: Dsrl(base(), DsrlConfig(**SMALL), seed=seed),
    "iql": lambda seed: Iql(base(), IqlConfig(**SMALL, proposals=3), seed=seed),
    "riql": lambda seed: Riql(base(), RiqlConfig(**SMALL, proposals=3), seed=seed),
    "famo2o": lambda seed: FamO2o(base(), FamO2oConfig(**SMALL, proposals=3), seed=seed),
    "rebrac": lambda seed: ReBrac(base(), ReBracConfig(**SMALL), seed=seed),
    "ro2o": lambda seed: Ro2o(base(), Ro2oConfig(**SMALL), seed=seed),
    "cal_ql": lambda seed: CalQl(base(), CalQlConfig(**SMALL), seed=seed),
    "recap": lambda seed: Recap(base(), RecapConfig(**SMALL, proposals=3, guidance=1.5), seed=seed),
    "ogpo": lambda seed: Ogpo(base(), OgpoConfig(**SMALL, trust_after=2), seed=seed),
    "h2o": lambda seed: mixed(H2o(base(), H2oConfig(**SMALL), seed=seed)),
    "uni_o4": lambda seed: UniO4(base(), UniO4Config(**SMALL, trust_after=2, gate_every=3), seed=seed),
}


@pytest.mark.long
@pytest.mark.parametrize("fresh", ALGORITHMS.values(), ids=ALGORITHMS)
def test_resumed_learning_is_the_same_bit_for_bit(fresh: Callable[[int], OffPolicy]) -> None:
    first = fresh(0)
    for _ in range(5):
        first.update(windows())
    tensors, meta = first.state()
    second = fresh(7)
    second.load_state(tensors, meta)
    for algorithm in (first, second):
        for _ in range(4):
            algorithm.update(windows())
    observation = {"proprio": np.ones((3, 2), np.float32)}
    np.testing.assert_array_equal(first.act(observation, explore=True), second.act(observation, explore=True))
    for key, value in first.state()[0].items():
        assert torch.equal(value, second.state()[0][key]), key


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"subset": 11}, {"utd": 0.0}, {"gamma": 1.5}, {"batch": 0}):
        with pytest.raises(BadInput):
            OffPolicyConfig(**wrong)  # type: ignore[arg-type]
    for wrong in ({"tempo": -1.0}, {"backup_proposals": 9}, {"caution": -1.0}, {"imitate_lr": 0.0}):
        with pytest.raises(BadInput):
            ProposalsConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="mask-padding"):
        Proposals(base(mask_padding=False), ProposalsConfig(**SMALL), seed=0)


@pytest.mark.parametrize("fresh", ALGORITHMS.values(), ids=ALGORITHMS)
def test_what_is_exported_acts_as_the_algorithm_did(fresh: Callable[[int], OffPolicy], tmp_path: Path) -> None:
    algorithm = fresh(0)
    for _ in range(3):
        algorithm.update(windows())
    if isinstance(algorithm, Proposals):
        algorithm.policy.trusted.fill_(1.0)
    loaded = open_policy(save_policy(algorithm.policy, tmp_path / "policy"))
    observation = {"proprio": np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)}
    bind_policy(loaded, INTERFACE, what="test")
    for policy in (loaded, algorithm.policy):
        policy.reset(3)
    np.testing.assert_array_equal(loaded.act(observation), algorithm.policy.act(observation))
    with pytest.raises(BadInput, match="kind"):
        load_chunk_policy(tmp_path / "policy")


# --- a small world ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", ["proposals", "rlpd"])
def test_a_corridor_is_learned_from_four_slow_demonstrations(kind: str) -> None:
    """It is solved, and sooner than it was demonstrated: 1.6 / (0.25 · 0.6) are 11 steps."""
    policy = base(horizon=1)
    algorithm: OffPolicy
    if kind == "rlpd":
        algorithm = Rlpd(policy, RlpdConfig(**SMALL, gamma=0.9, lr=1e-3), seed=0)
    else:
        settings = ProposalsConfig(
            **SMALL, gamma=0.9, lr=1e-3, imitate_lr=1e-3, trust_after=200, caution=0.5, imitate_own=True
        )
        algorithm = Proposals(policy, settings, seed=0)
    assert solved(algorithm)[0] < 0.2
    world, order = Corridor(0), torch.Generator().manual_seed(0)
    online, demonstrations = (ReplayBuffer(INTERFACE, 1, 5000) for _ in range(2))
    for _ in range(4):
        demonstrations.add(world.play(lambda x: 0.6))
    for _ in range(60):
        online.add(world.play(acting(algorithm, explore=True)))
        for _ in range(20):
            algorithm.update(online.sample(32, 0.9, order).followed_by(demonstrations.sample(32, 0.9, order)))
    success, steps = solved(algorithm)
    assert success >= 0.95 and steps < 9  # 49 of 50 with the bits of some processors


@pytest.mark.parametrize(
    ("kind", "config"), [(CalQl, CalQlConfig), (Iql, IqlConfig), (Riql, RiqlConfig), (ReBrac, ReBracConfig)]
)
def test_proposals_that_are_all_one_are_refused(kind: Any, config: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A base that ReinFlow exported has an initial noise of 0; the flag gives it some."""
    still, seen = base(initial_noise_std=0.0), {"proprio": torch.zeros(200, 2)}
    with pytest.raises(BadInput, match=r"--initial-noise: got 0, so that all 8 proposals are one.*--proposals 1"):
        kind(still, config(**SMALL, proposals=8), seed=0)
    with pytest.raises(BadInput, match="--initial-noise"):
        kind(base(), config(**SMALL, proposals=8, initial_noise=0.0), seed=0)
    assert not caplog.text
    alone = kind(still, config(**SMALL, proposals=1), seed=0)
    assert "--initial-noise 1" in caplog.text
    varied = kind(still, config(**SMALL, proposals=8, initial_noise=1.0), seed=0)
    with torch.no_grad():
        spreads = [float(algorithm.explore(seen).std(0).sum()) for algorithm in (alone, varied)]
    assert spreads[0] == 0.0 and spreads[1] > 0.01 and varied.policy.proposer.net.initial_noise_std == 1.0
    assert still.net.initial_noise_std == 0.0
