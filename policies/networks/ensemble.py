"""E multilayer perceptrons with normalised layers, evaluated side by side: one batched product a layer.

    layer norm    h ← φ(γ · LN(drop(W h + b)) + β)                LN over the units of one sample
    batch norm    h ← φ(γ · BN(drop(W h + b)) + β),  x ← BN(x)    BN over the samples, of each member by itself
    batch renorm  BN(h) · r + d,  r = σ_batch / σ_running,  d = (μ_batch − μ_running) / σ_running, both constants

LayerNorm bounds the values of actions that were never taken (RLPD, Ball et al. 2023), the spread of an ensemble
measures the uncertainty there. Dropout before the norm is that of DroQ (Hiraoka et al. 2022), batch norm that of CrossQ
(Bhatt et al. 2024), whose code goes over to batch renormalisation (Ioffe 2017) once the running statistics mean
something: r is cut to 1/3 … 3, d to ±5.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPSILON = 1e-5  # added to variances
MOST_R, MOST_D = 3.0, 5.0  # of batch renormalisation
MOMENTUM = 0.01  # share of a batch's statistics that goes into the running ones


class Dropout:
    """Inverted dropout whose masks come from a generator of one's own, so that a resumed run draws the same ones."""

    def __init__(self, rate: float, generator: torch.Generator) -> None:
        self.rate, self._generator = rate, generator

    def __call__(self, h: Tensor) -> Tensor:
        """h ⊙ m / (1 − p),  m ~ Bernoulli(1 − p) of each entry."""
        if self.rate == 0.0:
            return h
        kept = torch.rand(h.shape, generator=self._generator, device=h.device) >= self.rate
        return h * kept / (1.0 - self.rate)


class EnsembleMlp(nn.Module):
    """`members` networks  x → W_d φ(LN(W_{d-1} … φ(LN(W_1 x)))),  φ = ReLU, each with weights of its own. `batch_norm`:
    batch norm in the place of LayerNorm, and of the inputs."""

    def __init__(
        self, members: int, inputs: int, outputs: int, *, width: int = 256, depth: int = 3, batch_norm: bool = False
    ) -> None:
        super().__init__()
        sizes = [inputs, *[width] * depth, outputs]
        self.members, self.outputs, self.batch_norm = members, outputs, batch_norm
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        self.scales, self.shifts = nn.ParameterList(), nn.ParameterList()
        for layer, (before, after) in enumerate(itertools.pairwise(sizes)):
            weight = torch.empty(members, before, after)
            for member in weight:
                # An output near zero: a random initial value takes long to wash out of slow targets.
                nn.init.orthogonal_(member, gain=math.sqrt(2.0) if layer < depth else 0.01)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(members, 1, after)))
            if layer < depth:
                self.scales.append(nn.Parameter(torch.ones(members, 1, after)))
                self.shifts.append(nn.Parameter(torch.zeros(members, 1, after)))
            if batch_norm and layer < depth:  # of what goes into layer 0, then of what comes out of each hidden one
                for name, size in (("in", before),) * (layer == 0) + ((f"{layer}", after),):
                    self.register_buffer(f"mean_{name}", torch.zeros(members, 1, size))
                    self.register_buffer(f"variance_{name}", torch.ones(members, 1, size))

    def forward(
        self, x: Tensor, members: Tensor | None = None, *, drop: Dropout | None = None, over_batch: bool = False,
        renorm: bool = False,
    ) -> Tensor:  # fmt: skip
        """(B, inputs) → (E, B, outputs), or (M, B, outputs) of the `members` (M,) alone.

        Args:
          drop: of hidden units; none where nothing is learned.
          over_batch: normalise by this batch's statistics and let the running ones follow; needs all members.
          renorm: with `over_batch`, renormalise: values are those of the running statistics, gradients the batch's.
        """

        def of_members(parameter: Tensor) -> Tensor:
            return parameter if members is None else parameter[members]

        def normal(h: Tensor, name: str) -> Tensor:
            if not self.batch_norm:
                return F.layer_norm(h, h.shape[-1:], eps=EPSILON)
            mean, variance = self.get_buffer(f"mean_{name}"), self.get_buffer(f"variance_{name}")
            if over_batch:
                # BN(h) = (h − E_b h) / √(Var_b h + ε)
                now, spread = h.mean(1, keepdim=True), h.var(1, keepdim=True, correction=0)
                out = (h - now) * torch.rsqrt(spread + EPSILON)
                if renorm:
                    scale = torch.rsqrt(variance + EPSILON)
                    r = ((spread.detach() + EPSILON).sqrt() * scale).clamp(1 / MOST_R, MOST_R)
                    d = ((now.detach() - mean) * scale).clamp(-MOST_D, MOST_D)
                    out = out * r + d
                mean.lerp_(now.detach(), MOMENTUM)
                variance.lerp_(spread.detach(), MOMENTUM)
                return out
            return (h - of_members(mean)) * torch.rsqrt(of_members(variance) + EPSILON)

        h = x.expand(self.members if members is None else len(members), *x.shape)
        h = normal(h, "in") if self.batch_norm else h
        layers = zip(self.weights, self.biases, self.scales, self.shifts, strict=False)
        for layer, (weight, bias, scale, shift) in enumerate(layers):
            h = torch.baddbmm(of_members(bias), h, of_members(weight))
            h = h if drop is None else drop(h)
            h = F.relu(torch.addcmul(of_members(shift), normal(h, str(layer)), of_members(scale)))
        return torch.baddbmm(of_members(self.biases[-1]), h, of_members(self.weights[-1]))


def evaluate(
    net: EnsembleMlp, features: Tensor, actions: Tensor, members: Tensor | None = None, drop: Dropout | None = None
) -> Tensor:
    """(B, F) and (B, C, D) → (E, B, C) what each critic says of each of C actions."""
    count, among = actions.shape[:2]
    pairs = torch.cat((features[:, None].expand(-1, among, -1), actions), -1).flatten(0, 1)
    return net(pairs, members, drop=drop).view(-1, count, among)
