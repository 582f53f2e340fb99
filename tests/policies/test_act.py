"""ACT: the loss by hand, what the style is for, padding that nobody attends to, and that it learns two ways."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from policies.kinds.act import ActPolicy
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import ActConfig, NetworkConfig
from policies.storage.checkpoint import load_policy, save_policy
from robolearn.core import ArraySpec, BadInput, Interface

INTERFACE = Interface(
    {"proprio": ArraySpec((3,)), "images.front": ArraySpec((16, 16, 3), "uint8")}, ArraySpec((2,)), control_hz=20.0
)
VECTOR = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), control_hz=20.0)
NETWORK = NetworkConfig("transformer", width=32, heads=2, depth=1)
SMALL = {"network": NETWORK, "latent": 4, "horizon": 6, "execute": 3}


def make(interface: Interface = VECTOR, **settings) -> ActPolicy:
    torch.manual_seed(0)
    return ActPolicy(ActConfig(**(SMALL | settings)), interface)


def batch(n: int = 8) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    pad = torch.zeros(n, 6, dtype=torch.bool)
    pad[: n // 2, 4:] = True
    return (
        {"proprio": torch.randn(n, 3, generator=generator)},
        torch.rand(n, 6, 2, generator=generator) * 2 - 1,
        pad,
    )


def test_the_loss_is_l1_and_the_divergence_from_a_standard_normal() -> None:
    policy = make(kl_weight=3.0)
    observation, action, pad = batch()
    loss, parts = policy.loss(observation, action, pad, torch.Generator().manual_seed(2))
    cond = policy.encode(observation)
    mean, log_variance = policy.posterior(action, pad, cond)
    posterior = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    kl = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum(1).mean()
    z = mean + posterior.scale * torch.randn(mean.shape, generator=torch.Generator().manual_seed(2))
    error = (policy.decode(z, cond) - action).abs().mean(2)[~pad].mean()
    assert float(parts["kl"]) == pytest.approx(float(kl.detach()), rel=1e-4)
    assert float(loss.detach()) == pytest.approx(float((error + 3.0 * kl).detach()), rel=1e-4)


def test_nobody_looks_at_padded_actions() -> None:
    policy = make()
    observation, action, pad = batch()
    other = action.clone()
    other[pad] = -other[pad] + 0.3
    cond = policy.encode(observation)
    for a, b in zip(policy.posterior(action, pad, cond), policy.posterior(other, pad, cond), strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.allclose(policy.posterior(action, None, cond)[0], policy.posterior(other, None, cond)[0])


@pytest.mark.long
def test_the_style_tells_two_demonstrators_apart_and_zero_lies_between() -> None:
    """Half of the demonstrations go left, half right, from the same observation: only z can say which."""
    policy = make(kl_weight=0.01)
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    side = torch.where(torch.arange(64) % 2 == 0, 0.8, -0.8)
    observation, action = {"proprio": torch.zeros(64, 3)}, side[:, None, None].expand(64, 6, 2).contiguous()
    for step in range(150):
        loss, parts = policy.loss(observation, action, None, torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(parts["loss_l1"]) < 0.15 and float(parts["kl"]) > 0.9 * math.log(2.0)  # one bit, at least
    cond = policy.encode(observation)
    mean, _ = policy.posterior(action, None, cond)
    decoded = policy.decode(mean, cond)
    assert ((decoded.mean((1, 2)) > 0) == (side > 0)).all()


def test_it_acts_with_style_zero_and_survives_a_checkpoint(tmp_path) -> None:
    policy = ChunkPolicy(make(INTERFACE), Normalizer(INTERFACE), INTERFACE).eval()
    rng = np.random.default_rng(0)
    seen = {
        "proprio": rng.standard_normal((3, 3)).astype(np.float32),
        "images.front": rng.integers(0, 256, (3, 16, 16, 3), dtype=np.uint8),
    }
    policy.reset(0)
    chunk = policy.act(seen)
    policy.reset(5)
    np.testing.assert_array_equal(policy.act(seen), chunk)
    assert chunk.shape == (3, 6, 2) and policy.execute_steps == 3
    save_policy(policy, tmp_path / "policy")
    np.testing.assert_allclose(load_policy(tmp_path / "policy", "cpu").act(seen), chunk, atol=1e-6)


@pytest.mark.parametrize("settings", [{"network": NetworkConfig()}, {"latent": 0}, {"kl_weight": -1.0}, {"execute": 7}])
def test_bad_settings(settings) -> None:
    with pytest.raises(BadInput):
        ActConfig(**(SMALL | settings))
