"""Off-policy learning: targets worked out by hand, likelihoods against torch, choices, a small world that is solved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from policies.kinds import build_net
from policies.networks.ensemble import EnsembleMlp
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data.replay import PlayedEpisode, ReplayBuffer, WindowBatch
from robolearn.rl.actors.squashed import SquashedGaussian
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.algorithms.proposals import Proposals
from robolearn.rl.algorithms.rlpd import Rlpd
from robolearn.rl.ensemble_critic import EnsembleCritic
from robolearn.rl.off_policy_settings import OffPolicyConfig, ProposalsConfig, RlpdConfig

INTERFACE = Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), 20.0)
SMALL = {"width": 32, "depth": 2, "critics": 4, "batch": 64}


def base(horizon: int = 2) -> ChunkPolicy:
    torch.manual_seed(0)
    config = FlowConfig(horizon=horizon, execute=horizon, network=NetworkConfig(width=16, depth=2))
    return ChunkPolicy(build_net(config, INTERFACE), Normalizer(INTERFACE), INTERFACE)


def windows(n: int = 8, *, ends: bool = False, merit: bool = True) -> WindowBatch:
    rng = torch.Generator().manual_seed(1)
    return WindowBatch(
        observation={"proprio": torch.randn(n, 2, generator=rng)},
        action=torch.rand(n, 2, 1, generator=rng) * 2 - 1,
        executed=torch.ones(n, 2, dtype=torch.bool),
        reward=torch.linspace(0, 1, n),
        discount=torch.full((n,), 0.0 if ends else 0.9),
        next_observation={"proprio": torch.randn(n, 2, generator=rng)},
        intervention=torch.zeros(n, dtype=torch.bool),
        merit=torch.full((n,), merit),
        note=torch.rand(n, 8, 2, generator=rng) * 2 - 1,
        next_note=torch.rand(n, 8, 2, generator=rng) * 2 - 1,
    )


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


class Fixed(OffPolicy):
    """Every next state is worth 2; nothing else learns."""

    def __init__(self) -> None:
        super().__init__(base(), OffPolicyConfig(**SMALL, actor_every=10**9), seed=0)
        self.actor = SquashedGaussian(2, 2, width=8)

    def next_value(self, features: torch.Tensor, proposals: torch.Tensor) -> torch.Tensor:
        return torch.full((len(features),), 2.0)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"critic": self.critic.adam}


@pytest.mark.parametrize("ends", [False, True])
def test_critics_learn_reward_and_discounted_value(ends: bool) -> None:
    """y = R + d · 2, where nothing comes after the end y = R."""
    algorithm, batch = Fixed(), windows(ends=ends)
    for _ in range(1500):
        algorithm.update(batch)
    features, actions = algorithm.see(batch.observation), batch.action.flatten(1)
    found = algorithm.critic.values(features, actions[:, None]).squeeze(-1)
    expected = batch.reward + (0.0 if ends else 1.8)
    torch.testing.assert_close(found.detach(), expected.expand(4, -1), atol=0.05, rtol=0.0)


def test_targets_follow_by_tau() -> None:
    critic = EnsembleCritic(3, OffPolicyConfig(**SMALL, tau=0.25, subset=1), torch.device("cpu"))
    before = [p.clone() for p in critic.target.parameters()]
    critic.fit(torch.randn(16, 2), torch.randn(16, 1), torch.randn(16))
    for old, now, live in zip(before, critic.target.parameters(), critic.net.parameters(), strict=True):
        torch.testing.assert_close(now, old + 0.25 * (live - old))
    assert not any(p.requires_grad for p in critic.target.parameters())


def test_the_pessimistic_value_is_the_least_of_a_random_subset() -> None:
    critic = EnsembleCritic(3, OffPolicyConfig(**SMALL, subset=2), torch.device("cpu"))
    features, actions = torch.randn(5, 2), torch.randn(5, 3, 1)
    every = torch.stack([critic.target(torch.cat((features, actions[:, c]), 1)).squeeze(-1) for c in range(3)], -1)
    pairs = {(i, j): torch.minimum(every[i], every[j]) for i in range(4) for j in range(i)}
    generator, met = torch.Generator().manual_seed(0), set()
    for _ in range(60):
        value = critic.pessimistic(features, actions, generator)
        met |= {pair for pair, least in pairs.items() if torch.allclose(value, least, atol=1e-6)}
    assert met == set(pairs)


def values_of(algorithm: Proposals, table: torch.Tensor) -> None:
    """Critics whose value of a candidate is looked up by its rank: `table` (E, C)."""
    algorithm.critic.values = lambda features, actions: table[:, None].expand(-1, len(features), -1)  # type: ignore[method-assign,assignment]


def test_the_candidate_is_chosen_that_is_surely_good() -> None:
    algorithm = Proposals(base(), ProposalsConfig(**SMALL, caution=1.0), seed=0)
    table = torch.tensor([[0.5, 0.0, 0.4], [0.5, 2.0, 0.6]])  # means .5, 1, .5; deviations 0, 1, .1
    assert algorithm.choose(table[:, None]).tolist() == [0]
    algorithm.settings = replace(algorithm.settings, caution=0.0)
    assert algorithm.choose(table[:, None]).tolist() == [1]


def test_candidates_are_the_base_s_proposals_and_edits_within_reach() -> None:
    policy = base()
    algorithm = Proposals(policy, ProposalsConfig(**SMALL, reach=0.2), seed=0)
    observation = {"proprio": torch.randn(5, 2)}
    note = algorithm.annotate(observation)
    assert note.shape == (5, 8, 2) and note.abs().max() <= 1.0
    found = algorithm.candidates(algorithm.see(observation), note, explore=True)
    assert torch.equal(found[:, :8], note)
    assert 0 < float((found[:, 8:] - note).detach().abs().max()) <= 0.2 + 1e-6
    # The proposals are the frozen policy's: their mean over many draws is that of its own acting.
    many = {"proprio": observation["proprio"].repeat(800, 1)}
    policy.reset(0)
    acted = policy.act({"proprio": many["proprio"].numpy()})[..., 0].reshape(800, 5, 2).mean(0)
    drawn = algorithm.annotate(many).mean(1).view(800, 5, 2).mean(0)
    np.testing.assert_allclose(drawn, acted, atol=0.08)


def test_the_base_keeps_its_weights() -> None:
    policy = base()
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    algorithm = Proposals(policy, ProposalsConfig(**SMALL, actor_every=1), seed=0)
    for _ in range(5):
        algorithm.update(windows())
    for key, value in policy.state_dict().items():
        assert torch.equal(value, before[key])


def test_the_edit_moves_to_what_was_worth_imitating_and_no_further_than_its_reach() -> None:
    algorithm = Proposals(base(), ProposalsConfig(**SMALL, reach=0.5, value=0.0, actor_every=1, lr=3e-3), seed=0)
    batch = windows(32)
    batch = replace(batch, note=torch.zeros(32, 8, 2), action=torch.full((32, 2, 1), 0.3))
    for _ in range(300):
        algorithm.update(batch)
    edited = algorithm.candidates(algorithm.see(batch.observation), batch.note[:, :1], explore=False)[:, 1]
    torch.testing.assert_close(edited, torch.full((32, 2), 0.3), atol=0.03, rtol=0.0)


def test_what_was_never_executed_is_not_imitated() -> None:
    algorithm = Proposals(base(), ProposalsConfig(**SMALL, reach=0.5, value=0.0, actor_every=1, lr=3e-3), seed=0)
    batch = windows(32)
    action = torch.full((32, 2, 1), 0.3)
    action[:, 1] = -0.4
    executed = torch.tensor([[True, False]]).repeat(32, 1)
    batch = replace(batch, note=torch.zeros(32, 8, 2), action=action, executed=executed)
    for _ in range(300):
        algorithm.update(batch)
    edited = algorithm.candidates(algorithm.see(batch.observation), batch.note[:, :1], explore=False)[:, 1]
    assert float((edited[:, 0] - 0.3).detach().abs().max()) < 0.05 and float(edited[:, 1].detach().mean()) > -0.2


def test_edits_climb_the_critics() -> None:
    algorithm = Proposals(base(), ProposalsConfig(**SMALL, reach=0.5, imitate=0.0, actor_every=1, lr=3e-3), seed=0)
    algorithm.critic.values = lambda features, actions: actions.sum(-1).expand(4, -1, -1)  # type: ignore[method-assign]
    batch = replace(windows(32), note=torch.zeros(32, 8, 2))
    for _ in range(200):
        algorithm.improve(algorithm.see(batch.observation), batch)
    assert (
        float(algorithm.candidates(algorithm.see(batch.observation), batch.note[:, :1], explore=False)[:, 1].min())
        > 0.4
    )


def test_the_temperature_follows_the_target_entropy() -> None:
    for goal, rises in ((-50.0, True), (50.0, False)):  # the entropy shall be +100 nats, or −100
        algorithm = Rlpd(base(), RlpdConfig(**SMALL, target_entropy=goal, actor_every=1), seed=0)
        before = float(algorithm.log_alpha)
        for _ in range(20):
            algorithm.update(windows())
        assert (float(algorithm.log_alpha) > before) == rises


@pytest.mark.parametrize("kind", ["proposals", "rlpd"])
def test_resumed_learning_is_the_same_bit_for_bit(kind: str) -> None:
    def fresh(seed: int) -> OffPolicy:
        if kind == "rlpd":
            return Rlpd(base(), RlpdConfig(**SMALL), seed=seed)
        return Proposals(base(), ProposalsConfig(**SMALL), seed=seed)

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
    for wrong in ({"reach": 0.0}, {"backup_proposals": 9}, {"caution": -1.0}):
        with pytest.raises(BadInput):
            ProposalsConfig(**wrong)  # type: ignore[arg-type]


# --- a small world ----------------------------------------------------------------------------------------------


class Corridor:
    """x moves by 0.25 a; beyond 1 the task is solved, after 12 steps the clock ends it. Starts near −0.6."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def play(self, act: Callable[[float], float]) -> PlayedEpisode:
        """An episode in which `act` says what to do at x."""
        x, seen, actions = self.rng.uniform(-0.9, -0.3), [], []
        while len(actions) < 12 and x < 1:
            seen.append([x, 1.0])
            actions.append(act(x))
            x += 0.25 * actions[-1]
        seen.append([x, 1.0])
        reward = np.zeros(len(actions), np.float32)
        reward[-1] = x >= 1
        return PlayedEpisode(
            {"proprio": np.array(seen, np.float32)}, np.array(actions, np.float32)[:, None], reward,
            np.zeros(len(actions), bool), bool(x >= 1), bool(x >= 1),
        )  # fmt: skip


def acting(algorithm: OffPolicy, *, explore: bool) -> Callable[[float], float]:
    return lambda x: float(algorithm.act({"proprio": np.array([[x, 1.0]], np.float32)}, explore=explore)[0, 0, 0])


def solved(algorithm: OffPolicy) -> tuple[float, float]:
    """(success, mean steps) of 50 episodes."""
    world = Corridor(99)
    episodes = [world.play(acting(algorithm, explore=False)) for _ in range(50)]
    return float(np.mean([e.success for e in episodes])), float(np.mean([len(e) for e in episodes]))


@pytest.mark.parametrize("kind", ["proposals", "rlpd"])
def test_a_corridor_is_learned_from_four_slow_demonstrations(kind: str) -> None:
    """It is solved each time, and sooner than it was demonstrated: 1.6 / (0.25 · 0.6) are 11 steps."""
    policy = base(horizon=1)
    algorithm: OffPolicy
    if kind == "rlpd":
        algorithm = Rlpd(policy, RlpdConfig(**SMALL, gamma=0.9, lr=1e-3, actor_every=1), seed=0)
    else:
        settings = ProposalsConfig(**SMALL, gamma=0.9, lr=1e-3, reach=1.0, imitate=0.0, actor_every=1)
        algorithm = Proposals(policy, settings, seed=0)
    assert solved(algorithm)[0] < 0.2
    world, order = Corridor(0), torch.Generator().manual_seed(0)
    online, demonstrations = (ReplayBuffer(INTERFACE, 1, 5000, annotate=algorithm.annotate) for _ in range(2))
    for _ in range(4):
        demonstrations.add(world.play(lambda x: 0.6))
    for _ in range(60):
        online.add(world.play(acting(algorithm, explore=True)))
        for _ in range(20):
            algorithm.update(online.sample(32, 0.9, order).followed_by(demonstrations.sample(32, 0.9, order)))
    success, steps = solved(algorithm)
    assert success == 1.0 and steps < 9
