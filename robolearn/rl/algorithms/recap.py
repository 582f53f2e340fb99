"""RECAP: imitation that sees whether a window was good, and acts as if all were.

    L_V = E (V(s) − G)²                                    G = Σ_i γ^i r_i to the end of the episode
    A   = R + d · V(s') − V(s)                             over `n_step` chunks
    I   = 1 where A > ε or a human steered, else −1;       ε the 1 − p quantile of A in a batch, where no human steered
    L_π = E ‖flow matching or denoising of a, given s and I‖²,   I = ∅ in a share of the windows
    act:  I = 1;  v = v_∅ + w (v_1 − v_∅) with guidance w

Physical Intelligence 2025 (π*0.6). Values are of what was done, failures included, and nothing is ever said of another
action. Departures: V is one number, fitted by squares, in the place of a distribution over bins; rewards are the
data's, where the paper has −1 a step and a large cost of failure; a run has one task, so one ε, of each batch anew;
critics y = R + d · V(s') are learned beside, and choose where the policy makes several `proposals`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.kinds.indicator import INDICATOR, with_indicator
from policies.policy import ChunkPolicy
from robolearn.data.replay import ReplayBatch
from robolearn.rl.algorithms.student import Imitating
from robolearn.rl.ensemble_critic import StateValue
from robolearn.rl.student_settings import RecapConfig


def is_good(advantage: Tensor, human: Tensor, positive: float) -> Tensor:
    """(B,) true where a human steered, or the advantage (B,) is among the share `positive` of those where none did."""
    own = advantage[~human]
    # A > ε
    return human if not len(own) else human | (advantage > own.quantile(1.0 - positive))


class Recap(Imitating):
    """See the module."""

    def __init__(self, base: ChunkPolicy, config: RecapConfig, *, seed: int) -> None:
        sampler = {"goal_dropout": config.indicator_dropout, "guidance": config.guidance}
        own = with_indicator(base, "advantage", **sampler)
        super().__init__(own, config, seed=seed, initial_noise=config.initial_noise)
        self.settings = config
        self.value = StateValue(self.policy.feature_size, config, base.device)

    def update(self, batch: ReplayBatch) -> dict[str, Tensor]:
        value = self.value(self.policy.encode(batch.observation))
        # L_V = E (V(s) − G)²
        loss = (value - batch.to_go).square().mean()
        return self.value.step(value, loss) | super().update(batch)

    def next_value(self, observation: dict[str, Tensor]) -> Tensor:
        return self.value(self.policy.encode(observation))

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        with torch.no_grad():
            # A = R + d · V(s') − V(s)
            advantage = batch.reward + batch.discount * self.next_value(batch.next_observation) - self.value(features)
        good = is_good(advantage, batch.intervention, self.settings.positive)
        rows = torch.arange(len(batch), device=self.device)
        loss = self.student.step(self.student.loss(batch, rows, given={INDICATOR: 2.0 * good - 1.0}))
        return {"imitation": loss, "advantage_std": advantage.std(), "good": good.float().mean()}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return super().optimizers() | {"value": self.value.adam}

    def modules(self) -> dict[str, nn.Module]:
        return super().modules() | {"value": self.value.net}
