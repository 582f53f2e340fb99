"""Options of off-policy learning: dropout, batch norm without targets, resuming, and what they still solve."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from policies.networks.ensemble import MOMENTUM, Dropout, EnsembleMlp, evaluate
from policies.storage.checkpoint import save_policy
from policies.storage.loading import open_policy
from robolearn.core import BadInput
from robolearn.data.replay import ReplayBuffer
from robolearn.rl.algorithms.dsrl import Dsrl
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.algorithms.proposals import Proposals
from robolearn.rl.algorithms.rlpd import Rlpd
from robolearn.rl.ensemble_critic import EnsembleCritic
from robolearn.rl.off_policy_settings import DsrlConfig, OffPolicyConfig, ProposalsConfig, RlpdConfig

sys.path.insert(0, str(Path(__file__).parent))
from corridor import INTERFACE, SMALL, Corridor, acting, base, solved, windows

pytestmark = pytest.mark.long

OPTIONS: dict[str, dict[str, Any]] = {"droq": {"dropout": 0.1}, "crossq": {"cross_q": True}, "n_step": {"n_step": 3}}
ALGORITHMS: dict[str, Callable[..., OffPolicy]] = {
    "proposals": lambda seed, **more: Proposals(base(), ProposalsConfig(**SMALL, **more), seed=seed),
    "rlpd": lambda seed, **more: Rlpd(base(), RlpdConfig(**SMALL, **more), seed=seed),
    "dsrl": lambda seed, **more: Dsrl(base(), DsrlConfig(**SMALL, **more), seed=seed),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_dropout_keeps_the_mean_and_draws_from_its_own_generator() -> None:
    """Kept entries are 1 / (1 − p) as large; the share of them is 1 − p; torch's own generator is left alone."""
    before = torch.get_rng_state()
    h = Dropout(0.25, generator())(torch.ones(4, 500, 20))
    assert h.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert abs(float(h.mean()) - 1.0) < 0.01
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(Dropout(0.25, generator(3))(h), Dropout(0.25, generator(3))(h))


def test_units_are_dropped_before_the_norm_and_only_while_learning() -> None:
    """Each member against torch.nn with the same masks."""
    torch.manual_seed(1)
    net = EnsembleMlp(2, 3, 1, width=8, depth=1)
    nn.init.normal_(net.weights[1])
    x = torch.randn(6, 3)
    kept = torch.rand(2, 6, 8, generator=generator(4)) >= 0.5
    found = net(x, drop=Dropout(0.5, generator(4)))
    for e in range(2):
        h = nn.functional.layer_norm(2.0 * kept[e] * (x @ net.weights[0][e]), (8,)).relu()
        torch.testing.assert_close(found[e], h @ net.weights[1][e], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(net(x), found)


def test_targets_and_what_the_actor_climbs_have_dropout_too() -> None:
    critic = EnsembleCritic(
        EnsembleMlp(2, 3, 1, width=32), OffPolicyConfig(**SMALL | {"critics": 2}, dropout=0.5), generator()
    )
    features, actions = torch.randn(5, 2), torch.randn(5, 1, 1)
    nn.init.normal_(critic.net.weights[-1])
    critic.target.load_state_dict(critic.net.state_dict())  # type: ignore[union-attr]
    assert not torch.equal(critic.values(features, actions), critic.values(features, actions))
    worst = [critic.pessimistic(features, actions, generator(0)) for _ in range(2)]
    assert not torch.equal(*worst)
    assert torch.equal(evaluate(critic.net, features, actions), evaluate(critic.net, features, actions))


def test_batch_norm_is_that_of_torch_for_each_member() -> None:
    torch.manual_seed(2)
    net = EnsembleMlp(3, 4, 1, width=8, depth=1, batch_norm=True)
    for parameter in [*net.scales, *net.shifts, *net.biases]:
        nn.init.normal_(parameter)
    x = torch.randn(50, 4) * 3 + 1
    found = net(x, over_batch=True)
    for e in range(3):
        inner, hidden = nn.BatchNorm1d(4, affine=False), nn.BatchNorm1d(8)
        hidden.weight.data, hidden.bias.data = net.scales[0][e, 0], net.shifts[0][e, 0]

        def judge(x: torch.Tensor, e: int = e, inner: Any = inner, hidden: Any = hidden) -> torch.Tensor:
            return hidden(inner(x) @ net.weights[0][e] + net.biases[0][e]).relu() @ net.weights[1][e] + net.biases[1][e]

        torch.testing.assert_close(found[e], judge(x), atol=1e-4, rtol=1e-4)
        # Where nothing is learned the running statistics stand in, here put to the batch's.
        for name, norm in (("in", inner), ("0", hidden)):
            torch.testing.assert_close(
                net.get_buffer(f"mean_{name}")[e, 0], MOMENTUM / 0.1 * norm.running_mean, atol=1e-4, rtol=1e-3
            )
            net.get_buffer(f"mean_{name}")[e, 0] = norm.running_mean
            net.get_buffer(f"variance_{name}")[e, 0] = norm.running_var
        torch.testing.assert_close(net(x)[e], judge_of_running(judge, inner, hidden, x), atol=1e-3, rtol=1e-3)


def judge_of_running(judge: Callable[..., torch.Tensor], inner: nn.Module, hidden: nn.Module, x: torch.Tensor) -> Any:
    inner.eval()
    hidden.eval()
    return judge(x)


def test_crossq_normalises_what_was_done_and_what_comes_next_together() -> None:
    """The target is of the same pass as what learns: by hand with one forward pass over both halves, one Adam step."""
    torch.manual_seed(0)
    config = OffPolicyConfig(**SMALL | {"critics": 2, "subset": 2}, cross_q=True, lr=0.1)
    net = EnsembleMlp(2, 3, 1, width=16, depth=1, batch_norm=True)
    nn.init.normal_(net.weights[-1])
    critic = EnsembleCritic(net, config, generator())
    assert critic.target is None and critic.adam.defaults["betas"][0] == 0.5
    now, after = (torch.randn(8, 2), torch.randn(8, 1)), (torch.randn(8, 2) + 3, torch.randn(8, 1))
    reward, discount, bonus = torch.linspace(0, 1, 8), torch.full((8,), 0.9), torch.full((8,), -0.25)
    judge = EnsembleMlp(2, 3, 1, width=16, depth=1, batch_norm=True)
    judge.load_state_dict(net.state_dict())
    both = judge(torch.cat([torch.cat(now, 1), torch.cat(after, 1)]), over_batch=True)[..., 0]
    y = (reward + 0.9 * (both[:, 8:].amin(0) - 0.25)).detach()
    expected = (both[:, :8] - y).square().mean()
    expected.backward()
    metrics = critic.fit_jointly(now, after, reward, discount, bonus, generator())
    torch.testing.assert_close(metrics["critic_loss"], expected.detach())
    for mine, theirs in zip(net.parameters(), judge.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    alone = judge(torch.cat(now, 1), over_batch=True)[..., 0]
    assert float((alone - both[:, :8]).detach().abs().max()) > 0.05  # a pass of its own says something else


def test_batch_renorm_has_the_values_of_the_running_statistics_and_the_gradients_of_the_batch() -> None:
    """r and d of Ioffe (2017) cancel the batch's statistics, as far as their bounds go."""
    net = EnsembleMlp(2, 4, 1, width=8, depth=1, batch_norm=True)
    net.weights[0].data = torch.eye(4, 8).expand(2, 4, 8).clone()  # hidden units are the inputs as normalised
    nn.init.normal_(net.weights[1])
    x = torch.randn(64, 4, generator=generator(1)) * 2 + 1
    running = {name: buffer.clone() for name, buffer in net.named_buffers()}  # means 0, variances 1
    outside = net(x)
    torch.testing.assert_close(net(x, over_batch=True, renorm=True), outside, atol=1e-4, rtol=1e-3)
    assert not torch.allclose(net(x, over_batch=True), outside, atol=0.1)
    # Far away r and d are cut: inputs of mean 40 and deviation 20 become 3 z + 5, as the next statistics show.
    for name, buffer in running.items():
        net.get_buffer(name).copy_(buffer)
    far = torch.randn(4096, 4, generator=generator(2)) * 20 + 40
    net(far, over_batch=True, renorm=True)
    mean, variance = (net.get_buffer(f"{name}_0")[0, 0, :4] for name in ("mean", "variance"))
    torch.testing.assert_close(mean, torch.full((4,), MOMENTUM * 5.0), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(variance, torch.full((4,), 1 - MOMENTUM + MOMENTUM * 9.0), atol=1e-4, rtol=1e-3)


def test_crossq_renormalises_after_its_warm_up() -> None:
    torch.manual_seed(0)
    config = OffPolicyConfig(**SMALL | {"critics": 2, "subset": 2}, cross_q=True)
    now, after = (torch.randn(8, 2) + 2, torch.randn(8, 1)), (torch.randn(8, 2) + 3, torch.randn(8, 1))
    values = {}
    for updates in (0, 99_999, 100_000):
        torch.manual_seed(1)
        net = EnsembleMlp(2, 3, 1, width=16, depth=1, batch_norm=True)
        nn.init.normal_(net.weights[-1])
        critic = EnsembleCritic(net, config, generator())
        one = torch.ones(8)
        values[updates] = critic.fit_jointly(now, after, one, one, 0.0, generator(), updates)["q"].item()
    assert values[0] == values[99_999] != values[100_000]


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("fresh", ALGORITHMS.values(), ids=ALGORITHMS)
def test_options_resume_bit_for_bit_and_are_exported(
    fresh: Callable[..., OffPolicy], option: dict[str, Any], tmp_path: Path
) -> None:
    first, second = fresh(0, **option), fresh(7, **option)
    for _ in range(4):
        first.update(windows())
    second.load_state(*first.state())
    for algorithm in (first, second):
        torch.manual_seed(id(algorithm) % 1000)  # whatever torch's own generator is at
        for _ in range(3):
            algorithm.update(windows())
    for key, value in first.state()[0].items():
        assert torch.equal(value, second.state()[0][key]), key
    if isinstance(first, Proposals):
        first.policy.trusted.fill_(1.0)
    loaded = open_policy(save_policy(first.policy, tmp_path / "policy"))
    observation = {"proprio": np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)}
    loaded.bind(INTERFACE)
    for policy in (loaded, first.policy):
        policy.reset(3)
    np.testing.assert_array_equal(loaded.act(observation), first.policy.act(observation))


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_a_corridor_is_learned_with_each_option(option: dict[str, Any]) -> None:
    algorithm = Rlpd(base(horizon=1), RlpdConfig(**SMALL, gamma=0.9, lr=1e-3, **option), seed=0)
    world, order = Corridor(0), generator()
    buffers = [ReplayBuffer(INTERFACE, 1, 5000, n_step=algorithm.config.n_step) for _ in range(2)]
    for _ in range(4):
        buffers[1].add(world.play(lambda x: 0.6))
    for _ in range(60):
        buffers[0].add(world.play(acting(algorithm, explore=True)))
        for _ in range(20):
            parts = [buffer.sample(32, 0.9, order) for buffer in buffers]
            algorithm.update(parts[0].followed_by(parts[1]))
    success, steps = solved(algorithm)
    assert success == 1.0 and steps < 9


def test_options_that_make_no_sense() -> None:
    for wrong in ({"n_step": 0}, {"dropout": 1.0}, {"dropout": -0.1}):
        with pytest.raises(BadInput):
            OffPolicyConfig(**wrong)  # type: ignore[arg-type]
