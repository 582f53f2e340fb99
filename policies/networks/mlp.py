"""A residual MLP over flat action chunks: the network of ReinFlow and DPPO for vector observations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "mish": F.mish,
    "relu": F.relu,
    "tanh": torch.tanh,
}


class ResidualMlp(nn.Module):
    """One input layer and `depth` − 1 residual layers of `width` units, then a linear output.

    h₁ = φ(W₁ x),  h_{l+1} = h_l + φ(W_{l+1} norm(h_l)),  y = W h_depth

    Few and plain operations on purpose: at batches of 64–500 on one CPU thread the overhead of an operation
    is of the size of the arithmetic. Serves as the velocity network, and as a critic with `outputs` = 1.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int = 256,
        depth: int = 3,
        activation: str = "silu",
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.first = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth - 1))
        self.norms = nn.ModuleList(nn.LayerNorm(width) if norm else nn.Identity() for _ in range(depth - 1))
        self.last = nn.Linear(width, outputs)
        # He et al. 2015: hidden layers keep the scale of their input, which torch's own initialisation shrinks
        # layer by layer; an output near zero is a good first guess.
        for layer in [self.first, *self.layers]:
            assert isinstance(layer, nn.Linear)
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        nn.init.xavier_uniform_(self.last.weight, gain=0.1)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs) → (B, outputs)."""
        h = self.activation(self.first(x))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = h + self.activation(layer(norm(h)))
        return self.last(h)


class MlpField(nn.Module):
    """A vector field over action chunks: (chunk, time embedding, condition) → chunk."""

    def __init__(
        self,
        horizon: int,
        action_dim: int,
        embedding: int,
        cond: int,
        *,
        width: int,
        depth: int,
        activation: str,
        norm: bool,
    ) -> None:
        super().__init__()
        flat = horizon * action_dim
        self.mlp = ResidualMlp(
            flat + embedding + cond, flat, width=width, depth=depth, activation=activation, norm=norm
        )

    def forward(self, x: Tensor, embedding: Tensor, cond: Tensor) -> Tensor:
        """x (B, Tp, Da), embedding (B, E), cond (B, C) → (B, Tp, Da)."""
        return self.mlp(torch.cat((x.flatten(1), embedding, cond), dim=1)).view_as(x)
