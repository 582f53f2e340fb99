"""What the critic sees: what the policy sees, or in simulation something that no arm has.

Pinto et al., "Asymmetric actor critic for image-based robot learning", RSS 2018: the critic is needed while learning
alone, so it may know the state of the world where the policy has to make do with cameras.
"""

from __future__ import annotations

import torch
from torch import Tensor

from policies.normalize import Normalizer
from robolearn.core import Interface


class CriticInput:
    """Features as the worlds give them → what the critic's network takes.

    Its vectors are standardised by the first rollout, which no demonstration has to know of.

    Args:
      sees: the critic's features.
      device: where they are.
    """

    def __init__(self, sees: Interface, device: torch.device) -> None:
        self.sees = sees
        self.normalizer = Normalizer(sees).to(device)
        self.fitted = False

    def fit(self, observation: dict[str, Tensor]) -> None:
        """Take mean and deviation from the features (B, …) of the first rollout; nothing afterwards."""
        if not self.fitted:
            self.normalizer.standardise(observation)
        self.fitted = True

    def __call__(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.normalizer.observation(observation)
