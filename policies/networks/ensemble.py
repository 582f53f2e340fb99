"""E multilayer perceptrons with LayerNorm, evaluated side by side: one batched product a layer.

LayerNorm bounds what a critic can say of actions that nobody has taken (RLPD, Ball et al. 2023), the spread of an
ensemble says how little is known there.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class EnsembleMlp(nn.Module):
    """`members` networks  x → W_d φ(LN(W_{d-1} … φ(LN(W_1 x)))),  φ = ReLU, each with weights of its own."""

    def __init__(self, members: int, inputs: int, outputs: int, *, width: int = 256, depth: int = 3) -> None:
        super().__init__()
        sizes = [inputs, *[width] * depth, outputs]
        self.members, self.outputs = members, outputs
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        self.scales, self.shifts = nn.ParameterList(), nn.ParameterList()
        for layer, (before, after) in enumerate(itertools.pairwise(sizes)):
            weight = torch.empty(members, before, after)
            for member in weight:
                # An output near zero: a value that nobody has measured yet takes long to wash out of slow targets.
                nn.init.orthogonal_(member, gain=math.sqrt(2.0) if layer < depth else 0.01)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(members, 1, after)))
            if layer < depth:
                self.scales.append(nn.Parameter(torch.ones(members, 1, after)))
                self.shifts.append(nn.Parameter(torch.zeros(members, 1, after)))

    def forward(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """(B, inputs) → (E, B, outputs), or (M, B, outputs) of the `members` (M,) alone."""

        def chosen(parameter: Tensor) -> Tensor:
            return parameter if members is None else parameter[members]

        h = x.expand(self.members if members is None else len(members), *x.shape)
        for weight, bias, scale, shift in zip(self.weights, self.biases, self.scales, self.shifts, strict=False):
            h = torch.baddbmm(chosen(bias), h, chosen(weight))
            h = F.relu(torch.addcmul(chosen(shift), F.layer_norm(h, h.shape[-1:]), chosen(scale)))
        return torch.baddbmm(chosen(self.biases[-1]), h, chosen(self.weights[-1]))


def evaluate(net: EnsembleMlp, features: Tensor, actions: Tensor, members: Tensor | None = None) -> Tensor:
    """(B, F) and (B, C, D) → (E, B, C) what each critic says of each of C actions."""
    count, among = actions.shape[:2]
    pairs = torch.cat((features[:, None].expand(-1, among, -1), actions), -1).flatten(0, 1)
    return net(pairs, members).view(-1, count, among)
