"""A policy that is one squashed Gaussian over chunks: what soft actor-critic leaves. It acts by tanh μ(s)."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from policies.networks.squashed import SquashedGaussian
from policies.normalize import Normalizer
from policies.settings import ActorConfig
from policies.stateless import StatelessPolicy
from robolearn.core import Interface


class GaussianPolicy(StatelessPolicy):
    """Implements `robolearn.core.Policy`; observations are normalised, actions are in the world's units."""

    def __init__(self, normalizer: Normalizer, interface: Interface, config: ActorConfig) -> None:
        super().__init__(interface, config.execute)
        self.normalizer, self.config = normalizer, config
        self.actor = SquashedGaussian(self.features, self.size, width=config.width, depth=config.depth)

    @property
    def statistics(self) -> Normalizer:
        return self.normalizer

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """tanh μ(s)."""
        return self.config.magnitude * self.actor.mode(self.see(observation))
