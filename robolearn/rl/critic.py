"""V(o, h): expected discounted return of the policy from an observation, in what is left of the episode.

Where success counts within the time limit only, the time that remains belongs to the value (Pardo et al., "Time limits
in reinforcement learning", ICML 2018, section 3), with

    V(o, 0) = 0

exactly, by construction. A critic that does not know the time calls the end of an episode that led nowhere as good as
its beginning: nothing pulls its value down but itself (V ← γ V), and failures teach the actor nothing. The policy
needs no clock: the critic is thrown away after fine-tuning.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.networks.encoder import ObservationEncoder


class Critic(nn.Module):
    """An encoder of its own and an MLP; the policy's features are not shared, so neither disturbs the other.

    Args:
      encoder: normalised features → (B, C).
      hidden: widths of the layers.
      ends_with_the_time: V(o, 0) = 0. Otherwise a time limit is no end of the task: the time that remains is nothing
        to the value, which looks beyond it.
    """

    def __init__(
        self,
        encoder: ObservationEncoder,
        hidden: tuple[int, ...] = (256, 256, 256),
        *,
        ends_with_the_time: bool = True,
    ) -> None:
        super().__init__()
        self.ends_with_the_time = ends_with_the_time
        self.encoder = encoder
        layers: list[nn.Module] = []
        width = encoder.size + 1
        for size in hidden:
            layers += [nn.Linear(width, size), nn.LayerNorm(size), nn.SiLU()]
            width = size
        head = nn.Linear(width, 1)
        # A critic that begins at zero does not mislead the first advantages.
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        self.net = nn.Sequential(*layers, head)

    def forward(self, observation: dict[str, Tensor], time_remaining: Tensor) -> Tensor:
        """(B, To, …) features and (B,) the share of the time limit that remains, in [0, 1] → (B,) values."""
        if not self.ends_with_the_time:
            time_remaining = torch.ones_like(time_remaining)
        features = torch.cat([self.encoder(observation), 2.0 * time_remaining[:, None] - 1.0], -1)
        return self.net(features).squeeze(-1) * (time_remaining > 0)
