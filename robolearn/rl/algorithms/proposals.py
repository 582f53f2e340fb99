"""Proposals and edits: a frozen flow or diffusion policy proposes, a small policy edits, the critics choose.

    a_i ~ base(· | s),  e_i ~ π(· | s, a_i),  C(s) = {a_i} ∪ {clip(a_i + ρ e_i)}                     i = 1 … P
    act:     argmax over C(s) of  mean_e Q_e(s, a) − κ std_e Q_e(s, a)
    V(s')  = min_{e ∈ S} Q'_e(s', a*),  a* chosen in the same way among some of C(s')
    L_π    = −w_Q mean_e Q_e(s, a_i + ρ e_i) / |Q| + w_I ‖tanh μ − (a − a_i) / ρ‖²   on steps worth imitating

After EXPO (`Servo97/EXPO`: edits of reach ρ, the maximum for acting and in the target), the anchor to what a human did
after RLT, the caution κ ours. The base is asked once for each row that is stored, never in an update.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from policies.policy import ChunkPolicy
from robolearn.core import Observation
from robolearn.data.replay import WindowBatch
from robolearn.rl.actors.squashed import SquashedGaussian
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.off_policy_settings import ProposalsConfig


class Proposals(OffPolicy):
    """See the module."""

    acts_by = ("actor", "critic")

    def __init__(self, base: ChunkPolicy, config: ProposalsConfig, *, seed: int) -> None:
        super().__init__(base, config, seed=seed)
        self.settings, self.proposals = config, config.proposals
        with torch.device("cpu"):
            actor = SquashedGaussian(
                self.features + self.size, self.size, width=config.width, depth=config.depth, std=config.edit_std
            )
        self.actor = actor.to(self.device)
        self.adam = torch.optim.Adam(self.actor.parameters(), lr=config.lr, fused=True)

    @torch.no_grad()
    def act(self, observation: Observation, *, explore: bool) -> np.ndarray:
        seen = self.tensors_of(observation)
        features = self.see(seen)
        candidates = self.candidates(features, self.annotate(seen), explore=explore)
        chosen = candidates[torch.arange(len(features)), self.choose(self.critic.values(features, candidates))]
        return chosen.view(-1, self.chunk, self.components).cpu().numpy()

    def candidates(self, features: Tensor, proposals: Tensor, *, explore: bool) -> Tensor:
        """(B, F), (B, P, D) → (B, 2 P, D): the proposals, then their edited twins."""
        inputs = torch.cat((features[:, None].expand(-1, proposals.shape[1], -1), proposals), -1)
        edit = self.actor.sample(inputs, self.generator)[0] if explore else self.actor.mode(inputs)
        return torch.cat((proposals, (proposals + self.settings.reach * edit).clamp(-1.0, 1.0)), 1)

    def choose(self, values: Tensor) -> Tensor:
        """(E, B, C) → (B,) the candidate with the largest cautious value."""
        # argmax_c  mean_e Q − κ std_e Q
        return (values.mean(0) - self.settings.caution * values.std(0, correction=0)).argmax(1)

    def next_value(self, features: Tensor, proposals: Tensor) -> Tensor:
        drawn = torch.rand(proposals.shape[:2], generator=self.order).argsort(1)[:, : self.settings.backup_proposals]
        some = proposals.gather(1, drawn.to(self.device)[..., None].expand(-1, -1, self.size))
        candidates = self.candidates(features, some, explore=True)
        values = self.critic.pessimistic(features, candidates, self.order)
        return values.gather(1, self.choose(self.critic.values(features, candidates))[:, None]).squeeze(1)

    def improve(self, features: Tensor, batch: WindowBatch) -> dict[str, Tensor]:
        reach, rows = self.settings.reach, torch.arange(len(batch), device=self.device)
        done = batch.executed.repeat_interleave(self.components, 1)
        away = (batch.action.flatten(1)[:, None] - batch.note) * done[:, None]  # (B, P, D) from each proposal
        any_one = torch.randint(self.proposals, (len(batch),), generator=self.order).to(self.device)
        which = torch.where(batch.merit, away.square().sum(-1).argmin(1), any_one)
        proposal = batch.note[rows, which]
        inputs = torch.cat((features, proposal), 1)
        edit, _ = self.actor.sample(inputs, self.generator)
        values = self.critic.values(features, (proposal + reach * edit).clamp(-1.0, 1.0)[:, None]).mean(0)
        # −w_Q Q / |Q| + w_I ‖tanh μ − (a − a_i) / ρ‖²; an edit reaches no further than ρ
        value = values.mean() / values.detach().abs().mean().clamp_min(0.01)
        wanted = (away[rows, which] / reach).clamp(-1.0, 1.0)
        distance = ((self.actor.mode(inputs) - wanted).square() * done).sum(1) / done.sum(1)
        imitation = (distance * batch.merit).sum() / batch.merit.sum().clamp_min(1)
        loss = self.settings.imitate * imitation - self.settings.value * value
        self.adam.zero_grad(set_to_none=True)
        loss.backward(inputs=list(self.actor.parameters()))
        self.adam.step()
        return {"imitation": imitation.detach(), "edit": edit.detach().abs().mean() * reach}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"actor": self.adam, "critic": self.critic.adam}
