"""A number beside the observation in the condition of a policy: given in training, of the policy's own when it acts.

    condition = [o, i]            in training i = ∅ with the dropout of goals: `policies.kinds.chunk_net`
    advantage                     i = 1: what was done then was good, −1: it was not; the policy acts with 1
    balance                       i from −1, as all was done, to 1, as the best; acts with i(o) = tanh f(o)

A policy has one where `INDICATOR` stands in the `extra` of its interface. It is made of a trained policy, with weights
of 0 for the new component: a network whose condition goes into a linear layer (MLP, U-Net) begins as the trained one.
Of a transformer the number is a token of its own, which is attended to from the beginning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from policies.policy import ChunkPolicy
from robolearn.core import Interface, look_up

INDICATOR = "indicator"  # of an interface's extra
WIDTH = 64  # units of a balance


class Good(nn.Module):
    """i = 1, whatever is observed."""

    def __init__(self, size: int) -> None:
        super().__init__()

    def forward(self, seen: Tensor) -> Tensor:
        """The encoded observation (B, C) → (B, 1)."""
        return torch.ones_like(seen[:, :1])


class Balance(nn.Module):
    """i(o) = tanh f(o), 0 to begin with."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size, WIDTH), nn.LayerNorm(WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))
        for parameter in self.net[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, seen: Tensor) -> Tensor:
        """The encoded observation (B, C) → (B, 1)."""
        return self.net(seen).tanh()


INDICATORS: dict[str, type[nn.Module]] = {"advantage": Good, "balance": Balance}


def indicator_of(interface: Interface, size: int) -> nn.Module | None:
    """The number of a policy with this interface when it acts, from `size` encoded components; None without one. Raises
    `BadInput`: an indicator that there is not."""
    name = interface.extra.get(INDICATOR)
    if name is None:
        return None
    return look_up(f"policy: {INDICATOR}", name, INDICATORS)(size)


def with_indicator(policy: ChunkPolicy, name: str, **settings: Any) -> ChunkPolicy:
    """A copy of `policy` that takes the indicator `name`, with other `settings` of its kind. Fresh weights are those of
    the indicator alone, from torch's global generator."""
    interface = replace(policy.interface, extra={**policy.interface.extra, INDICATOR: name})
    net = replace(policy.net.config, **settings).build(interface)
    trained, own = policy.net.state_dict(), net.state_dict()
    for key, value in own.items():
        if key.startswith("indicator.") and key not in trained:
            continue
        value.zero_()
        if key in trained:  # the new component is the last one of the condition
            value[tuple(slice(0, size) for size in trained[key].shape)] = trained[key]
    net.load_state_dict(own)
    return ChunkPolicy(net.to(policy.device), policy.normalizer, interface).train(policy.training)
