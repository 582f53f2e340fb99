"""Action chunking with transformers (ACT, Zhao et al. 2023): a conditional VAE over action chunks.

    z ~ q(z | a, o) = N(μ, σ²)                        the style of a demonstration, from the chunk itself
    â = decoder(z, o)                                 one query per action, all at once
    L = |â − a| + β KL(q ‖ N(0, 1)),   KL = −½ Σ (1 + log σ² − μ² − σ²)

When it acts, z is 0. Unlike the original, a picture comes as one token per camera (`ObservationEncoder`), not as a
grid of them, and overlapping chunks are not averaged. Everything here is normalised: see `policies.normalize`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor, nn

from policies.kinds.chunk_net import ChunkNet, Loss, Tensors, weighted_mean
from policies.networks.field import INITIAL_STD, ConditionTokens, decoder
from policies.settings import ActConfig
from robolearn.core import Interface


class ActPolicy(ChunkNet):
    """Condition and style → chunk.

    Attributes:
      config: the `ActConfig`.
      noise_shape: of z, which is 0 when the policy acts.
    """

    def __init__(self, config: ActConfig, interface: Interface) -> None:
        super().__init__(config, interface)
        width, heads, layers = config.network.width, config.network.heads, config.network.depth
        self.noise_shape = (config.latent,)
        # q: a query that attends to the observation and to the chunk
        self.style_query = nn.Parameter(INITIAL_STD * torch.randn(1, width))
        self.style_condition = ConditionTokens(self.encoder.tokens, width)
        self.style_action = ConditionTokens([(config.horizon, self.action_dim)], width)
        self.style = _encoder(width, heads, layers)
        self.style_out = nn.Linear(width, 2 * config.latent)
        # the memory: z and the observation attend to each other; then a query per action
        self.latent = nn.Linear(config.latent, width)
        self.condition = ConditionTokens(self.encoder.tokens, width)
        self.memory = _encoder(width, heads, layers)
        self.queries = nn.Parameter(INITIAL_STD * torch.randn(config.horizon, width))
        self.decoder = decoder(width, heads, layers)
        self.leave = nn.Linear(width, self.action_dim)

    def decode(self, z: Tensor, cond: Tensor) -> Tensor:
        """Style z (B, latent) and condition (B, C) → (B, Tp, Da)."""
        memory = self.memory(torch.cat((self.latent(z)[:, None], self.condition(cond)), dim=1))
        return self.leave(self.decoder(self.queries.expand(z.shape[0], -1, -1), memory))

    def sample(self, cond: Tensor, x0: Tensor) -> Tensor:
        """Condition (B, C) and z (B, latent) → actions (B, Tp, Da) in [-1, 1]."""
        return self.decode(x0, cond).clamp(-1.0, 1.0)

    def posterior(self, action: Tensor, is_pad: Tensor | None, cond: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ² (B, latent) of the style of `action` (B, Tp, Da), whose padded steps are masked."""
        query = self.style_query.expand(len(action), -1, -1)
        tokens = torch.cat((query, self.style_condition(cond), self.style_action(action.flatten(1))), dim=1)
        unseen = None
        if is_pad is not None:
            seen = is_pad.new_zeros(len(is_pad), tokens.shape[1] - is_pad.shape[1])
            unseen = torch.cat((seen, is_pad), dim=1)
        mean, log_variance = self.style_out(self.style(tokens, src_key_padding_mask=unseen)[:, 0]).chunk(2, dim=1)
        return mean, log_variance

    def loss(
        self, observation: Tensors, action: Tensor, is_pad: Tensor | None, generator: Generator, target: Any = None
    ) -> Loss:
        cond = self.encode(observation)
        pad = is_pad if self.config.mask_padding else None
        mean, log_variance = self.posterior(action, pad, cond)
        noise = torch.randn(mean.shape, generator=generator, device=action.device, dtype=action.dtype)
        # z = μ + σ ε
        z = mean + (0.5 * log_variance).exp() * noise
        error = weighted_mean((self.decode(z, cond) - action).abs().mean(2), self.weight(action, pad))
        kl = -0.5 * (1.0 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        loss = error + self.config.kl_weight * kl
        return loss, {"loss": loss.detach(), "loss_l1": error.detach(), "kl": kl.detach()}


def _encoder(width: int, heads: int, layers: int) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
