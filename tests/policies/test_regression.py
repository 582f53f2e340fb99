"""Regression in one step and in two: losses by hand, what the second step is for, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.kinds.regression import RegressionPolicy
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import NetworkConfig, RegressionConfig
from robolearn.core import ArraySpec, BadInput, Interface

INTERFACE = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), control_hz=20.0)
SMALL = NetworkConfig(width=64, depth=2)


def make(**settings) -> RegressionPolicy:
    torch.manual_seed(0)
    return RegressionPolicy(RegressionConfig(**({"network": SMALL} | settings)), INTERFACE)


def batch(n: int = 16) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    seen = torch.randn(n, 3, generator=generator)
    action = torch.tanh(seen[:, None, :2] * torch.tensor([1.0, -2.0])).repeat(1, 4, 1)
    pad = torch.zeros(n, 4, dtype=torch.bool)
    pad[: n // 2, 3] = True
    return {"proprio": seen}, action, pad


def test_the_loss_is_the_sum_of_both_steps_in_their_units() -> None:
    policy = make(noise=0.2)
    observation, action, pad = batch()
    loss, parts = policy.loss(observation, action, pad, torch.Generator().manual_seed(3))
    # by hand, with the same draw
    noise = torch.randn(action.shape, generator=torch.Generator().manual_seed(3))
    cond = policy.encode(observation)
    first = policy.predict(torch.zeros_like(action), 0, cond) - action
    second = (policy.predict(action + 0.2 * noise, 1, cond) - action) / 0.2
    kept = [(w, t) for w in range(16) for t in range(4) if not pad[w, t]]
    by_hand = sum(float(e[w, t].detach().square().mean()) for e in (first, second) for w, t in kept) / len(kept)
    assert float(loss.detach()) == pytest.approx(by_hand, rel=1e-5)
    assert float(parts["loss_first"] + parts["loss_refined"]) == pytest.approx(by_hand, rel=1e-5)


def test_padded_steps_change_nothing() -> None:
    policy = make()
    observation, action, pad = batch()
    other = action.clone()
    other[pad] = 0.9
    losses = []
    for a in (action, other):
        generator = torch.Generator().manual_seed(3)
        losses.append(make(steps=1).loss(observation, a, pad, generator)[0].item())
    assert losses[0] == losses[1]
    assert policy.loss(observation, other, None, torch.Generator().manual_seed(3))[0].item() != losses[0]


def test_two_steps_refine_the_first_and_one_step_does_not() -> None:
    observation, _, _ = batch()
    two, one = make(), make(steps=1)
    cond = two.encode(observation)
    first = two.predict(torch.zeros(16, 4, 2), 0, cond)
    torch.testing.assert_close(two.sample(cond, torch.zeros(16)), two.predict(first, 1, cond).clamp(-1, 1))
    torch.testing.assert_close(one.sample(cond, torch.zeros(16)), first.clamp(-1, 1))


@pytest.mark.long
def test_it_learns_a_function_and_acts_the_same_whatever_the_seed() -> None:
    policy = make(network=NetworkConfig(width=64, depth=3))
    optimizer = torch.optim.Adam(policy.parameters(), 2e-3)
    observation, action, pad = batch(256)
    for step in range(600):
        loss, _ = policy.loss(observation, action, pad, torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    acting = ChunkPolicy(policy, Normalizer(INTERFACE), INTERFACE)
    seen = {"proprio": observation["proprio"].numpy()}
    acting.reset(0)
    chunk = acting.act(seen)
    assert np.abs(chunk - action.numpy()).mean() < 0.06
    acting.reset(1)
    np.testing.assert_array_equal(acting.act(seen), chunk)


@pytest.mark.parametrize("settings", [{"steps": 3}, {"steps": 0}, {"noise": 0.0}, {"noise": 1.0}, {"execute": 5}])
def test_bad_settings(settings) -> None:
    with pytest.raises(BadInput):
        RegressionConfig(**settings)
