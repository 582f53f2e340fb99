"""The critics of off-policy learning: an ensemble over (observation, chunk), and their slow targets.

    y   = R + d · V(s'),   R = Σ_{i<h} γ^i r_i,  d = γ^h, or 0 where the task ended the episode
    L_Q = 1/E Σ_e mean_b (Q_e(s, a) − y)²          or another error of an algorithm's
    Q'  ← Q' + τ (Q − Q')

V(s') is the algorithm's: an expectation under its actor, or a maximum over candidates. The pessimism of a target is the
minimum over a random subset of the ensemble (REDQ, Chen et al. 2021; RLPD).

Options: dropout while they learn, in the targets as well (DroQ, Hiraoka et al. 2022). Batch norm without targets
(CrossQ, Bhatt et al. 2024): what was done and what comes next go through the live critics as one batch, so that both
are normalised by the statistics of their mixture, and no gradient flows through what comes next:

    (Q(s, a), Q(s', a')) = Q over the batch [(s, a); (s', a')],   y = R + d · stop(min_{e ∈ S} Q_e(s', a') + bonus)

After `RENORM_AFTER` updates batch norm becomes batch renorm, as in the authors' code.

A discrete gripper has a critic of its own, double DQN over close, stay and open, beside the actor of the motions:

    y = R − p · [the chunk changes the gripper] + d · Q'(s', argmax_g Q(s', g))
    L = mean_b (Q(s, g) − y)²,   Q' ← Q' + τ (Q − Q')

After HIL-SERL (Luo et al. 2024), whose p is 0.02: changes that are good for nothing are unlearned. The live critic
chooses what the slow one judges (van Hasselt et al. 2016).
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from policies.kinds.gaussian import STAY, GripperChoices
from policies.networks.ensemble import Dropout, EnsembleMlp, evaluate
from robolearn.data.replay import ReplayBatch
from robolearn.rl.off_policy_settings import OffPolicyConfig, RlpdConfig

RENORM_AFTER = 100_000  # updates
CROSS_Q_BETA = 0.5  # Adam's β₁ where there are no targets, as in the paper


class EnsembleCritic:
    """E critics with their targets and optimiser.

    Args:
      net: of features and actions together.
      generator: of dropout, on the critics' device.

    Attributes:
      target: the slow copy, or None with CrossQ.
      error: of each critic, elementwise of what it is off.
    """

    error: Callable[[Tensor], Tensor]

    def __init__(self, net: EnsembleMlp, config: OffPolicyConfig, generator: torch.Generator) -> None:
        self.config, self.net, self.error = config, net, torch.square
        self.target = None if config.cross_q else copy.deepcopy(self.net).requires_grad_(False)
        self._drop = Dropout(config.dropout, generator)
        self._follow = get_ema_multi_avg_fn(1.0 - config.tau)
        betas = (CROSS_Q_BETA if config.cross_q else 0.9, 0.999)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=config.lr, betas=betas, fused=True)

    def values(self, features: Tensor, actions: Tensor) -> Tensor:
        """(B, F) and (B, C, D) → (E, B, C), differentiable in the actions; for learning, so with dropout."""
        return evaluate(self.net, features, actions, drop=self._drop)

    def pessimistic(self, features: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        """(B, F) and (B, C, D) → (B, C): the smallest of a random subset of the targets."""
        return self.targets(features, actions, self._subset(generator).to(features.device)).amin(0)

    def targets(self, features: Tensor, actions: Tensor, members: Tensor | None = None) -> Tensor:
        """(B, F) and (B, C, D) → (E, B, C) of the targets, or of some `members`."""
        assert self.target is not None
        return evaluate(self.target, features, actions, members, self._drop)

    def fit(
        self, features: Tensor, actions: Tensor, target: Tensor, penalty: Callable[[Tensor], Tensor] | None = None
    ) -> dict[str, Tensor]:
        """One gradient step towards the target (B,) of actions (B, D), with a `penalty` of their values (E, B); then
        the targets follow."""
        found = self.net(torch.cat((features, actions), 1), drop=self._drop).squeeze(-1)
        metrics = self._step(found, target, penalty)
        assert self.target is not None
        with torch.no_grad():
            self._follow(list(self.target.parameters()), list(self.net.parameters()), 0)
        return metrics

    def fit_jointly(
        self, now: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor], reward: Tensor, discount: Tensor,
        bonus: Tensor | float, generator: torch.Generator, updates: int = 0,
    ) -> dict[str, Tensor]:  # fmt: skip
        """One gradient step of CrossQ.

        Args:
          now, after: (features (B, F), actions (B, D)) of what was done and of what comes next.
          reward, discount: (B,) R and d.
          bonus: (B,) added to the value of what comes next.
          updates: of the critics, so far.
        """
        both = torch.cat([torch.cat(pair, 1) for pair in (now, after)])
        renorm = updates >= RENORM_AFTER
        found, following = self.net(both, drop=self._drop, over_batch=True, renorm=renorm).squeeze(-1).chunk(2, 1)
        # y = R + d · stop(min_{e ∈ S} Q_e(s', a') + bonus)
        worst = following.detach()[self._subset(generator).to(both.device)].amin(0)
        return self._step(found, reward + discount * (worst + bonus))

    def _subset(self, generator: torch.Generator) -> Tensor:
        return torch.randperm(self.net.members, generator=generator)[: self.config.subset]

    def _step(
        self, found: Tensor, target: Tensor, penalty: Callable[[Tensor], Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Towards the target (B,) of all members' (E, B)."""
        loss = self.error(found - target).mean()
        added = {} if penalty is None else {"penalty": penalty(found)}
        self.adam.zero_grad(set_to_none=True)
        (loss + sum(added.values())).backward()
        self.adam.step()
        return {name: value.detach() for name, value in added.items()} | {
            "critic_loss": loss.detach(),
            "q": found.detach().mean(),
            "q_spread": found.detach().std(0).mean(),
        }


class GripperCritic:
    """Q and its optimiser. `net`: features → values of the three choices; trained in place."""

    def __init__(self, net: EnsembleMlp, choices: GripperChoices, config: RlpdConfig) -> None:
        self.net, self._choices, self._penalty = net, choices, config.gripper_penalty
        self.target = copy.deepcopy(net).requires_grad_(False)
        self._follow = get_ema_multi_avg_fn(1.0 - config.tau)
        self.adam = torch.optim.Adam(net.parameters(), lr=config.lr, fused=True)

    def fit(self, features: Tensor, next_features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
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


class StateValue:
    """V(s) of features (B, F) → (B,), and its optimiser."""

    def __init__(self, features: int, config: OffPolicyConfig, device: torch.device) -> None:
        self.net = EnsembleMlp(1, features, 1, width=config.width, depth=config.depth).to(device)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=config.lr, fused=True)

    def __call__(self, features: Tensor) -> Tensor:
        return self.net(features)[0, :, 0]

    def step(self, value: Tensor, loss: Tensor) -> dict[str, Tensor]:
        """One gradient step on the `loss` of its `value` (B,)."""
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        self.adam.step()
        return {"value": value.detach().mean(), "value_loss": loss.detach()}
