"""V(o): expected discounted return of the policy from an observation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from policies.networks.encoder import ObservationEncoder

Normalise = Callable[[dict[str, Tensor]], dict[str, Tensor]]


class Critic(nn.Module):
    """An encoder of its own and an MLP; the policy's features are not shared, so neither disturbs the other.

    Args:
      encoder: normalised features → (B, C).
      hidden: widths of the layers.
    """

    def __init__(self, encoder: ObservationEncoder, hidden: tuple[int, ...] = (256, 256, 256)) -> None:
        super().__init__()
        self.encoder = encoder
        layers: list[nn.Module] = []
        width = encoder.size
        for size in hidden:
            layers += [nn.Linear(width, size), nn.LayerNorm(size), nn.SiLU()]
            width = size
        head = nn.Linear(width, 1)
        # A critic that begins at zero does not mislead the first advantages.
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        self.net = nn.Sequential(*layers, head)

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        """(B, To, …) features → (B,) values."""
        return self.net(self.encoder(observation)).squeeze(-1)


@torch.no_grad()
def values(critic: Critic, normalise: Normalise, observation: dict[str, Tensor], batch: int = 4096) -> Tensor:
    """(B,) values of observations as the worlds give them, in slices that bound the memory."""
    size = len(next(iter(observation.values())))
    slices = ({key: v[i : i + batch] for key, v in observation.items()} for i in range(0, size, batch))
    return torch.cat([critic(normalise(part)) for part in slices])
