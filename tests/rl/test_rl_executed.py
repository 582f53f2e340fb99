"""Chunks longer than what is executed: the likelihood, and all that is made of it, is of the first Ta actions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from robolearn.core import ArraySpec, Interface
from robolearn.rl.actors import DenoisingActor, NoiseConfig
from robolearn.rl.actors.denoising import kl_nats, kl_to_reference, w2_to_reference
from robolearn.rl.returns import clipped_surrogate

Make = Callable[..., Any]
STATE = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), control_hz=20.0)
BATCH, PREDICTED, EXECUTED = 5, 16, 4
MODES = ("last", "all")


def build(make: Make, noised: Any, steps: int = 3, gain: float = 20.0, **noise: Any) -> DenoisingActor:
    policy = make(STATE, gain=gain, steps=steps, horizon=PREDICTED, execute=EXECUTED)
    actor = DenoisingActor(policy.net, NoiseConfig(sigma_min=0.05, sigma_max=0.2, steps=noised, **noise))
    torch.nn.init.normal_(actor.noise.net[-1].weight)  # type: ignore[arg-type]
    return actor


def see() -> dict[str, Tensor]:
    return {"proprio": torch.randn(BATCH, 3, generator=torch.Generator().manual_seed(5))}


def draw(actor: DenoisingActor) -> Tensor:
    with torch.no_grad():
        return actor.sample(see(), torch.Generator().manual_seed(11))


def by_hand(actor: DenoisingActor, chain: Tensor, noised: str, steps: int = 3) -> Tensor:
    """(B, M) log-likelihoods of the first Ta actions by torch, step by step."""
    cond, grid, x, found = actor.net.encode(see()), actor.net.time_grid(), chain[:, 0], []
    for k in range(steps):
        mean = actor.net.denoise(x.reshape(BATCH, PREDICTED, 2), k, cond)
        if noised == "last" and k < steps - 1:
            x = mean.flatten(1)
            continue
        x = chain[:, len(found) + 1]
        sigma = actor.noise(grid[k].expand(BATCH), cond).exp().reshape(mean.shape)
        normal = torch.distributions.Normal(mean[:, :EXECUTED], sigma[:, :EXECUTED])
        found.append(normal.log_prob(x.reshape(mean.shape)[:, :EXECUTED]).sum((1, 2)))
    return torch.stack(found, 1)


@pytest.mark.parametrize("noised", MODES)
def test_a_ratio_is_that_of_the_executed_actions(make_policy: Make, noised: str):
    actor = build(make_policy, noised)
    chain = draw(actor)
    assert chain.shape[2] == PREDICTED * 2
    with torch.no_grad():
        old, before = actor.evaluate(see(), chain), by_hand(actor, chain, noised)
        for p in actor.parameters():
            p.add_(0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
        new, after = actor.evaluate(see(), chain), by_hand(actor, chain, noised)
    torch.testing.assert_close(old.log_prob, before, rtol=1e-4, atol=1e-3)
    terms = before.shape[1] * EXECUTED * 2
    expected = (after - before).sum(1) / math.sqrt(terms)
    torch.testing.assert_close(new.joint() - old.joint(), expected, rtol=1e-3, atol=1e-3)
    assert expected.abs().max() > 0.01


@pytest.mark.parametrize("quantity", ["joint", "entropy", "kl", "kl_to_reference", "w2"])
def test_nothing_beyond_them_has_a_gradient(make_policy: Make, quantity: str):
    actor = build(make_policy, "last", steps=1, gain=1.0)
    chain = 0.1 * draw(actor)  # nothing is cut at ±1
    with torch.no_grad():
        old, reference = actor.evaluate(see(), chain), actor.reference_mean(see(), chain)
        for p in (*actor.net.parameters(), *actor.noise.parameters()):
            p.add_(0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    now = actor.evaluate(see(), chain)
    value = {
        "joint": lambda: now.joint().sum(),
        "entropy": lambda: now.entropy.sum(),
        "kl": lambda: kl_nats(old, now).sum(),
        "kl_to_reference": lambda: kl_to_reference(now, reference),
        "w2": lambda: w2_to_reference(actor.net, actor.reference, see(), chain[:, 0]),
    }[quantity]()
    value.backward()
    last = actor.net.field.mlp.last.bias if quantity != "entropy" else actor.noise.net[-1].bias
    gradient = last.grad.reshape(PREDICTED, 2).abs()  # type: ignore[union-attr]
    assert gradient[:EXECUTED].min() > 0 and gradient[EXECUTED:].max() == 0


@pytest.mark.parametrize("noised", MODES)
def test_what_was_drawn_beyond_them_changes_nothing(make_policy: Make, noised: str):
    actor = build(make_policy, noised)
    chain = draw(actor)
    other = chain.clone()
    other[:, -1, EXECUTED * 2 :] += 1.0
    for a, b in zip(actor.evaluate(see(), chain), actor.evaluate(see(), other), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("algo", ["reinflow", "dppo", "grpo"])
@pytest.mark.parametrize("noise", ["NOISE", "EVERYWHERE"])
def test_every_ratio_begins_at_1_and_the_step_size_follows_what_is_executed(
    make_policy: Make, point: Make, kit: Any, monkeypatch: pytest.MonkeyPatch, algo: str, noise: str
):
    import importlib

    page, world, seen = importlib.import_module(f"robolearn.rl.algorithms.{algo}"), point(8, limit=8), []
    policy = make_policy(world.interface, horizon=6, execute=2, gain=3.0)
    wide = replace(getattr(kit, noise), sigma_min=0.3, sigma_max=0.6)
    made = kit.runner(world, policy, algo, noise=wide, minibatch=1000, epochs=2)
    monkeypatch.setattr(page, "clipped_surrogate", lambda r, *rest: seen.append(r) or clipped_surrogate(r, *rest))
    row = made.iterate(0)
    assert seen[0].abs().max() < 1e-5 and seen[1].abs().max() > 0
    assert 0 < row["kl"] < 4 * made.config.target_kl * len(made.algorithm.actor.noised)


# --- as the paper has it -------------------------------------------------------------------------------------


@pytest.mark.parametrize("noised", MODES)
def test_the_paper_s_exponent_is_the_mean_over_steps_and_components(make_policy: Make, noised: str):
    actor = build(make_policy, noised)
    chain = draw(actor)
    with torch.no_grad():
        stats, likelihood = actor.evaluate(see(), chain), by_hand(actor, chain, noised)
    start = torch.distributions.Normal(0.0, 1.0).log_prob(chain[:, 0, : EXECUTED * 2]).sum(1)
    mean = (start + likelihood.sum(1)) / ((likelihood.shape[1] + 1) * EXECUTED * 2)
    torch.testing.assert_close(stats.joint("mean"), mean.clamp(-1, 1), rtol=1e-4, atol=1e-4)
    sure = stats._replace(log_prob=stats.log_prob + 1000.0)
    assert (sure.joint("mean") == 1.0).all()


@pytest.mark.parametrize("noised", MODES)
def test_means_and_draws_stay_within_their_bounds(make_policy: Make, noised: str):
    actor = build(make_policy, noised, within=0.5, clip_means=True)
    chain = draw(actor)
    with torch.no_grad():
        stats = actor.evaluate(see(), chain)
    z = (chain[:, 1:, : EXECUTED * 2] - stats.mean) / stats.log_sigma.exp()
    assert 0.49 < z.abs().max() < 0.501  # sampler and likelihood have the same means
    assert stats.mean.abs().max() == 1.0
    free = build(make_policy, noised)
    with torch.no_grad():
        assert free.evaluate(see(), draw(free)).mean.abs().max() > 1.0


def test_a_cosine_takes_the_place_of_the_divergence(point: Make, kit: Any):
    made = kit.runner(point(8), lr_schedule="cosine", lr_end=0.25, actor_lr=1e-2, critic_lr=4e-3, target_kl=1e-9)
    rows = kit.run(made, 0, 2)
    assert rows[0]["actor_lr"] == pytest.approx(1e-2) and rows[1]["actor_lr"] < 1e-2
    assert all(row["step_kept"] == 1.0 and row["kl"] > 1e-6 for row in rows)
    made.algorithm.begin_iteration(1.0)
    assert made.algorithm.policy_step.lr == pytest.approx(2.5e-3)
    assert made.algorithm.baseline.optimizer.adam.param_groups[0]["lr"] == pytest.approx(1e-3)
    made.algorithm.begin_iteration(0.5)
    assert made.algorithm.policy_step.lr == pytest.approx(1e-2 * 0.625)


@pytest.mark.parametrize("lr_schedule", ["constant", "kl"])
def test_other_schedules_leave_the_critic_s_step_size(point: Make, kit: Any, lr_schedule: str):
    made = kit.runner(point(8), lr_schedule=lr_schedule, actor_lr=1e-2, critic_lr=4e-3)
    kit.run(made, 0, 2)
    assert made.algorithm.baseline.optimizer.adam.param_groups[0]["lr"] == 4e-3
    assert (made.algorithm.policy_step.lr == 1e-2) == (lr_schedule == "constant")


def test_a_run_s_settings_are_stored_without_what_older_runs_did_not_have(kit: Any):
    from robolearn.rl.settings import GrpoConfig, ReinFlowConfig

    stored = ReinFlowConfig().stored()
    assert not {"exponent", "lr_schedule", "lr_end"} & stored.keys()
    assert not {"within", "clip_means"} & stored["noise"].keys()
    asked = ReinFlowConfig(exponent="mean", noise=NoiseConfig(within=3.0)).stored()
    assert asked["exponent"] == "mean" and asked["noise"]["within"] == 3.0
    assert GrpoConfig().stored()["weigh"] == "episode" and "weigh" not in GrpoConfig(weigh="decision").stored()
