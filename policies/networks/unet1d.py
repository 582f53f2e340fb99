"""A conditional 1-D U-Net over (Tp, Da) with FiLM (Diffusion Policy, Chi et al. 2023; FiLM, Perez et al. 2018)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from policies.networks.mlp import ACTIVATIONS


class FilmBlock(nn.Module):
    """Two convolutions; the condition scales and shifts every channel between them.

    h = φ(norm(conv x)),  h ← (1 + a(c)) h + b(c),  y = φ(norm(conv h)) + skip(x)
    """

    def __init__(self, inputs: int, outputs: int, cond: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        groups = next(g for g in (8, 4, 2, 1) if outputs % g == 0)
        self.conv1, self.norm1 = nn.Conv1d(inputs, outputs, 3, padding=1), nn.GroupNorm(groups, outputs)
        self.conv2, self.norm2 = nn.Conv1d(outputs, outputs, 3, padding=1), nn.GroupNorm(groups, outputs)
        self.film = nn.Linear(cond, 2 * outputs)
        self.skip = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, cond: Tensor) -> Tensor:
        """x (B, inputs, T), cond (B, cond) → (B, outputs, T)."""
        scale, shift = self.film(self.activation(cond))[..., None].chunk(2, dim=1)
        h = self.activation(self.norm1(self.conv1(x)))
        h = h * (1.0 + scale) + shift
        return self.activation(self.norm2(self.conv2(h))) + self.skip(x)


class UNet1dField(nn.Module):
    """A vector field over action chunks: (chunk, time embedding, condition) → chunk.

    Time runs along the convolution; each level below the first halves it. A horizon that cannot be halved
    often enough is padded by repeating its last step, and cropped at the end.
    """

    def __init__(
        self, action_dim: int, embedding: int, cond: int, *, channels: tuple[int, ...], activation: str
    ) -> None:
        super().__init__()
        act = ACTIVATIONS[activation]
        c = embedding + cond
        self.multiple = 2 ** (len(channels) - 1)
        self.enter = nn.Conv1d(action_dim, channels[0], 1)
        self.down = nn.ModuleList(
            FilmBlock(a, b, c, act) for a, b in zip((channels[0], *channels[:-1]), channels, strict=True)
        )
        self.shrink = nn.ModuleList(nn.Conv1d(a, a, 3, stride=2, padding=1) for a in channels[:-1])
        self.middle = FilmBlock(channels[-1], channels[-1], c, act)
        self.grow = nn.ModuleList(
            nn.ConvTranspose1d(b, a, 4, stride=2, padding=1) for a, b in itertools.pairwise(channels)
        )
        self.up = nn.ModuleList(FilmBlock(2 * a, a, c, act) for a in channels[:-1])
        self.leave = nn.Conv1d(channels[0], action_dim, 1)

    def forward(self, x: Tensor, embedding: Tensor, cond: Tensor) -> Tensor:
        """x (B, Tp, Da), embedding (B, E), cond (B, C) → (B, Tp, Da)."""
        c = torch.cat((embedding, cond), dim=1)
        horizon = x.shape[1]
        h = x.transpose(1, 2)
        if horizon % self.multiple:
            h = F.pad(h, (0, self.multiple - horizon % self.multiple), mode="replicate")
        h = self.enter(h)
        skips: list[Tensor] = []
        for level, block in enumerate(self.down):
            h = block(h, c)
            if level < len(self.shrink):
                skips.append(h)
                h = self.shrink[level](h)
        h = self.middle(h, c)
        for level in reversed(range(len(self.up))):
            h = self.up[level](torch.cat((self.grow[level](h), skips[level]), dim=1), c)
        return self.leave(h)[..., :horizon].transpose(1, 2)
