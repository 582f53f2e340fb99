"""Uni-O4: the gate, the judge's target and the surrogate by hand, and a line on which the better way is found."""

from __future__ import annotations

import copy
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributions import Normal

from robolearn.core import BadInput
from robolearn.data.replay import ReplayBuffer
from robolearn.rl.algorithms.uni_o4 import UniO4, better
from robolearn.rl.student_settings import UniO4Config

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, base, windows
from line import GAMMA, PLACES, optimal, seen, wandering

FAST: dict[str, Any] = {"states": 8, "group": 16, "trust_after": 0, "gate_every": 5, "surrogate_lr": 1e-3}


def uni_o4(policy: Any = None, **settings: Any) -> UniO4:
    return UniO4(policy or base(), UniO4Config(**SMALL | FAST | settings), seed=0)


def weights(net: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def moved(algorithm: UniO4, by: float = 0.02) -> UniO4:
    """What learns is `by` off what acts, in all weights."""
    with torch.no_grad():
        for parameter in algorithm.student.net.parameters():
            parameter.add_(by)
    return algorithm


def test_an_update_is_better_where_the_judge_s_critics_agree_on_it() -> None:
    """Gains of two critics over two states: (1 + 2)/2 and (0 + 1)/2, in mean 1 with a deviation of ½."""
    old = torch.tensor([[[1.0], [2.0]], [[5.0], [6.0]]])
    new = torch.tensor([[[2.0], [4.0]], [[5.0], [7.0]]])
    assert better(old, new, 1.9) == (True, 1.0) and better(old, new, 2.1) == (False, 1.0)
    assert better(new, old, 0.0) == (False, -1.0) and better(old, old, 0.0) == (False, 0.0)


@pytest.mark.long
def test_the_judge_s_target_is_the_mean_value_of_what_acts_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """y = R + 0.9 · mean(1, 3, 2, 6), although another policy learns and the critics' least is 1."""
    algorithm, batch = moved(uni_o4()), windows(4)
    asked, met = [], []

    def targets(features: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        asked.append(actions)
        return torch.tensor([1.0, 3.0, 2.0, 6.0])[:, None, None].expand(4, 4, 1)

    def fit(features: torch.Tensor, actions: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        met.append(target)
        torch.testing.assert_close(actions, batch.action.flatten(1))
        return {"critic_loss": torch.zeros(()), "q": torch.zeros(())}

    monkeypatch.setattr(algorithm.judge, "targets", targets)
    monkeypatch.setattr(algorithm.judge, "fit", fit)
    noise = torch.randn(4, 2, 1, generator=torch.Generator().manual_seed(0))
    algorithm._noise = lambda count: noise  # type: ignore[method-assign]
    with torch.no_grad():
        acting = algorithm.policy.propose(batch.next_observation, noise[:, None])
    algorithm.update(batch)
    torch.testing.assert_close(met[0], batch.reward + 0.9 * 3.0)
    torch.testing.assert_close(asked[0], acting, atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_learns_comes_to_act_where_the_judge_affirms_it_and_goes_back_where_not(
    sign: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge gives each chunk ± its sum, alike of all critics; what learns has larger actions, of the same noise."""
    algorithm, batch = uni_o4(), windows(8)
    with torch.no_grad():
        algorithm.student.net.field.mlp.last.bias.add_(0.2)
    met = []

    def judged(net: Any, features: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        assert net is algorithm.judge.net
        met.append(actions)
        return sign * actions.sum(-1).expand(4, -1, -1)

    monkeypatch.setattr("robolearn.rl.algorithms.uni_o4.evaluate", judged)
    acts, learns = (weights(net) for net in (algorithm.policy.proposer.net, algorithm.student.net))
    algorithm._gate(algorithm.policy.encode(batch.observation), batch)
    assert (
        met[0].shape == (8, 16, 2) and float((met[1] - met[0]).amin()) >= 0.0
    )  # which a noise of its own would not be
    for net in (algorithm.policy.proposer.net, algorithm.student.net):
        assert torch.equal(weights(net), learns if sign > 0 else acts)
    assert (algorithm.asked, algorithm.accepted) == (1, sign > 0)
    assert algorithm.gain == pytest.approx(sign * float((met[1] - met[0]).sum(-1).mean()), rel=1e-5)


def test_the_surrogate_is_that_of_gaussians_around_what_the_flow_makes_of_its_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """−mean min(r Â, clip(r) Â), r by torch.distributions with the root of two components, Â standardised by hand."""
    algorithm, batch = moved(uni_o4(sigma=0.2, group=3, states=4, clip=0.05)), windows(4)
    advantage = torch.linspace(-1.0, 2.0, 12)
    monkeypatch.setattr(algorithm, "advantage", lambda features, chunk: advantage)
    drawn: list[tuple[Any, torch.Tensor]] = []
    sample = algorithm.old.sample
    algorithm.old.sample = lambda seen, g: drawn.append((seen, sample(seen, g))) or drawn[0][1]  # type: ignore
    nets = algorithm.student.net, algorithm.policy.proposer.net
    likelihood = []
    before = [copy.deepcopy(net) for net in nets]
    found = algorithm._surrogate_steps(algorithm.policy.encode(batch.observation), batch)["surrogate"]
    observed, chain = drawn[0]
    assert len(chain) == 12
    with torch.no_grad():
        for net in before:
            x, cond = chain[:, 0].view(12, 2, 1), net.encode(observed)
            for k in range(net.config.steps):
                x = net.denoise(x, k, cond)
            likelihood.append(Normal(x.flatten(1), 0.2).log_prob(chain[:, 1]).sum(1))
    r = ((likelihood[0] - likelihood[1]) / math.sqrt(2)).exp()
    scaled = (advantage - advantage.mean()) / advantage.std()
    expected = -torch.minimum(r * scaled, r.clamp(0.95, 1.05) * scaled).mean()
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-3)
    assert ((r - 1).abs() > 0.05).any() and ((r - 1).abs() < 0.05).any()
    assert not torch.equal(weights(nets[0]), weights(before[0])) and torch.equal(weights(nets[1]), weights(before[1]))


def test_an_advantage_is_the_least_critic_s_value_less_that_of_the_state() -> None:
    algorithm = uni_o4()
    algorithm.critic.pessimistic = lambda features, actions, order: actions.sum(-1)  # type: ignore[method-assign]
    algorithm.value = lambda features: torch.tensor([0.5, -1.0])  # type: ignore[assignment]
    found = algorithm.advantage(torch.zeros(2, 2), torch.tensor([[0.5, 0.25], [-0.5, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([0.25, 0.5]))


@pytest.mark.long
def test_it_imitates_until_the_critics_are_trusted_and_begins_from_the_average() -> None:
    algorithm, batch = uni_o4(trust_after=3, imitate_lr=1e-2), windows(16)
    told = []
    for _ in range(5):
        told.append(algorithm.update(batch))
        if algorithm.updates == 2:
            assert not torch.equal(weights(algorithm.student.net), weights(algorithm.policy.proposer.net))
        if algorithm.updates == 3:
            assert torch.equal(weights(algorithm.student.net), weights(algorithm.policy.proposer.net))
            acts = weights(algorithm.policy.proposer.net)
    assert ["imitation" in metrics for metrics in told] == [True, True, True, False, False]
    assert ["surrogate" in metrics for metrics in told] == [False, False, False, True, True]
    assert algorithm.asked == 1  # after the fifth update; what acts had stayed as it was
    assert algorithm.accepted or torch.equal(weights(algorithm.policy.proposer.net), acts)


@pytest.mark.long
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_policy_goes_where_the_critics_say_if_the_judge_agrees(sign: float) -> None:
    """Q = Σ a, by the judge ± Σ a. Where they differ what acts stays as it was."""
    algorithm, batch = uni_o4(sigma=0.2), windows(16)
    algorithm.critic.pessimistic = lambda features, actions, order: actions.sum(-1)  # type: ignore[method-assign]
    algorithm.value = lambda features: torch.zeros(len(features))  # type: ignore[assignment]
    noise = torch.randn(16, *algorithm.policy.noise.shape, generator=torch.Generator().manual_seed(5))

    @torch.no_grad()
    def chunks() -> float:
        return float(algorithm.policy.propose(batch.observation, noise).mean())

    before, features = chunks(), algorithm.policy.encode(batch.observation)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("robolearn.rl.algorithms.uni_o4.evaluate", lambda net, f, a: sign * a.sum(-1).expand(4, -1, -1))
        for algorithm.updates in range(1, 61):
            metrics = algorithm.improve(features, batch)
    gained = chunks() - before
    assert gained > 0.1 if sign > 0 else gained == 0.0
    assert algorithm.asked == 12 and float(metrics["accepted"]) == algorithm.accepted / 12
    assert (algorithm.accepted > 6) if sign > 0 else (algorithm.accepted == 0)


@pytest.mark.long
def test_what_explores_has_the_noise_and_stays_in_the_world_s_range() -> None:
    algorithm = uni_o4(base(initial_noise_std=0.0), sigma=0.1)
    here = {"proprio": torch.zeros(4000, 2)}
    explored = algorithm.explore(here)
    with torch.no_grad():
        without = algorithm.policy.propose(here, torch.zeros(4000, 1, *algorithm.policy.noise.shape[1:]))[:, 0]
    assert explored.shape == (4000, 2) and float((explored - without).std()) == pytest.approx(0.1, rel=0.05)
    assert float(uni_o4(sigma=3.0).explore(here).abs().max()) == 1.0


@pytest.mark.long
def test_the_better_way_along_a_line_is_found_offline_by_updates_that_pass_the_gate() -> None:
    """Half of all recorded steps go right, to the goal, and half left, to the pit."""
    buffer = ReplayBuffer(INTERFACE, 1, 20_000)
    for episode in wandering(300, seed=0):
        buffer.add(episode)
    settings = {"gamma": GAMMA, "lr": 3e-3, "imitate_lr": 3e-3, "imitate_average": 0.95, "surrogate_lr": 2e-3}
    algorithm = uni_o4(
        base(horizon=1), **settings, trust_after=250, gate_every=10, sigma=0.2, states=64, group=2, clip=0.2
    )
    order = torch.Generator().manual_seed(0)
    places = {"proprio": torch.tensor([seen(place) for place in range(PLACES)])}
    noise = torch.randn(PLACES, 200, 1, 1, generator=torch.Generator().manual_seed(1))

    @torch.no_grad()
    def right() -> torch.Tensor:
        return (algorithm.policy.propose(places, noise)[..., 0] > 0).float().mean(1)

    for _ in range(250):
        algorithm.update(buffer.sample(64, GAMMA, order))
    imitated = right()
    for _ in range(250):
        algorithm.update(buffer.sample(64, GAMMA, order))
    _, q = optimal()
    assert (q[:, 1] > q[:, 0]).all()  # right is better everywhere
    assert float((imitated - 0.5).abs().mean()) < 0.2 and float(right().mean()) > 0.9
    assert 0 < algorithm.accepted <= algorithm.asked == 25


def test_settings_that_make_no_sense() -> None:
    wrong = [{"group": 0}, {"sigma": 0.0}, {"clip": 0.0}, {"gate_caution": -1.0}, {"surrogate_lr": 0.0}]
    for settings in [*wrong, {"states": 1, "group": 1}, {"cross_q": True}, {"gate_every": 5, "actor_every": 2}]:
        with pytest.raises(BadInput):
            UniO4Config(**settings)
