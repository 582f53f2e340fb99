"""Likelihoods: what turns a trained sampler into a stochastic policy whose decisions have a probability."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from robolearn.rl.actors.chain import ChainStats
from robolearn.rl.actors.denoising import DenoisingActor
from robolearn.rl.actors.noise import NoiseConfig, NoiseNet


class Actor(Protocol):
    """A policy network whose decisions have a likelihood.

    Attributes:
      net: the policy network, trained in place.
      noise: the noise that explores, and its schedule.
    """

    net: Any
    noise: NoiseNet

    def sample(self, observation: dict[str, Tensor], generator: torch.Generator) -> Tensor:
        """Normalised features (B, …) → chains (B, M + 1, D); the last element is the action chunk, unclamped."""
        ...

    def evaluate(self, observation: dict[str, Tensor], chain: Tensor) -> ChainStats:
        """Likelihood of chains under the present weights."""
        ...


__all__ = ["Actor", "ChainStats", "DenoisingActor", "NoiseConfig", "NoiseNet"]
