"""A policy that is one squashed Gaussian over chunks: what soft actor-critic leaves. It acts by tanh μ(s).

With a discrete gripper the Gaussian is over the motions alone, and a critic of the gripper chooses beside it:

    a = tanh μ(s) ⊕ argmax_g Q(s, g),   g of close, stay, open
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from policies.networks.ensemble import EnsembleMlp
from policies.networks.gripper import GripperChoices
from policies.networks.squashed import SquashedGaussian
from policies.normalize import Normalizer
from policies.settings import GaussianConfig
from policies.stateless import StatelessPolicy
from robolearn.core import Interface


class GaussianPolicy(StatelessPolicy):
    """Implements `robolearn.core.Policy`; observations are normalised, actions are in the world's units.

    Attributes:
      motions: numbers that the Gaussian is over.
      gripper: Q(s, ·) of the choices, or None.

    Raises:
      BadInput: a discrete gripper in a world without one.
    """

    config: GaussianConfig

    def __init__(self, normalizer: Normalizer, interface: Interface, config: GaussianConfig) -> None:
        super().__init__(interface, config.execute)
        self.normalizer, self.config = normalizer, config
        self.choices = GripperChoices(interface, config.execute) if config.discrete_gripper else None
        self.motions = self.size if self.choices is None else self.choices.motions
        width, depth = config.width, config.depth
        self.actor = SquashedGaussian(self.features, self.motions, width=width, depth=depth)
        self.gripper = None if self.choices is None else EnsembleMlp(1, self.features, 3, width=width, depth=depth)

    @property
    def statistics(self) -> Normalizer:
        return self.normalizer

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """tanh μ(s), and the gripper's best choice."""
        features = self.see(observation)
        return self.whole(observation, features, self.config.magnitude * self.actor.mode(features))

    def whole(self, observation: Mapping[str, Tensor], features: Tensor, motions: Tensor) -> Tensor:
        """Motions (B, ·) → chunks (B, H · Da), with what the gripper's critic thinks best."""
        if self.choices is None or self.gripper is None:
            return motions
        is_open = self.choices.is_open(observation)
        return self.choices.join(motions, self.choices.choose(self.gripper(features)[0].detach(), is_open), is_open)
