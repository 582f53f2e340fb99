"""Networks from an observation to an action chunk, and their losses as sums over rows.

    L = Σ_i w_i e_i / Σ_i w_i = Σ_parts [Σ_{i in part} w_i e_i] / W,   W = Σ_i w_i of the whole batch

The gradient of the parts' sum is that of the whole: pieces of a batch, or its shares in several processes. The random
draws of a batch are made for all of it and then divided, so that the division changes only the order of the sums.
Everything here is normalised: see `policies.normalize`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from policies.networks.encoder import build_encoder
from policies.networks.field import FourierEmbedding, build_field
from policies.settings import PolicyConfig
from robolearn.core import Interface

Tensors = Mapping[str, Tensor]
Loss = tuple[Tensor, dict[str, Tensor]]


class ChunkNet(nn.Module):
    """Base of the kinds that imitation trains: condition → chunk.

    Attributes:
      config: the settings, a `PolicyConfig`.
      action_dim: Da.
      cond_dim: C, length of the condition.
      noise_shape: shape of one sample's noise.
      initial_noise_std: standard deviation of that noise when the policy acts.
      loss_has_parts: the loss is one over rows; such a kind has `draw`, `weight`, `errors` and `parts` of
        `policies.kinds.denoising.DenoisingNet`.
    """

    noise_shape: tuple[int, ...] = ()
    loss_has_parts = False
    config: Any

    def __init__(self, config: PolicyConfig, interface: Interface) -> None:
        super().__init__()
        self.config, self.action_dim = config, interface.action.size
        self.encoder = build_encoder(config.network, interface, config.observe)
        self.cond_dim = self.encoder.size

    @property
    def name(self) -> str:
        """Of the kind."""
        return self.config.name

    @property
    def initial_noise_std(self) -> float:
        return 0.0

    def add_field(self, embeddings: int = 1) -> None:
        """Make `time`, an embedding, and `field`, the network over (chunk, `embeddings` of them, condition)."""
        net = self.config.network
        self.time = FourierEmbedding(net.embedding)
        self.embedding_dim = net.embedding * embeddings
        self.field = build_field(
            net,
            horizon=self.config.horizon,
            action_dim=self.action_dim,
            embedding=self.embedding_dim,
            tokens=self.encoder.tokens,
        )

    def encode(self, observation: Tensors) -> Tensor:
        """Normalised {feature: (B, [To,] …)} → condition (B, C)."""
        return self.encoder(observation)

    def weight(self, action: Tensor, is_pad: Tensor | None) -> Tensor:
        """(B, Tp) weight of each action in the loss: 0 where `is_pad` says padding and the settings mask it."""
        if is_pad is None or not self.config.mask_padding:
            return torch.ones(action.shape[:2], device=action.device, dtype=action.dtype)
        return (~is_pad).to(action.dtype)

    def sample(self, cond: Tensor, x0: Tensor) -> Tensor:
        """Condition (B, C) and noise (B, *noise_shape) → actions (B, Tp, Da) in [-1, 1], deterministically."""
        raise NotImplementedError

    def loss(
        self, observation: Tensors, action: Tensor, is_pad: Tensor | None, generator: Generator, target: Any = None
    ) -> Loss:
        """The training loss of a batch and its named parts (detached scalars).

        Args:
          observation: normalised tensors.
          action: (B, Tp, Da) normalised.
          is_pad: (B, Tp) true where the chunk reaches over the end of its episode, or None.
          generator: source of all randomness, on the device of the policy.
          target: the network that makes targets of self-consistency, e.g. the moving average; the policy itself if
            None. Never differentiated; kinds without such targets ignore it.
        """
        raise NotImplementedError


def weighted_mean(error: Tensor, weight: Tensor) -> Tensor:
    """Σ w e / Σ w of errors and weights of one shape; 0 where nothing counts."""
    return (error * weight).sum() / weight.sum().clamp_min(1.0)
