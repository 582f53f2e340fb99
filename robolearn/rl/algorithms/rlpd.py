"""RLPD: soft actor-critic whose every batch is half demonstrations (Ball et al. 2023). The base is used for its
statistics alone: the rival that starts from nothing.

    V(s') = min_{e ∈ S} Q'_e(s', a') [− α log π(a' | s')],   a' ~ π(· | s')

The losses of actor and temperature are those of `soft_actor`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.gaussian import GaussianPolicy
from policies.policy import ChunkPolicy
from policies.settings import ActorConfig
from robolearn.data.replay import WindowBatch
from robolearn.rl.algorithms.off_policy import OffPolicy, make_critics
from robolearn.rl.algorithms.soft_actor import SoftActor
from robolearn.rl.off_policy_settings import RlpdConfig


class Rlpd(OffPolicy):
    """See the module."""

    policy: GaussianPolicy

    def __init__(self, base: ChunkPolicy, config: RlpdConfig, *, seed: int) -> None:
        torch.manual_seed(seed)
        actor = ActorConfig(execute=base.execute_steps, width=config.width, depth=config.depth)
        policy = GaussianPolicy(base.normalizer, base.interface, actor)
        critics = make_critics(config, policy.features + policy.size)
        super().__init__(base, policy.to(base.device), critics, config, seed=seed)
        self.settings, self.soft = config, SoftActor(policy.actor, config, policy.size)

    def explore(self, observation: dict[str, Tensor]) -> Tensor:
        return self.policy.actor.sample(self.policy.see(observation), self.generator)[0]

    def next_chunk(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | float]:
        features = self.policy.see(observation)
        action, log_prob = self.policy.actor.sample(features, self.generator)
        return features, action, -self.soft.alpha * log_prob if self.settings.backup_entropy else 0.0

    def improve(self, features: Tensor, batch: WindowBatch) -> dict[str, Tensor]:
        def value(action: Tensor) -> Tensor:
            return self.critic.values(features, action[:, None]).mean(0).squeeze(1)

        return self.soft.improve(features, value, self.generator)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return super().optimizers() | self.soft.optimizers()

    def modules(self) -> dict[str, nn.Module]:
        return super().modules() | self.soft.modules()
