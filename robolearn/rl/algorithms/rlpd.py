"""RLPD: soft actor-critic whose every batch is half demonstrations (Ball et al. 2023). The base is used for its
statistics alone: the rival that starts from nothing.

    V(s') = min_{e ∈ S} Q'_e(s', a') [− α log π(a' | s')],   a' ~ π(· | s')

The losses of actor and temperature are those of `SoftActor`. With a discrete gripper the actor's a is the arm's motion
alone, the gripper's part of a chunk is the best choice of its own critic (`robolearn.rl.ensemble_critic`), and the
critics Q judge both together.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.kinds.gaussian import GaussianConfig, GaussianPolicy
from policies.policy import ChunkPolicy
from robolearn.data.replay import ReplayBatch
from robolearn.rl.algorithms.off_policy import OffPolicy, SoftActor, make_critics
from robolearn.rl.ensemble_critic import GripperCritic
from robolearn.rl.off_policy_settings import RlpdConfig


class Rlpd(OffPolicy):
    """See the module."""

    policy: GaussianPolicy

    def __init__(self, base: ChunkPolicy, config: RlpdConfig, *, seed: int) -> None:
        torch.manual_seed(seed)
        actor = GaussianConfig(
            execute=base.execute_steps, width=config.width, depth=config.depth, discrete_gripper=config.discrete_gripper
        )
        policy = GaussianPolicy(base.normalizer, base.interface, actor)
        critics = make_critics(config, policy.feature_size + policy.size)
        super().__init__(base, policy.to(base.device), critics, config, seed=seed)
        self.settings, self.soft = config, SoftActor(policy.actor, config, policy.motions)
        self.gripper: GripperCritic | None = None
        if policy.gripper is not None and policy.choices is not None:
            self.gripper = GripperCritic(policy.gripper, policy.choices, config)

    def explore(self, observation: dict[str, Tensor]) -> Tensor:
        features = self.policy.encode(observation)
        return self.policy.whole(observation, features, self.policy.actor.sample(features, self.generator)[0])

    def next_chunk(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | float]:
        features = self.policy.encode(observation)
        motions, log_prob = self.policy.actor.sample(features, self.generator)
        action = self.policy.whole(observation, features, motions)
        return features, action, -self.soft.alpha * log_prob if self.settings.backup_entropy else 0.0

    def update(self, batch: ReplayBatch) -> dict[str, Tensor]:
        metrics = super().update(batch)
        if self.gripper is not None:
            encode = self.policy.encode
            metrics |= self.gripper.fit(encode(batch.observation), encode(batch.next_observation), batch)
        return metrics

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        def value(motions: Tensor) -> Tensor:
            action = self.policy.whole(batch.observation, features, motions)
            return self.critic.values(features, action[:, None]).mean(0).squeeze(1)

        return self.soft.improve(features, value, self.generator)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        gripper = {} if self.gripper is None else {"gripper": self.gripper.adam}
        return super().optimizers() | self.soft.optimizers() | gripper

    def modules(self) -> dict[str, nn.Module]:
        gripper = {} if self.gripper is None else {"gripper_target": self.gripper.target}
        return super().modules() | self.soft.modules() | gripper
