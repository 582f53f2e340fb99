"""OGPO: critics of replayed experience judge groups of fresh chunks, and the flow moves by PPO's clipped surrogate.

    a_1 … a_G ~ π_old(· | s),  s of the replay                       with noise σ in the sampler's last step
    A_i   = Q̄(s, a_i) − 1/G Σ_j Q̄(s, a_j),   Q̄ = 1/E Σ_e Q_e         the mean, no minimum
    L_π   = −E[ min(r A, clip(r, 1 − ε, 1 + ε) A) ] + c · L_imitation        of own successes and demonstrations
    V(s') = max_{m ≤ M} Q̄'(s', a_m),   a_m ~ π(· | s')

From `simchowitzlabpublic/OGPO_public`: ten critics whose mean is read, because their minimum holds back, τ 0.05, groups
of 32 that are not divided by their deviation, ε 0.01, the best of 8 in targets, σ 0.05, c 1.
Departures: advantages are standardised over the batch; the noise is in the last step, as `robolearn.rl.actors` has it,
and not in all with a correction of the score; the reward is 1 at success in the place of −1 until it; critics are those
of the other pages here in size; the learning rate is constant; critics move the policy after `trust_after` (1,000)
updates, in the place of 10,000 steps. In `finetune` a batch has no demonstrations once there is experience of its own
(`--demo-share 0`) and a control step pays for one update, as there; `hil` has both buffers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from policies.networks.ensemble import evaluate
from policies.policy import ChunkPolicy
from robolearn.data.replay import ReplayBatch
from robolearn.rl.actors import DenoisingActor, NoiseConfig
from robolearn.rl.algorithms.student import Imitating
from robolearn.rl.returns import clipped_surrogate, standardise
from robolearn.rl.student_settings import OgpoConfig


def group_advantages(values: Tensor) -> Tensor:
    """(E, B, G) values of the chunks of B groups → (B, G): the critics' mean, less its mean over the group."""
    mean = values.mean(0)
    return mean - mean.mean(1, keepdim=True)


class Ogpo(Imitating):
    """See the module."""

    def __init__(self, base: ChunkPolicy, config: OgpoConfig, *, seed: int) -> None:
        super().__init__(base, config, seed=seed, initial_noise=config.initial_noise)
        self.settings = config
        # σ is constant: the noise network's smallest and largest are one, so its weights mean nothing.
        noise = NoiseConfig(sigma_max=config.sigma, min_share=1.0)
        self.actor = DenoisingActor(self.student.net, noise).to(self.device)
        self.actor.noise.requires_grad_(False)

    def explore(self, observation: dict[str, Tensor]) -> Tensor:
        return self.explored(observation, self.actor.noise.config)

    def next_value(self, observation: dict[str, Tensor]) -> Tensor:
        features = self.policy.encode(observation)
        drawn = self.draw(len(features), self.settings.backup_proposals, *self.policy.noise.shape[1:])
        target = self.critic.target
        assert target is not None
        # V(s') = max_m Q̄'(s', a_m)
        return evaluate(target, features, self.policy.propose(observation, drawn)).mean(0).amax(1)

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        worth = torch.nonzero(batch.merit).flatten()
        if self.updates < self.settings.trust_after:
            return {"imitation": self.student.imitate(batch, worth)} if len(worth) else {}
        return self._surrogate_steps(features, batch, worth)

    def _surrogate_steps(self, features: Tensor, batch: ReplayBatch, worth: Tensor) -> dict[str, Tensor]:
        """`epochs` gradient steps on fresh groups of chunks in some of the batch's states."""
        config, group = self.settings, self.settings.group
        states = torch.randperm(len(features), generator=self.order)[: config.states].to(self.device)
        seen, chain, old, chunks = self.groups(self.actor, batch.observation, states, group)
        with torch.no_grad():
            advantage = group_advantages(self.policy.values(features[states], chunks.unflatten(0, (-1, group))))
        scaled = standardise(advantage.flatten())
        for _ in range(config.epochs):
            loss = clipped_surrogate(self.actor.evaluate(seen, chain).joint() - old, scaled, config.clip)
            # L_π = L_clip + c L_imitation
            copied = self.student.loss(batch, worth) if len(worth) else torch.zeros((), device=self.device)
            self.student.step(loss + config.imitation * copied)
        return {"surrogate": loss.detach(), "imitation": copied.detach(), "advantage_std": advantage.std()}
