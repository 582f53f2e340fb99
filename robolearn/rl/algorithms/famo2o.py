"""FamO2O: a family of policies between imitating all and imitating the best, and a balance chosen for each state.

    L_π = E_{b ~ U(−1, 1)} w ‖flow matching or denoising of a, given s and b‖²,   w = min(exp(β(b) A), w_max)
          β(b) = β_min (β_max / β_min)^((b + 1) / 2),   A = min_{e ∈ S} Q'_e(s, a) − V(s)
    L_b = −E mean_e Q_e(s, a(s, b(s))) / mean |Q|,      a from noise, b(s) = tanh f(s); only f has a gradient
    act:  b = b(s)

Wang et al. 2023, on IQL (`robolearn.rl.algorithms.iql`), whose V and critics are as they were. One policy, universal,
is conditioned on its balance, and what the critics know decides state by state how far from the data it goes; online
both go on. Departures: β is spread evenly in its logarithm, because weights are exponentials; the weights of a batch
are normalised, as in `iql`, each over windows of various β; the balance network sees what the policy's encoder makes of
an observation, and is averaged with the policy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from policies.kinds.indicator import INDICATOR, with_indicator
from policies.networks.ensemble import evaluate
from policies.policy import ChunkPolicy
from robolearn.data.replay import ReplayBatch
from robolearn.rl.algorithms.iql import Iql
from robolearn.rl.student_settings import FamO2oConfig


class FamO2o(Iql):
    """See the module."""

    settings: FamO2oConfig

    def __init__(self, base: ChunkPolicy, config: FamO2oConfig, *, seed: int) -> None:
        torch.manual_seed(seed)
        super().__init__(with_indicator(base, "balance", goal_dropout=0.0), config, seed=seed)
        balance = self.student.net.indicator
        assert balance is not None
        self.balance_adam = torch.optim.Adam(balance.parameters(), lr=config.lr, fused=True)

    def beta(self, balance: Tensor) -> Tensor:
        """β(b), elementwise."""
        least, most = self.settings.beta_min, self.settings.beta
        # β(b) = β_min (β_max / β_min)^((b + 1) / 2)
        return least * (most / least) ** ((balance + 1.0) / 2.0)

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        advantage = self.advantage(features, batch.action.flatten(1))
        balance = 2.0 * torch.rand(len(batch), generator=self.generator, device=self.device) - 1.0
        # w = min(exp(β(b) A), w_max)
        weight = (self.beta(balance) * advantage).exp().clamp(max=self.settings.weight_max)
        rows = torch.arange(len(batch), device=self.device)
        loss = self.student.step(self.student.loss(batch, rows, weight, {INDICATOR: balance}))
        return {"imitation": loss, "advantage_std": advantage.std(), "weight": weight.mean()} | self._balance(features)

    def _balance(self, features: Tensor) -> dict[str, Tensor]:
        """One gradient step of the balance."""
        net = self.student.net
        cond = net.condition_of(features)
        chunk = self.sampled(net, cond, self.draw(len(features), *net.noise_shape))
        values = evaluate(self.critic.net, features, chunk[:, None])[:, :, 0]
        # L_b = −mean Q / mean |Q|
        loss = -values.mean() / values.detach().abs().mean().clamp_min(1e-6)
        self.balance_adam.zero_grad(set_to_none=True)
        loss.backward(inputs=list(net.indicator.parameters()))
        self.balance_adam.step()
        return {"balance": cond[:, -1].detach().mean(), "balance_std": cond[:, -1].detach().std()}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return super().optimizers() | {"balance": self.balance_adam}
