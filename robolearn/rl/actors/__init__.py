"""Likelihoods: a trained sampler as a stochastic policy whose decisions have a probability."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from policies.policy import ChunkPolicy
from policies.settings import denoising_kinds
from policies.wrappers.goals import goals_of
from robolearn.core import BadInput
from robolearn.rl.actors.chain import ChainStats
from robolearn.rl.actors.denoising import DenoisingActor, NoiseConfig, NoiseNet


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


def check_tunable(policy: ChunkPolicy) -> None:
    """Raise `BadInput` unless `policy` has a likelihood step by step, and sees one moment, as its critics do."""
    if goals := goals_of(policy.interface):
        got = f"one with a goal ({', '.join(goals)})"
        raise BadInput("policy for fine-tuning", got=got, expected="one without: worlds of RL give none")
    if not policy.config.denoises:
        raise BadInput("policy for fine-tuning", got=f"the kind {policy.config.name!r}", available=denoising_kinds())
    if (steps := policy.net.config.observe) > 1:
        hint = "Its critics see one moment: train it anew with --observe-steps 1"
        raise BadInput("policy for fine-tuning", got=f"To = {steps} observed steps", expected="To = 1", hint=hint)
