"""A policy with an indicator: it begins as what it was made of, acts as if all were good, and is guided to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.kinds.indicator import with_indicator
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import DiffusionConfig, FlowConfig, NetworkConfig
from policies.storage.checkpoint import load_policy, save_policy
from robolearn.core import ArraySpec, BadInput, Interface

SEEN = Interface({"proprio": ArraySpec((3,)), "objects": ArraySpec((2,))}, ArraySpec((2,)), control_hz=20.0)
NET = NetworkConfig(width=32, depth=2)
CONFIGS: dict[str, Any] = {
    "flow": FlowConfig(network=NET, steps=3),
    "shortcut": FlowConfig("shortcut", network=NET),
    "unet": FlowConfig(network=NetworkConfig(kind="unet1d", channels=(8, 16)), steps=2),
    "diffusion": DiffusionConfig(network=NET, steps=3),
}


def trained(config: Any) -> ChunkPolicy:
    torch.manual_seed(0)
    net = config.build(SEEN)
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(1.5)  # untrained outputs are near zero
    return ChunkPolicy(net, Normalizer(SEEN), SEEN).eval()


def indicated(name: str = "flow", **settings: Any) -> Any:
    """One whose indicator changes what is done."""
    policy = with_indicator(trained(CONFIGS[name]), "advantage", **settings)
    with torch.no_grad():
        policy.net.field.mlp.first.weight[:, -1] = 1.0
        policy.net.goal.nothing[-1] = 0.25
    return policy


def seen(n: int = 6) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {key: torch.randn((n, *spec.shape), generator=generator) for key, spec in SEEN.observation.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_it_begins_as_the_trained_policy(name: str) -> None:
    base = trained(CONFIGS[name])
    before = {key: value.clone() for key, value in base.state_dict().items()}
    made = with_indicator(base, "advantage", goal_dropout=0.3)
    noise = torch.randn(6, *base.noise.shape)
    torch.testing.assert_close(made.decide(seen(), noise), base.decide(seen(), noise))
    again = with_indicator(made, "advantage")
    torch.testing.assert_close(again.decide(seen(), noise), base.decide(seen(), noise))
    with torch.no_grad():
        for weight in made.net.parameters():
            weight.add_(1.0)
    assert all(torch.equal(value, before[key]) for key, value in base.state_dict().items())
    assert base.net.indicator is None and "indicator" not in base.interface.extra


def test_a_transformer_keeps_the_weights_that_it_had() -> None:
    base = trained(FlowConfig(network=NetworkConfig(kind="transformer", width=16, depth=1, heads=2), steps=2))
    made = with_indicator(base, "advantage")
    noise = torch.randn(6, *base.noise.shape)
    assert torch.isfinite(made.decide(seen(), noise)).all()
    own = made.net.state_dict()
    for key, value in base.net.state_dict().items():
        assert torch.equal(own[key][tuple(slice(0, n) for n in value.shape)], value), key


def test_the_condition_ends_with_what_is_given_or_one_or_nothing() -> None:
    net = indicated().net
    plain = net.encoder(seen())
    assert torch.equal(net.encode(seen()), torch.cat((plain, torch.ones(6, 1)), 1))
    given = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    dropped = torch.tensor([False, False, True, True, False, False])
    wanted = torch.tensor([1.0, -1.0, 0.25, 0.25, 1.0, -1.0])
    found = net.condition(seen(), {"indicator": given, "dropped": dropped})
    assert torch.equal(found, torch.cat((plain, wanted[:, None]), 1))
    assert torch.equal(net.condition(seen(), {"dropped": ~dropped})[:, -1] == 0.25, ~dropped)


def test_guidance_goes_further_from_what_is_done_without_it() -> None:
    """One Euler step, by hand: x + v_∅ + w (v_1 − v_∅)."""
    net = indicated().sampling(steps=1).net
    x0, plain, tau = 0.1 * torch.randn(6, *net.noise_shape), net.encoder(seen()), torch.zeros(6)
    free, good = (net.velocity(x0, tau, torch.cat((plain, torch.full((6, 1), each)), 1)) for each in (0.25, 1.0))
    for w in (0.5, 1.0, 3.0):
        guided = net.with_config(replace(net.config, guidance=w))
        wanted = (x0 + free + w * (good - free)).clamp(-1, 1)
        torch.testing.assert_close(guided.sample(guided.encode(seen()), x0), wanted, rtol=0, atol=1e-5)
    assert (free - good).abs().max() > 0.05


@pytest.mark.parametrize("name", ["flow", "diffusion"])
def test_it_is_stored_with_its_indicator(name: str, tmp_path: Path) -> None:
    policy = indicated(name, guidance=2.0)
    again = load_policy(save_policy(policy, tmp_path / "policy"))
    observation = {key: value.numpy() for key, value in seen().items()}
    for one in (policy, again):
        one.reset(3)
    np.testing.assert_array_equal(policy.act(observation), again.act(observation))


def test_indicators_that_cannot_be() -> None:
    with pytest.raises(BadInput, match="policy: indicator: got mood; available: advantage, balance"):
        with_indicator(trained(CONFIGS["flow"]), "mood")
    with pytest.raises(BadInput, match="--guidance: got 2 of a shortcut model"):
        with_indicator(trained(CONFIGS["shortcut"]), "advantage", guidance=2.0)
