"""DSRL: soft actor-critic on the initial noise of a frozen flow or diffusion policy (Wagenmaker et al. 2025).

    x_0 ~ M · ρ(· | s),  a = π(s, x_0)
    V(s')   = min_{e ∈ S} Q'_e(s', π(s', x_0')),                    x_0' ~ M · ρ(· | s')
    L_noise = mean_b (Q^w(s, w) − mean_e Q_e(s, π(s, w)))²,          w uniform within ±M
    ρ       maximises mean Q^w by `SoftActor`

The critics judge what is executed, so demonstrations and interventions teach them; Q^w passes their judgement on to
noise without a gradient through the denoising.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.kinds.gaussian import NoiseSteeredConfig, NoiseSteeredPolicy
from policies.networks.ensemble import EnsembleMlp, evaluate
from policies.policy import ChunkPolicy
from robolearn.data.replay import ReplayBatch
from robolearn.rl.algorithms.off_policy import OffPolicy, SoftActor, make_critics
from robolearn.rl.off_policy_settings import DsrlConfig


class Dsrl(OffPolicy):
    """See the module."""

    policy: NoiseSteeredPolicy

    def __init__(self, base: ChunkPolicy, config: DsrlConfig, *, seed: int) -> None:
        torch.manual_seed(seed)
        width, depth = config.width, config.depth
        actor = NoiseSteeredConfig(execute=base.execute_steps, magnitude=config.magnitude, width=width, depth=depth)
        policy = NoiseSteeredPolicy(base, actor)
        critics = make_critics(config, policy.feature_size + policy.size)
        super().__init__(base, policy.to(base.device), critics, config, seed=seed)
        self.settings, self.soft = config, SoftActor(policy.actor, config, policy.latent)
        critics = EnsembleMlp(2, policy.feature_size + policy.latent, 1, width=width, depth=depth)
        self.noise_critics = critics.to(self.device)
        self.noise_adam = torch.optim.Adam(self.noise_critics.parameters(), lr=config.lr, fused=True)

    def explore(self, observation: dict[str, Tensor]) -> Tensor:
        return self._chunk(observation, self.policy.encode(observation))

    def next_chunk(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | float]:
        features = self.policy.encode(observation)
        return features, self._chunk(observation, features), 0.0

    def _chunk(self, observation: dict[str, Tensor], features: Tensor) -> Tensor:
        latent = self.policy.actor.sample(features, self.generator)[0]
        return self.policy.chunk(observation, self.settings.magnitude * latent)

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        for _ in range(self.settings.noise_steps):
            loss = self._distil(features, batch)

        def value(latent: Tensor) -> Tensor:
            return evaluate(self.noise_critics, features, latent[:, None]).mean(0).squeeze(1)

        return self.soft.improve(features, value, self.generator) | {"noise_loss": loss}

    def _distil(self, features: Tensor, batch: ReplayBatch) -> Tensor:
        # w within ±1; the flow starts at M w
        w = 2.0 * torch.rand(len(features), self.policy.latent, generator=self.generator, device=self.device) - 1.0
        with torch.no_grad():
            chunk = self.policy.chunk(batch.observation, self.settings.magnitude * w)
            wanted = self.critic.values(features, chunk[:, None]).mean(0)
        loss = (evaluate(self.noise_critics, features, w[:, None]) - wanted).square().mean()
        self.noise_adam.zero_grad(set_to_none=True)
        loss.backward()
        self.noise_adam.step()
        return loss.detach()

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return super().optimizers() | self.soft.optimizers() | {"noise": self.noise_adam}

    def modules(self) -> dict[str, nn.Module]:
        return super().modules() | self.soft.modules() | {"noise_critics": self.noise_critics}
