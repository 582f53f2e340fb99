"""Distances of a denoising actor to the frozen copy of where it began."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.policy import ChunkPolicy
from robolearn.core import ArraySpec, Interface
from robolearn.rl.actors import DenoisingActor, NoiseConfig
from robolearn.rl.actors.denoising import kl_to_reference, w2_to_reference

Make = Callable[..., ChunkPolicy]
STATE = Interface({"proprio": ArraySpec((3,)), "objects": ArraySpec((2,))}, ArraySpec((2,)), control_hz=20.0)
BATCH, HORIZON = 6, 3
MODES = ("last", "all")


def build(make: Make, kind: str, steps: int, noised: Any) -> DenoisingActor:
    """With a velocity and a noise that depend strongly on everything."""
    policy = make(STATE, gain=20.0, kind=kind, steps=steps, horizon=HORIZON, execute=HORIZON)
    actor = DenoisingActor(policy.net, NoiseConfig(sigma_min=0.05, sigma_max=0.2, steps=noised))
    torch.nn.init.normal_(actor.noise.net[-1].weight)  # type: ignore[arg-type]
    return actor


def see() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {key: torch.randn(BATCH, n, generator=generator) for key, n in (("proprio", 3), ("objects", 2))}


def draw(actor: DenoisingActor) -> Tensor:
    with torch.no_grad():
        return actor.sample(see(), torch.Generator().manual_seed(11))


@pytest.mark.parametrize("noised", MODES)
@pytest.mark.parametrize("kind", ["rectified", "shortcut"])
def test_distances_are_0_for_identical_networks_and_not_otherwise(make_policy: Make, kind: str, noised: str):
    actor = build(make_policy, kind, 4, noised)
    observation, chain = see(), draw(actor)
    x0 = chain[:, 0].clone()
    reference = actor.reference_mean(observation, chain)
    kl = kl_to_reference(actor.evaluate(observation, chain), reference)
    w2 = w2_to_reference(actor.net, actor.reference, observation, x0)
    assert kl.item() == 0.0 and w2.item() == 0.0
    torch.testing.assert_close(x0, chain[:, 0], rtol=0, atol=0)  # the public code changes it in place
    with torch.no_grad():
        actor.net.field.mlp.last.bias.add_(0.1)  # type: ignore[union-attr, operator]
    kl = kl_to_reference(actor.evaluate(observation, chain), reference)
    w2 = w2_to_reference(actor.net, actor.reference, observation, x0)
    sigma = actor.evaluate(observation, chain).log_sigma.exp()
    # From a given x a step moves the mean by Δτ · 0.1; the noised last step has the whole path behind it.
    moved = 0.25 * 0.1 if noised == "all" else (path(actor.net, x0) - path(actor.reference, x0))[:, None]
    torch.testing.assert_close(kl, (0.5 * (moved / sigma) ** 2).mean(), rtol=1e-3, atol=1e-6)
    assert w2.item() > 0
    assert kl.requires_grad and w2.requires_grad
    torch.testing.assert_close(actor.reference_mean(observation, chain), reference, rtol=0, atol=0)


@torch.no_grad()
def path(flow: Any, x: Tensor) -> Tensor:
    """(B, D) where four equal Euler steps lead, not cut."""
    cond, d = flow.encode(see()), torch.full((BATCH,), 0.25)
    for k in range(4):
        x = x + 0.25 * flow.velocity(x, k * d, cond, d)
    return x


@pytest.mark.parametrize("noised", MODES)
def test_gradients_reach_flow_and_noise_but_not_the_frozen_copy(make_policy: Make, noised: str):
    actor = build(make_policy, "rectified", 2, noised)
    before = copy.deepcopy(actor.reference.state_dict())
    observation, chain = see(), draw(actor)
    optimizer = torch.optim.SGD([p for p in actor.parameters() if p.requires_grad], lr=0.1)
    stats = actor.evaluate(observation, chain)
    loss = (
        stats.joint().mean()
        + stats.entropy.mean()
        + w2_to_reference(actor.net, actor.reference, observation, chain[:, 0])
    )
    loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in actor.net.parameters())
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in actor.noise.parameters())
    assert all(p.grad is None for p in actor.reference.parameters())
    optimizer.step()
    assert any(not torch.equal(before[key], value) for key, value in actor.net.state_dict().items())
    assert all(torch.equal(before[key], value) for key, value in actor.reference.state_dict().items())


@pytest.mark.parametrize("noised", MODES)
def test_more_noise_is_no_way_to_come_nearer(make_policy: Make, noised: str):
    actor = build(make_policy, "rectified", 2, noised)
    observation, chain = see(), draw(actor)
    reference = actor.reference_mean(observation, chain) + 0.1
    kl_to_reference(actor.evaluate(observation, chain), reference).backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in actor.net.parameters())
    assert all(p.grad is None or not p.grad.any() for p in actor.noise.parameters())
