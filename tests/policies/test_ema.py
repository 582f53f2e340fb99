"""The moving average against its formula, written out here, and against a copy that was saved and loaded."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from policies.networks.ema import Ema


class Net(nn.Module):
    """Two layers of different types, a frozen parameter and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 3).double()
        self.scale = nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("steps", torch.zeros(2))

    @torch.no_grad()
    def train_a_little(self, generator: torch.Generator) -> None:
        for parameter in self.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        self.steps += 1


def test_two_updates_by_hand() -> None:
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.data.fill_(1.0)
    ema = Ema(layer, 0.25)
    for value in (2.0, 3.0):
        layer.weight.data.fill_(value)
        ema.update(layer)
    # β₁ = min(1/4, 2/11) = 2/11: 1 → 2/11·1 + 9/11·2 = 20/11;  β₂ = min(1/4, 3/12) = 1/4: 5/11 + 9/4
    assert ema.module.weight.item() == pytest.approx(5 / 11 + 9 / 4)
    assert not ema.module.weight.requires_grad and layer.weight.requires_grad


@pytest.mark.parametrize("decay", [0.0, 0.6, 0.995])
def test_the_weights_are_bit_for_bit_those_of_the_formula(decay: float) -> None:
    torch.manual_seed(0)
    net, generator = Net(), torch.Generator().manual_seed(1)
    ema, mean = Ema(net, decay), copy.deepcopy(net)
    for n in range(1, 41):
        net.train_a_little(generator)
        ema.update(net)
        with torch.no_grad():
            for mine, theirs in zip(mean.parameters(), net.parameters(), strict=True):
                mine.lerp_(theirs, 1.0 - min(decay, (1 + n) / (10 + n)))
        mean.steps.copy_(net.steps)
    assert ema.updates == 40
    assert all(torch.equal(a, b) for a, b in zip(ema.module.parameters(), mean.parameters(), strict=True))
    assert torch.equal(ema.module.steps, net.steps) and ema.module.steps is not net.steps


def test_an_average_goes_on_exactly_from_its_weights_and_its_count() -> None:
    torch.manual_seed(0)
    net, generator = Net(), torch.Generator().manual_seed(1)
    whole = Ema(net, 0.995)
    for _ in range(3):
        net.train_a_little(generator)
        whole.update(net)
    again = Ema(Net(), 0.995)
    again.module.load_state_dict(copy.deepcopy(whole.module.state_dict()))
    again.updates = whole.updates
    for _ in range(3):
        net.train_a_little(generator)
        whole.update(net)
        again.update(net)
    assert all(torch.equal(a, b) for a, b in zip(whole.module.parameters(), again.module.parameters(), strict=True))
