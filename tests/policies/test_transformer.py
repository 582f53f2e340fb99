"""The transformer over chunks: causal among actions, free towards what is observed, tokens of the right features."""

from __future__ import annotations

import pytest
import torch

from policies.kinds.flow import FlowPolicy
from policies.networks.field import ConditionTokens, TransformerField
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, BadInput, Interface

INTERFACE = Interface({"objects": ArraySpec((2,)), "proprio": ArraySpec((3,))}, ArraySpec((2,)), control_hz=20.0)


def field() -> TransformerField:
    torch.manual_seed(0)
    return TransformerField(5, 2, 8, [(2, 3), (2, 4)], width=16, depth=2, heads=4)


def test_an_action_depends_on_earlier_actions_time_and_all_that_is_observed() -> None:
    net = field().double()
    generator = torch.Generator().manual_seed(0)
    x, tau, cond = (torch.randn(1, *shape, generator=generator).double() for shape in ((5, 2), (8,), (14,)))

    def of(x, tau, cond):
        return net(x[None], tau[None], cond[None])[0]

    dx, dtau, dcond = torch.autograd.functional.jacobian(of, (x[0], tau[0], cond[0]))
    moved = dx.abs().sum((1, 3)) > 1e-12  # (action out, action in)
    assert torch.equal(moved, torch.ones(5, 5, dtype=torch.bool).tril())
    assert (dtau.abs().sum(1) > 1e-12).all() and (dcond.abs().sum(1) > 1e-12).all()


def test_tokens_are_features_step_by_step() -> None:
    tokens = ConditionTokens([(2, 3), (1, 4)], 6)
    cond = torch.arange(10.0)[None]
    found = tokens(cond)[0] - tokens.positions
    for row, (layer, part) in enumerate([(0, [0, 1, 2]), (0, [3, 4, 5]), (1, [6, 7, 8, 9])]):
        torch.testing.assert_close(found[row], tokens.inputs[layer](torch.tensor(part, dtype=torch.float32)))


@pytest.mark.long
def test_a_flow_learns_with_it_what_depends_on_the_last_of_two_observed_steps() -> None:
    torch.manual_seed(0)
    network = NetworkConfig(kind="transformer", width=32, depth=1, heads=2)
    policy = FlowPolicy(FlowConfig(observe=2, network=network), INTERFACE)
    generator = torch.Generator().manual_seed(0)
    seen = {
        "objects": torch.randn(128, 2, 2, generator=generator),
        "proprio": torch.randn(128, 2, 3, generator=generator),
    }
    action = torch.tanh(seen["objects"][:, 1:, :] - seen["objects"][:, :1, :]).expand(-1, 4, -1).contiguous()
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    for step in range(300):
        loss, _ = policy.loss(seen, action, None, torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        error = (policy.sample(policy.encode(seen), torch.zeros(128, 4, 2)) - action).abs().mean()
    assert error < 0.12, error


@pytest.mark.parametrize("heads", [0, 3])
def test_heads_divide_the_width(heads: int) -> None:
    with pytest.raises(BadInput, match="heads"):
        NetworkConfig(kind="transformer", width=32, heads=heads)
