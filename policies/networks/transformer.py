"""A transformer over action chunks whose tokens attend to what is observed (Diffusion Policy, Chi et al. 2023).

memory = [time, o_1 … o_n]                     a token per feature and observed step
h = W x + position;  h ← decoder(h, memory)    causal among the actions, free towards the memory
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

INITIAL_STD = 0.02  # of learned positions

# torch has a second arithmetic for attention where no gradient is wanted: a likelihood would be computed otherwise than
# what acted.
torch.backends.mha.set_fastpath_enabled(False)


class ConditionTokens(nn.Module):
    """The condition vector of `ObservationEncoder` → one token per feature and observed step.

    Args:
      tokens: `ObservationEncoder.tokens`.
    """

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
    """A vector field over action chunks: (chunk, time embedding, condition) → chunk."""

    def __init__(
        self,
        horizon: int,
        action_dim: int,
        embedding: int,
        tokens: Sequence[tuple[int, int]],
        *,
        width: int,
        depth: int,
        heads: int,
    ) -> None:
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
