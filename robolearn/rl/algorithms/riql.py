"""RIQL: implicit Q-learning of data of which a part is wrong: observations, actions, rewards or what came next.

    L_Q  = 1/E Σ_e E l_δ(Q_e(s, a) − R − d · V(s')),   l_δ(x) = x² / 2δ where |x| ≤ δ, else |x| − δ/2
    L_V  = E |κ − 1(u < 0)| u²,    u = q_α({Q'_e(s, a)}_e) − V(s)
    L_π  as `robolearn.rl.algorithms.iql`, with the advantage q_α({Q'_e(s, a)}_e) − V(s)

Yang et al. 2024. Wrong dynamics give targets with heavy tails, of which Huber's loss l_δ sees the direction alone; the
α-quantile of many critics is a milder pessimism than their minimum, which one misled critic decides. The third of its
measures, observations that are standardised, every policy here has.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from policies.policy import ChunkPolicy
from robolearn.rl.algorithms.iql import Iql
from robolearn.rl.student_settings import RiqlConfig


class Riql(Iql):
    """See the module."""

    settings: RiqlConfig

    def __init__(self, base: ChunkPolicy, config: RiqlConfig, *, seed: int) -> None:
        super().__init__(base, config, seed=seed)
        # l_δ(x) = Huber's / δ: steep as |x| far away, whatever δ is
        delta = config.huber
        self.critic.error = lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=delta) / delta

    @torch.no_grad()
    def _worth(self, features: Tensor, actions: Tensor) -> Tensor:
        """(B,) q_α({Q'_e(s, a)}_e)."""
        return self.critic.targets(features, actions[:, None])[:, :, 0].quantile(self.settings.quantile, 0)
