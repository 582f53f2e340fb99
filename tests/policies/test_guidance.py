"""Guidance by a goal: its formula, what training drops, one likelihood with the sampler, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from policies.kinds.chunk_net import guided
from policies.settings import ActConfig, DiffusionConfig, FlowConfig, NetworkConfig, RegressionConfig
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.rl.actors import DenoisingActor, NoiseConfig

PLAIN = Interface({"proprio": ArraySpec((3,)), "objects": ArraySpec((2,))}, ArraySpec((2,)), control_hz=20.0)
AIMED = PLAIN.aiming(("objects",), what="test")
NET = NetworkConfig(width=32, depth=2)
NOISE = NoiseConfig(sigma_min=0.1, sigma_max=0.2, steps="all")
FLOW, DIFFUSION = FlowConfig(network=NET, steps=3), DiffusionConfig(network=NET, steps=3)
CONFIGS: dict[str, Any] = {
    "flow": FLOW,
    "unet": FlowConfig(network=NetworkConfig(kind="unet1d", channels=(8, 16)), steps=2),
    "transformer": FlowConfig(network=NetworkConfig(kind="transformer", width=16, depth=1, heads=2), steps=2),
    "epsilon": DIFFUSION,
    "velocity": replace(DIFFUSION, prediction="v_prediction"),
    "ddpm": replace(DIFFUSION, eta=1.0),
}


def made(config: Any, interface: Interface = AIMED) -> Any:
    torch.manual_seed(0)
    net: Any = config.build(interface)
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(1.5)  # untrained outputs are near zero
    return net.eval()


def seen(n: int = 4, interface: Interface = AIMED) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {key: torch.randn((n, *s.shape), generator=generator) for key, s in interface.observation.items()}


def noise(net: Any, n: int = 4) -> torch.Tensor:
    return torch.randn(n, *net.noise_shape, generator=torch.Generator().manual_seed(2))


def at(net: Any, w: float) -> Any:
    return net.with_config(replace(net.config, guidance=w))


@pytest.mark.parametrize("kind", CONFIGS)
def test_one_is_the_conditional_sampler_bit_for_bit_and_zero_the_one_without_a_goal(kind: str) -> None:
    net, observation = made(CONFIGS[kind]), seen()
    x0, cond = noise(net), net.encode(observation)
    unguided = made(CONFIGS[kind])
    unguided.goal = None  # as a policy that knows of no guidance
    torch.testing.assert_close(at(net, 1.0).sample(cond, x0), unguided.sample(cond, x0), rtol=0, atol=0)
    free = at(net, 0.0).sample(cond, x0)
    torch.testing.assert_close(free, unguided.sample(net.goal.without(cond), x0), rtol=0, atol=1e-5)
    other = seen() | {"goal.objects": torch.full((4, 2), 3.0)}
    torch.testing.assert_close(free, at(net, 0.0).sample(net.encode(other), x0), rtol=0, atol=0)
    assert (at(net, 1.0).sample(cond, x0) - at(net, 1.0).sample(net.encode(other), x0)).abs().max() > 0.01


def test_the_velocity_is_extrapolated_from_the_one_without_a_goal() -> None:
    """One Euler step, by hand: x + v_∅ + w (v_g − v_∅)."""
    net, observation = made(replace(FLOW, steps=1)), seen()
    x0, cond, tau = 0.1 * noise(net), net.encode(observation), torch.zeros(4)
    nothing = cond.clone()
    nothing[:, : AIMED.observation["goal.objects"].size] = net.goal.nothing[:2]  # goals sort before the rest
    free, conditional = net.velocity(x0, tau, nothing), net.velocity(x0, tau, cond)
    for w in (0.5, 2.0, 3.5):
        wanted = (x0 + free + w * (conditional - free)).clamp(-1, 1)
        torch.testing.assert_close(at(net, w).sample(cond, x0), wanted, rtol=0, atol=1e-5)
    assert (free - conditional).abs().max() > 0.05


@pytest.mark.parametrize("kind", [name for name in CONFIGS if name != "ddpm"])
def test_the_steps_of_a_likelihood_are_those_of_the_guided_sampler(kind: str) -> None:
    net, observation = at(made(CONFIGS[kind]), 2.5), seen()
    x = noise(net)
    cond = net.encode(observation)
    wanted = net.sample(cond, x)
    for k in range(net.config.steps):
        x = net.denoise(x, k, cond)
    torch.testing.assert_close(x.clamp(-1, 1), wanted, rtol=0, atol=1e-5)


def test_the_likelihood_of_a_guided_chain_is_that_of_its_own_steps() -> None:
    net = at(made(FLOW), 2.0)
    actor = DenoisingActor(net, NOISE)
    chain = actor.sample(seen(), torch.Generator().manual_seed(3))
    stats = actor.evaluate(seen(), chain)
    cond, total = net.encode(seen()), torch.zeros(4)
    for k in range(net.config.steps):
        mean = net.denoise(chain[:, k].reshape(4, 4, 2), k, cond).flatten(1)
        sigma = stats.log_sigma[:, k].exp()
        total += torch.distributions.Normal(mean, sigma).log_prob(chain[:, k + 1]).sum(1)
    torch.testing.assert_close(stats.log_prob.sum(1), total, rtol=1e-5, atol=1e-4)
    plain = DenoisingActor(at(net, 1.0), NOISE).evaluate(seen(), chain)
    assert (plain.mean - stats.mean).abs().max() > 0.01  # the guidance is in it


@pytest.mark.parametrize("config", [FLOW, replace(FLOW, kind="shortcut"), DIFFUSION], ids=["flow", "shortcut", "ddim"])
def test_training_drops_the_goal_of_a_share_of_the_batch(config: Any) -> None:
    net = made(replace(config, goal_dropout=0.3))
    action = torch.rand(400, 4, 2) - 0.5
    draws = net.draw(action, torch.Generator().manual_seed(4))
    assert 0.2 < draws["dropped"].float().mean() < 0.4
    observation = seen(400)
    before = net.errors(observation, action, draws, None)
    changed = observation | {"goal.objects": observation["goal.objects"] + 1.0}
    moved = (net.errors(changed, action, draws, None) - before).abs().amax(1) > 1e-6
    torch.testing.assert_close(moved, ~draws["dropped"])  # who lost the goal does not see that it is another one
    never = made(replace(config, goal_dropout=0.0))
    assert not never.draw(action, torch.Generator().manual_seed(4))["dropped"].any()


def test_a_policy_without_goals_draws_and_weighs_what_it_always_did() -> None:
    net = made(FLOW, PLAIN)
    assert net.goal is None and not any("goal" in key for key in net.state_dict())
    assert set(net.draw(torch.zeros(3, 4, 2), torch.Generator().manual_seed(0))) == {"x0", "tau"}


@pytest.mark.parametrize(("config", "interface", "message"), [
    (replace(FLOW, guidance=2.0), PLAIN, "--guidance: got 2 of a policy without a goal, expected 1"),
    (replace(DIFFUSION, guidance=2.0), PLAIN, "--guidance: got 2 of a policy without a goal, expected 1"),
    (replace(FLOW, guidance=2.0, goal_dropout=0.0), AIMED, "got 2 of a policy that never went without its goal"),
    (FlowConfig("shortcut", guidance=1.5), AIMED, "got 1.5 of a shortcut model, expected 1, or --flow rectified"),
])  # fmt: skip
def test_guidance_that_cannot_be(config: Any, interface: Interface, message: str) -> None:
    with pytest.raises(BadInput) as error:
        config.build(interface)
    assert message in str(error.value) and "\n" not in str(error.value)
    net: Any = replace(config, guidance=1.0).build(interface)
    with pytest.raises(BadInput):
        net.with_config(config)  # nor may a trained one be sampled so


def test_settings_out_of_range() -> None:
    for settings, message in (({"guidance": -1.0}, "--guidance: got -1.0"), ({"guidance": float("nan")}, "--guidance"),
                              ({"goal_dropout": 1.0}, "--goal-dropout: got 1.0")):  # fmt: skip
        for kind in (FlowConfig, DiffusionConfig):
            with pytest.raises(BadInput, match=message):
                kind(**settings)


@pytest.mark.parametrize("config", [RegressionConfig(network=NET), ActConfig(
    network=NetworkConfig("transformer", width=16, depth=1, heads=2))], ids=["regression", "act"])  # fmt: skip
def test_other_kinds_are_told_goals_too(config: Any) -> None:
    net = made(config)
    there = seen() | {"goal.objects": torch.full((4, 2), 2.0)}
    x0 = torch.zeros(4, *net.noise_shape)
    assert (net.sample(net.encode(seen()), x0) - net.sample(net.encode(there), x0)).abs().max() > 1e-3


def test_guided_asks_the_field_once() -> None:
    net, calls = made(FLOW), []

    def field(x: torch.Tensor, embedding: torch.Tensor, cond: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        return net.field(x, embedding, cond)

    cond = net.encode(seen())
    guided(field, net.goal, 2.0, noise(net), net.embed(torch.zeros(4)), cond)
    guided(field, net.goal, 1.0, noise(net), net.embed(torch.zeros(4)), cond)
    assert calls == [8, 4]
