"""A flow or diffusion policy whose initial noise is chosen by a small actor: what DSRL leaves.

    x_0 = M tanh μ(s),  a = π(s, x_0)

Wagenmaker et al. 2025, "Steering your diffusion policy with latent space reinforcement learning".
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from policies.networks.encoder import ObservationEncoder
from policies.networks.squashed import SquashedGaussian
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import ActorConfig
from policies.stateless import StatelessPolicy


class SteeredPolicy(StatelessPolicy):
    """Implements `robolearn.core.Policy`.

    Args:
      proposer: π; it observes one step.
    """

    config: ActorConfig

    def __init__(self, proposer: ChunkPolicy, config: ActorConfig) -> None:
        super().__init__(proposer.interface, proposer.execute_steps, eyes=proposer.net.encoder)
        self.proposer, self.config = proposer, config
        self.latent = proposer.net.noise_shape[0] * proposer.net.noise_shape[1]
        self.actor = SquashedGaussian(self.features, self.latent, width=config.width, depth=config.depth)

    @property
    def statistics(self) -> Normalizer:
        return self.proposer.normalizer

    @property
    def eyes(self) -> ObservationEncoder:
        return self.proposer.net.encoder

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """π(s, M tanh μ(s))."""
        observation = self.looked(observation)
        return self.chunk(observation, self.config.magnitude * self.actor.mode(self.see(observation)))

    def chunk(self, observation: Mapping[str, Tensor], x0: Tensor) -> Tensor:
        """Noise (B, Tp · Da) → (B, H · Da) in [-1, 1]."""
        net, normalizer = self.proposer.net, self.proposer.normalizer
        chunks = net.sample(net.encode(normalizer.observation(observation)), x0.view(-1, *net.noise_shape))
        return normalizer.action_back(chunks[:, : self.execute_steps]).clamp(-1.0, 1.0).flatten(1)
