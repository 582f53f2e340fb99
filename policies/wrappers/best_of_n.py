"""A policy whose chunks critics choose: a flow or diffusion policy proposes, each proposal gets a twin of other tempo.

    a_i ~ π(· | s),   C(s) = {a_i} ∪ {clip(f_i a_i)},   f_i the tempo of the twin                         i = 1 … P
    ΔQ_e(c) = Q_e(s, c) − Q_e(s, a_1)
    act:  argmax over c of  mean_e ΔQ_e(c) − κ std_e ΔQ_e(c)

What all critics agree upon is worth a departure from the first proposal; where they differ, it stays. A chunk is made
quicker by larger displacements, so twins are for actions that are displacements (`tcp_delta`); the gripper's component
is left as it is. Observations are normalised by the proposer's statistics, actions are in the world's units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from policies.networks.ensemble import EnsembleMlp, evaluate
from policies.policy import ChunkPolicy, ProposerPolicy
from policies.settings import MOST, check_layers
from robolearn.core import ActionChunk, BadInput, Interface, Observation
from robots.chunk_execution import ActionParts, Delayed

DRAWS = 8  # predictions for each proposal of a delayed policy: the path that the arm has begun should be among them


@dataclass(frozen=True)
class BestOfNConfig:
    """Settings of `BestOfNPolicy`."""

    name: ClassVar[str] = "best_of_n"
    takes_proposer: ClassVar[bool] = True

    critics: int = 4
    """Members of the ensemble."""
    width: int = 128
    """Units of a hidden layer."""
    depth: int = 2
    """Hidden layers."""
    batch_norm: bool = False
    """Batch norm in the place of LayerNorm."""
    proposals: int = 4
    """P, chunks that are proposed in each state."""
    tempo: float = 0.5
    """τ: twins are up to so much quicker, or half as much slower; 0 for no twins."""
    caution: float = 0.5
    """κ, standard deviations of the ensemble that are taken off a candidate's advantage over the first proposal."""

    def __post_init__(self) -> None:
        check_layers("critics, width, depth", critics=self.critics, width=self.width, depth=self.depth)
        if not (1 <= self.proposals <= MOST and 0.0 <= self.tempo <= 4.0 and 0.0 <= self.caution <= 100.0):
            got = (self.proposals, self.tempo, self.caution)
            raise BadInput("proposals, tempo, caution", got=got, expected="at least 1; 0 to 4; 0 to 100")

    def build(self, interface: Interface, proposer: ChunkPolicy) -> BestOfNPolicy:
        return BestOfNPolicy(proposer, self)


class BestOfNPolicy(ProposerPolicy):
    """π, of whose chunks critics choose the best.

    Attributes:
      critics: Q_e of (features, chunk).
      trusted: 1 where critics choose; at 0 the first proposal is executed.
    """

    config: BestOfNConfig
    trusted: Tensor
    stretched: Tensor

    def __init__(self, proposer: ChunkPolicy, config: BestOfNConfig) -> None:
        super().__init__(proposer, (config.proposals, *proposer.net.noise_shape))
        self.config = config
        self.encoder.requires_grad_(False)  # critics and replay rely on its encodings
        size = {"width": config.width, "depth": config.depth, "batch_norm": config.batch_norm}
        self.critics = EnsembleMlp(config.critics, self.feature_size + self.size, 1, **size)
        self.register_buffer("trusted", torch.tensor(0.0))
        displaced = torch.from_numpy(ActionParts.of(self.interface).displaced)
        self.register_buffer("stretched", displaced.repeat(self.execute_steps), persistent=False)

    @torch.inference_mode()
    def act_delayed(self, delayed: Delayed, observation: Observation) -> ActionChunk:
        """As `act`, where proposing takes time: proposed from what was seen then, chosen by what is seen now."""
        noise = np.concatenate([self.noise.draw(len(delayed.age)) for _ in range(DRAWS)], axis=1)
        then, now = (self.encoded(self._tensors(self._features(seen))) for seen in (delayed.before, observation))
        proposals = self.propose_delayed(then, delayed, torch.from_numpy(noise).to(self.device))
        return self._actions(self.best(self.encode(now), proposals).cpu().numpy())

    def decide(self, observation: Mapping[str, Tensor], noise: Tensor) -> Tensor:
        """The chosen chunk; the tempos of the twins are spread evenly over what was explored."""
        observation = self.encoded(observation)
        proposals = self.propose(observation, noise)
        # f_i from 1 − τ/2 to 1 + τ: a tight place may want a slower twin
        slowest, quickest = 1.0 - 0.5 * self.config.tempo, 1.0 + self.config.tempo
        tempo = torch.linspace(quickest, slowest, proposals.shape[1], device=proposals.device)
        return self.best(self.encode(observation), self.candidates(proposals, tempo.expand(proposals.shape[:2])))

    def propose(self, observation: Mapping[str, Tensor], x0: Tensor) -> Tensor:
        """Standard normal noise (B, P, *noise_shape) → (B, P, H · Da) chunks in [-1, 1]."""
        return self._predict(observation, x0)[:, :, : self.execute_steps].flatten(2)

    def propose_delayed(self, observation: Mapping[str, Tensor], delayed: Delayed, x0: Tensor) -> Tensor:
        """The observation of then and noise (B, M, *noise_shape) → (B, P, H · Da) chunks in [-1, 1] for now, of the M
        predictions that the arm has begun to follow. They have no twins."""
        paths = self._predict(observation, x0).cpu().numpy()
        chunks = delayed.catch_up(paths, self.interface, steps=self.execute_steps, keep=self.config.proposals)
        return torch.from_numpy(chunks).flatten(2).to(x0.device)

    def _predict(self, observation: Mapping[str, Tensor], x0: Tensor) -> Tensor:
        """(B, M, *noise_shape) → (B, M, Tp, Da) in [-1, 1]."""
        net, normalizer = self.proposer.net, self.proposer.normalizer
        count, each = x0.shape[:2]
        cond = net.encode(normalizer.observation(observation)).repeat_interleave(each, 0)
        chunks = net.sample(cond, x0.flatten(0, 1) * net.initial_noise_std)
        return normalizer.action_back(chunks).clamp(-1.0, 1.0).unflatten(0, (count, each))

    def candidates(self, proposals: Tensor, tempo: Tensor) -> Tensor:
        """(B, P, D), f (B, P) → (B, 2 P, D): the proposals, then their twins; without twins the proposals alone."""
        if not self.config.tempo:
            return proposals
        twins = torch.where(self.stretched, (proposals * tempo[..., None]).clamp(-1.0, 1.0), proposals)
        return torch.cat((proposals, twins), 1)

    def uncertainty(self, observation: Mapping[str, Tensor], proposals: Tensor) -> dict[str, Tensor]:
        """Measures of uncertainty, each (B,), of proposals (B, P, D).

        critics    mean_i std_e Q_e(s, a_i)      disagreement of the critics
        proposals  mean_d std_i a_i              spread of the proposals
        value      −mean_{i,e} Q_e(s, a_i)       no disagreement: the expected failure
        """
        values = self.values(self.encode(observation), proposals)
        return {
            "critics": values.std(0, correction=0).mean(1),
            "proposals": proposals.std(1, correction=0).mean(1),
            "value": -values.mean((0, 2)),
        }

    def values(self, features: Tensor, candidates: Tensor) -> Tensor:
        """(B, F) and (B, C, D) → (E, B, C)."""
        return evaluate(self.critics, features, candidates)

    def best(self, features: Tensor, candidates: Tensor) -> Tensor:
        """(B, F) and (B, C, D) → (B, D) the chosen ones."""
        chosen = self.choose(self.values(features, candidates))
        return candidates[torch.arange(candidates.shape[0], device=candidates.device), chosen]

    def choose(self, values: Tensor) -> Tensor:
        """(E, B, C) → (B,) the candidate; the first one until critics are trusted."""
        # argmax_c  mean_e ΔQ − κ std_e ΔQ
        ahead = values - values[:, :, :1]
        return (ahead.mean(0) - self.config.caution * ahead.std(0, correction=0)).argmax(1) * (self.trusted > 0.5)
