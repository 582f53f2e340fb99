"""The networks over action chunks by their names, and the embedding of the time that they take.

A residual MLP over flat chunks, the network of ReinFlow and DPPO for vector observations; a 1-D U-Net with FiLM and a
transformer (Diffusion Policy, Chi et al. 2023; FiLM, Perez et al. 2018). Fourier features: Tancik et al. 2020, "Fourier
Features Let Networks Learn High Frequency Functions".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from policies.settings import NetworkConfig

INITIAL_STD = 0.02  # of learned positions

# torch has a second arithmetic for attention where no gradient is wanted: a likelihood would be computed otherwise than
# what acted.
torch.backends.mha.set_fastpath_enabled(False)


class ConditionTokens(nn.Module):
    """The condition vector of `ObservationEncoder` → one token per feature and observed step. `tokens`:
    `ObservationEncoder.tokens`."""

    def __init__(self, tokens: Sequence[tuple[int, int]], width: int) -> None:
        super().__init__()
        self.tokens = tuple(tokens)
        self.inputs = nn.ModuleList(nn.Linear(size, width) for _, size in self.tokens)
        self.positions = nn.Parameter(INITIAL_STD * torch.randn(sum(steps for steps, _ in self.tokens), width))

    def forward(self, cond: Tensor) -> Tensor:
        """(B, C) → (B, n, width)."""
        parts = cond.split([steps * size for steps, size in self.tokens], dim=1)
        found = [
            layer(part.view(part.shape[0], *shape))
            for layer, part, shape in zip(self.inputs, parts, self.tokens, strict=True)
        ]
        return torch.cat(found, dim=1) + self.positions


def decoder(width: int, heads: int, layers: int) -> nn.TransformerDecoder:
    """Layers of self-attention, cross-attention and a feed-forward net of four times the width, normalised before."""
    layer = nn.TransformerDecoderLayer(
        width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerDecoder(layer, layers, norm=nn.LayerNorm(width))


class TransformerField(nn.Module):
    """A vector field over action chunks, whose tokens attend to what is observed.

    memory = [time, o_1 … o_n]                     a token per feature and observed step
    h = W x + position;  h ← decoder(h, memory)    causal among the actions, free towards the memory
    """

    def __init__(
        self, horizon: int, action_dim: int, embedding: int, tokens: Sequence[tuple[int, int]], *, width: int,
        depth: int, heads: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.enter, self.time = nn.Linear(action_dim, width), nn.Linear(embedding, width)
        self.condition = ConditionTokens(tokens, width)
        self.positions = nn.Parameter(INITIAL_STD * torch.randn(horizon, width))
        self.decoder = decoder(width, heads, depth)
        self.leave = nn.Linear(width, action_dim)
        self.register_buffer("later", torch.ones(horizon, horizon, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x: Tensor, embedding: Tensor, cond: Tensor) -> Tensor:
        """x (B, Tp, Da), embedding (B, E), cond (B, C) → (B, Tp, Da)."""
        memory = torch.cat((self.time(embedding)[:, None], self.condition(cond)), dim=1)
        # An exported graph cannot test at run time that a mask is the causal one.
        later = self.get_buffer("later")
        h = self.decoder(self.enter(x) + self.positions, memory, tgt_mask=later, tgt_is_causal=False)
        return self.leave(h)


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
        self, inputs: int, outputs: int, *, width: int = 256, depth: int = 3, activation: str = "silu",
        norm: bool = False,
    ) -> None:  # fmt: skip
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

    def __init__(self, c: NetworkConfig, horizon: int, action_dim: int, embedding: int, cond: int) -> None:
        super().__init__()
        flat = horizon * action_dim
        size = {"width": c.width, "depth": c.depth}
        self.mlp = ResidualMlp(flat + embedding + cond, flat, **size, activation=c.activation, norm=c.norm)

    def forward(self, x: Tensor, embedding: Tensor, cond: Tensor) -> Tensor:
        """x (B, Tp, Da), embedding (B, E), cond (B, C) → (B, Tp, Da)."""
        return self.mlp(torch.cat((x.flatten(1), embedding, cond), dim=1)).view_as(x)


class FourierEmbedding(nn.Module):
    """A number in [0, 1] → `dim` sines and cosines with periods spaced geometrically.

    No weights: the embedding of a sampling grid can be computed once.

    Attributes:
      dim: number of features, even.
      period: shortest and longest period. The shortest one should be a few sampling steps long: shorter ones
        only let the network tell apart times that it must treat alike.
    """

    def __init__(self, dim: int, period: tuple[float, float] = (0.1, 4.0)) -> None:
        super().__init__()
        self.dim = dim
        half = dim // 2
        log = torch.linspace(math.log(period[0]), math.log(period[1]), half, dtype=torch.float64)
        self.frequency: Tensor
        self.register_buffer("frequency", (2.0 * math.pi / log.exp()).float(), persistent=False)

    def forward(self, tau: Tensor) -> Tensor:
        """(B,) → (B, dim)."""
        # γ(τ) = [sin(2π τ / p_i), cos(2π τ / p_i)]
        angle = tau[:, None] * self.frequency
        return torch.cat((angle.sin(), angle.cos()), dim=-1)


Tokens = Sequence[tuple[int, int]]


def build_field(config: NetworkConfig, *, horizon: int, action_dim: int, embedding: int, tokens: Tokens) -> nn.Module:
    """A module called as ``field(x (B, Tp, Da), embedding (B, E), cond (B, C)) -> (B, Tp, Da)``. `tokens`: (steps,
    size) of each feature in the condition, as `ObservationEncoder.tokens`."""
    c, cond = config, sum(steps * size for steps, size in tokens)
    fields: dict[str, Callable[[], nn.Module]] = {
        "mlp": lambda: MlpField(c, horizon, action_dim, embedding, cond),
        "unet1d": lambda: UNet1dField(action_dim, embedding, cond, channels=c.channels, activation=c.activation),
        "transformer": lambda: TransformerField(
            horizon, action_dim, embedding, tokens, width=c.width, depth=c.depth, heads=c.heads
        ),
    }
    return fields[c.kind]()
