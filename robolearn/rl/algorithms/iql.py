"""Implicit Q-learning: critics that never look at an action which is not in the data, and imitation by advantage.

    L_V = E |κ − 1(u < 0)| u²,  u = min_{e ∈ S} Q'_e(s, a) − V(s)          expectile κ of what was done in s
    y   = R + d · V(s')                                                    (`robolearn.rl.ensemble_critic`)
    L_π = E w(s, a) ‖flow matching or denoising of a‖²,  w = min(exp(β (min_{e ∈ S} Q'_e(s, a) − V(s))), w_max)

Kostrikov et al. 2022, with the loss of the base policy in the place of a log-likelihood, over windows of H steps. The
weights are normalised over a batch, so that β changes what is imitated and not how far a step goes. What acts is the
average of the copy that learns; with `proposals` > 1 the critics choose among its chunks (IDQL, Hansen-Estruch et al.
2023).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.policy import ChunkPolicy
from robolearn.data.replay import ReplayBatch
from robolearn.rl.algorithms.student import Imitating
from robolearn.rl.ensemble_critic import StateValue
from robolearn.rl.student_settings import IqlConfig


def expectile_loss(u: Tensor, expectile: float) -> Tensor:
    """|κ − 1(u < 0)| u², elementwise: least in mean at the expectile κ of what u is the excess of."""
    return torch.where(u < 0, 1.0 - expectile, expectile) * u.square()


class Iql(Imitating):
    """See the module."""

    def __init__(self, base: ChunkPolicy, config: IqlConfig, *, seed: int) -> None:
        super().__init__(base, config, seed=seed, initial_noise=config.initial_noise)
        self.settings = config
        self.value = StateValue(self.policy.feature_size, config, base.device)

    def update(self, batch: ReplayBatch) -> dict[str, Tensor]:
        features, actions = self.policy.encode(batch.observation), batch.action.flatten(1)
        worth = self._worth(features, actions)
        value = self.value(features)
        # L_V = E |κ − 1(u < 0)| u²
        loss = expectile_loss(worth - value, self.settings.expectile).mean()
        return self.value.step(value, loss) | super().update(batch)

    def next_value(self, observation: dict[str, Tensor]) -> Tensor:
        return self.value(self.policy.encode(observation))

    @torch.no_grad()
    def _worth(self, features: Tensor, actions: Tensor) -> Tensor:
        """(B,) min_{e ∈ S} Q'_e(s, a)."""
        return self.critic.pessimistic(features, actions[:, None], self.order)[:, 0]

    @torch.no_grad()
    def advantage(self, features: Tensor, actions: Tensor) -> Tensor:
        """(B,) min_{e ∈ S} Q'_e(s, a) − V(s)."""
        return self._worth(features, actions) - self.value(features)

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        advantage = self.advantage(features, batch.action.flatten(1))
        # w = min(exp(β A), w_max)
        weight = (self.settings.beta * advantage).exp().clamp(max=self.settings.weight_max)
        loss = self.student.imitate(batch, torch.arange(len(batch), device=self.device), weight)
        return {"imitation": loss, "advantage_std": advantage.std(), "weight": weight.mean()}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return super().optimizers() | {"value": self.value.adam}

    def modules(self) -> dict[str, nn.Module]:
        return super().modules() | {"value": self.value.net}
