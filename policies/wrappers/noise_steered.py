"""A flow or diffusion policy whose initial noise is chosen by a small actor, from DSRL.

    x_0 = M tanh μ(s),  a = π(s, x_0)

Wagenmaker et al. 2025, "Steering your diffusion policy with latent space reinforcement learning".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from policies.kinds.gaussian import ActorConfig, SquashedGaussian
from policies.policy import ChunkPolicy, ProposerPolicy
from robolearn.core import Interface


class NoiseSteeredConfig(ActorConfig):
    """Settings of `NoiseSteeredPolicy`; `magnitude` is M."""

    name: ClassVar[str] = "noise_steered"
    takes_proposer: ClassVar[bool] = True

    def build(self, interface: Interface, proposer: ChunkPolicy) -> NoiseSteeredPolicy:
        return NoiseSteeredPolicy(proposer, self)


class NoiseSteeredPolicy(ProposerPolicy):
    """π, started from noise that an actor chooses."""

    def __init__(self, proposer: ChunkPolicy, config: NoiseSteeredConfig) -> None:
        super().__init__(proposer)
        self.config = config
        self.latent = proposer.net.noise_shape[0] * proposer.net.noise_shape[1]
        self.actor = SquashedGaussian(self.feature_size, self.latent, width=config.width, depth=config.depth)

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """π(s, M tanh μ(s))."""
        observation = self.encoded(observation)
        return self.chunk(observation, self.config.magnitude * self.actor.mode(self.encode(observation)))

    def chunk(self, observation: Mapping[str, Tensor], x0: Tensor) -> Tensor:
        """Noise (B, Tp · Da) → (B, H · Da) in [-1, 1]."""
        net, normalizer = self.proposer.net, self.proposer.normalizer
        chunks = net.sample(net.encode(normalizer.observation(observation)), x0.view(-1, *net.noise_shape))
        return normalizer.action_back(chunks[:, : self.execute_steps]).clamp(-1.0, 1.0).flatten(1)
