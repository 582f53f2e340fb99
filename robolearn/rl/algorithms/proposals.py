"""Proposals and twins: a copy of the base goes on learning by imitation, critics choose among its chunks.

    a_i ~ π(· | s),  C(s) = {a_i} ∪ {clip(f_i a_i)},  f_i ~ U(1 − τ/2, 1 + τ)                             i = 1 … P
    act:    the candidate that all critics hold to be ahead of a_1 (`policies.wrappers.best_of_n`)
    V(s') = min_{e ∈ S} Q'_e(s', c*),  c* chosen in the same way among some of C(s')
    L_π   = the loss of flow matching or denoising, on what an operator did (and, if asked for, on own successes)

After EXPO (`Servo97/EXPO`: proposals and edits, the maximum for acting and in the target). Departures: an edit is one
number, the tempo of a chunk. An edit policy that climbs Q in all components of a chunk left what critics know and
took success from 66% to 9% within 4,000 steps. What a human did is learned by a flow, not by an edit: demonstrators
have several ways, whose mean is none. Critics choose only after `trust_after` updates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from policies.policy import ChunkPolicy
from policies.wrappers.best_of_n import DRAWS
from robolearn.core import BadInput
from robolearn.data.replay import ReplayBatch
from robolearn.rl.algorithms.student import Imitating
from robolearn.rl.off_policy_settings import ProposalsConfig
from robots.chunk_execution import Delayed


class Proposals(Imitating):
    """See the module."""

    def __init__(self, base: ChunkPolicy, config: ProposalsConfig, *, seed: int) -> None:
        if config.imitate_own and not base.config.learns:
            got = "a base of LeRobot's, whose weights stay as they are"
            raise BadInput("--imitate-own", got=got, expected="--no-imitate-own")
        tempo = 0.0 if config.delay_steps else config.tempo
        super().__init__(base, config, seed=seed, tempo=tempo, trusted=False, initial_noise=config.proposal_noise)
        self.settings = config

    def explore(self, observation: dict[str, Tensor]) -> Tensor:
        count = len(next(iter(observation.values())))
        return self._best(observation, self.policy.propose(observation, self.draw(count, *self.policy.noise.shape)))

    def explore_delayed(self, then: dict[str, Tensor], delayed: Delayed, observation: dict[str, Tensor]) -> Tensor:
        count, (each, *shape) = len(delayed.age), self.policy.noise.shape
        drawn = self.draw(count, DRAWS * each, *shape)
        return self._best(observation, self.policy.propose_delayed(then, delayed, drawn))

    def _best(self, observation: dict[str, Tensor], proposals: Tensor) -> Tensor:
        if limit := self.settings.ask_for_help:
            self.unsure = bool((self.policy.uncertainty(observation, proposals)["critics"] > limit).any())
        return self.policy.best(self.policy.encode(observation), self._candidates(proposals))

    def _candidates(self, proposals: Tensor) -> Tensor:
        # f ~ U(1 − τ/2, 1 + τ)
        uniform = torch.rand(proposals.shape[:2], generator=self.generator, device=self.device)
        return self.policy.candidates(proposals, 1.0 + self.settings.tempo * (1.5 * uniform - 0.5))

    def next_chunk(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | float]:
        features = self.policy.encode(observation)
        drawn = self.draw(len(features), self.settings.backup_proposals, *self.policy.noise.shape[1:])
        candidates = self._candidates(self.policy.propose(observation, drawn))
        return features, self.policy.best(features, candidates), 0.0

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        self.policy.trusted.fill_(float(self.updates >= self.settings.trust_after))
        worth = torch.nonzero(batch.merit if self.settings.imitate_own else batch.intervention).flatten()
        if not len(worth):
            return {}
        some = torch.randperm(len(worth), generator=self.order)[: self.settings.imitate_rows]
        worth = worth[some.to(self.device)]
        return {"imitation": self.student.imitate(batch, worth), "worth": len(worth) / torch.tensor(float(len(batch)))}
