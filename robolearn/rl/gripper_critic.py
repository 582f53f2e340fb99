"""The critic of a discrete gripper: double DQN over close, stay and open, beside the actor of the motions.

    y = R − p · [the chunk changes the gripper] + d · Q'(s', argmax_g Q(s', g))
    L = mean_b (Q(s, g) − y)²,   Q' ← Q' + τ (Q − Q')

After HIL-SERL (Luo et al. 2024), whose p is 0.02: changes that are good for nothing are unlearned. The live critic
chooses what the slow one judges (van Hasselt et al. 2016).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from policies.networks.ensemble import EnsembleMlp
from policies.networks.gripper import STAY, GripperChoices
from robolearn.data.replay import WindowBatch
from robolearn.rl.off_policy_settings import RlpdConfig


class GripperCritic:
    """Q and its optimiser.

    Args:
      net: features → values of the three choices; trained in place.
    """

    def __init__(self, net: EnsembleMlp, choices: GripperChoices, config: RlpdConfig) -> None:
        self.net, self._choices, self._penalty = net, choices, config.gripper_penalty
        self.target = copy.deepcopy(net).requires_grad_(False)
        self._follow = get_ema_multi_avg_fn(1.0 - config.tau)
        self.adam = torch.optim.Adam(net.parameters(), lr=config.lr, fused=True)

    def fit(self, features: Tensor, next_features: Tensor, batch: WindowBatch) -> dict[str, Tensor]:
        """One gradient step."""
        made = self._choices.made(batch.action, batch.executed, self._choices.is_open(batch.observation))
        with torch.no_grad():
            best = self._choices.choose(self.net(next_features)[0], self._choices.is_open(batch.next_observation))
            after = self.target(next_features)[0].gather(1, best[:, None]).squeeze(1)
            # y = R − p [changed] + d · Q'(s', argmax_g Q(s', g))
            y = batch.reward - self._penalty * (made != STAY) + batch.discount * after
        found = self.net(features)[0].gather(1, made[:, None]).squeeze(1)
        loss = (found - y).square().mean()
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        self.adam.step()
        with torch.no_grad():
            self._follow(list(self.target.parameters()), list(self.net.parameters()), 0)
        return {"gripper_loss": loss.detach(), "gripper_changes": (made != STAY).float().mean()}
