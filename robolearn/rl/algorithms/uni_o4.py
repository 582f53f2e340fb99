"""Uni-O4: one on-policy objective offline and online, whose updates act once an evaluation from data calls them better.

    a_1 … a_G ~ π_k(· | s),  s of the replay               with noise σ in the sampler's last step
    A     = min_{e ∈ S} Q'_e(s, a) − V(s)                  Q and V as `robolearn.rl.algorithms.iql` fits them
    L_π   = −E[ min(r A, clip(r, 1 − ε, 1 + ε) A) ],       r = π(a | s) / π_k(a | s)
    y_J   = R + d · 1/E Σ_e Q'ᴶ_e(s', a'),  a' ~ π_k       fitted-Q evaluation of what acts
    Δ_e   = E_s[ Qᴶ_e(s, π(s, x_0)) − Qᴶ_e(s, π_k(s, x_0)) ],   the same x_0 for both
    gate  : π_{k+1} = π where mean_e Δ_e > κ_J std_e Δ_e, else π ← π_k,    every `gate_every` updates

Lei et al., ICLR 2024, after behaviour proximal policy optimisation (Zhuang et al. 2023). It begins with imitation of
the data (`trust_after` updates, in which the critics learn, too); the average of these weights is π_0. The judge Qᴶ has
critics of its own: who proposes an update does not judge it, and π_k alone acts and is exported.
Departures: the gate is a fitted-Q evaluation in the states of a batch, one decision long, in the place of the returns
of rollouts in a model that was learned; one policy in the place of an ensemble that covers the data by its
disagreement; advantages are standardised over the batch; a refused update is taken back.

Online it is PPO from fresh rollouts, without a gate, from π_k and V (`robolearn.rl.offline_runner`):

    L_π = −E[ min(r A, clip(r, 1 − ε, 1 + ε) A) ],  A by GAE from V_φ;   φ_0 = argmin E_rollout (V_φ(s) − V(s) / σ_R)²

σ_R is the running deviation of the return, by which rewards are divided; the first rollout is that of π_k. Where a
person watches (`robolearn hil`) the objective above goes on in states of the replay instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.ensemble import evaluate
from policies.policy import ChunkPolicy
from robolearn.data.replay import ReplayBatch
from robolearn.rl.actors import DenoisingActor, NoiseConfig
from robolearn.rl.algorithms.iql import Iql
from robolearn.rl.algorithms.off_policy import make_critics
from robolearn.rl.algorithms.reinflow import ReinFlow
from robolearn.rl.buffer import RolloutBatch
from robolearn.rl.ensemble_critic import EnsembleCritic
from robolearn.rl.returns import clipped_surrogate, standardise
from robolearn.rl.student_settings import UniO4Config


def better(old: Tensor, new: Tensor, caution: float) -> tuple[bool, float]:
    """Values (E, B, C) by the judge of what two policies do in the same states: (whether the new one is better, by how
    much)."""
    # Δ_e = E_s[ Q_e(s, π) − Q_e(s, π_k) ]
    gain = (new - old).mean((1, 2))
    mean, spread = float(gain.mean()), float(gain.std(correction=0))
    return mean > caution * spread, mean


class UniO4(Iql):
    """See the module."""

    settings: UniO4Config

    def __init__(self, base: ChunkPolicy, config: UniO4Config, *, seed: int) -> None:
        super().__init__(base, config, seed=seed)
        critics = make_critics(config, self.policy.feature_size + self.policy.size)
        self.judge = EnsembleCritic(critics.to(self.device), config, self.generator)
        # σ is constant: the noise network's smallest and largest are one, so its weights mean nothing.
        noise = NoiseConfig(sigma_max=config.sigma, min_share=1.0)
        self.old, self.actor = (
            DenoisingActor(net, noise).to(self.device) for net in (self.policy.proposer.net, self.student.net)
        )
        learned = [parameter for parameter in self.student.net.parameters() if parameter.requires_grad]
        self.surrogate_adam = torch.optim.Adam(learned, lr=config.surrogate_lr, fused=True)
        self.asked = self.accepted = 0  # questions to the judge so far, and those that it affirmed
        self.gain = 0.0  # of the last one

    def explore(self, observation: dict[str, Tensor]) -> Tensor:
        return self.explored(observation, self.old.noise.config)

    def update(self, batch: ReplayBatch) -> dict[str, Tensor]:
        features, actions = self.policy.encode(batch.observation), batch.action.flatten(1)
        with torch.no_grad():
            # y = R + d · mean_e Q'ᴶ_e(s', a'),  a' ~ π_k
            after = self.policy.encode(batch.next_observation)
            chunk = self._chunks(self.policy.proposer.net, batch.next_observation, self._noise(len(batch)))
            target = batch.reward + batch.discount * self.judge.targets(after, chunk[:, None]).mean(0)[:, 0]
        found = self.judge.fit(features, actions, target)
        return super().update(batch) | {"judge_loss": found["critic_loss"], "judged": found["q"]}

    def _noise(self, count: int) -> Tensor:
        return self.draw(count, *self.student.net.noise_shape)

    def _chunks(self, net: Any, observation: dict[str, Tensor], noise: Tensor) -> Tensor:
        """(B, H · Da) of the policy whose network is `net`, of standard normal noise."""
        cond = net.encode(self.policy.proposer.normalizer.observation(observation))
        return self.executed(net.sample(cond, noise * net.initial_noise_std))

    def improve(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        if self.updates <= self.settings.trust_after:
            metrics = super().improve(features, batch)
            if self.updates + self.config.actor_every > self.settings.trust_after:
                self.student.net.load_state_dict(self.policy.proposer.net.state_dict())
            return metrics
        metrics = self._surrogate_steps(features, batch)
        if self.updates % self.settings.gate_every == 0:
            self._gate(features, batch)
        told = {"accepted": self.accepted / max(self.asked, 1), "gain": self.gain}
        return metrics | {name: torch.tensor(value) for name, value in told.items()}

    def _surrogate_steps(self, features: Tensor, batch: ReplayBatch) -> dict[str, Tensor]:
        """A gradient step on fresh chunks of π_k in some of the batch's states."""
        config, group = self.settings, self.settings.group
        states = torch.randperm(len(features), generator=self.order)[: config.states].to(self.device)
        seen, chain, before, chunk = self.groups(self.old, batch.observation, states, group)
        advantage = self.advantage(features[states].repeat_interleave(group, 0), chunk)
        now = self.actor.evaluate(seen, chain).joint()
        loss = clipped_surrogate(now - before, standardise(advantage), config.clip)
        self.surrogate_adam.zero_grad(set_to_none=True)
        loss.backward(inputs=self.surrogate_adam.param_groups[0]["params"])
        nn.utils.clip_grad_norm_(self.surrogate_adam.param_groups[0]["params"], 1.0)
        self.surrogate_adam.step()
        return {"surrogate": loss.detach(), "advantage_std": advantage.std()}

    @torch.no_grad()
    def _gate(self, features: Tensor, batch: ReplayBatch) -> None:
        """π_{k+1} = π where the judge calls it better, else π ← π_k."""
        config, (acts, learns) = self.settings, (self.policy.proposer.net, self.student.net)
        noise = self.draw(config.group, len(batch), *learns.noise_shape)
        old, new = (
            evaluate(
                self.judge.net, features, torch.stack([self._chunks(net, batch.observation, one) for one in noise], 1)
            )
            for net in (acts, learns)
        )
        yes, self.gain = better(old, new, config.gate_caution)
        self.asked, self.accepted = self.asked + 1, self.accepted + yes
        source, sink = (learns, acts) if yes else (acts, learns)
        sink.load_state_dict(source.state_dict())

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return super().optimizers() | {"surrogate": self.surrogate_adam, "judge": self.judge.adam}

    def modules(self) -> dict[str, nn.Module]:
        assert self.judge.target is not None
        return super().modules() | {"judge": self.judge.net, "judge_target": self.judge.target}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, meta = super().state()
        return tensors, meta | {"gate": [self.asked, self.accepted, self.gain]}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        super().load_state(tensors, meta)
        self.asked, self.accepted, self.gain = int(meta["gate"][0]), int(meta["gate"][1]), float(meta["gate"][2])


class UniO4Online(ReinFlow):
    """The online phase. `value`: V of the offline one, (B,) of observations, until the critic has taken it over."""

    value: Callable[[dict[str, Tensor]], Tensor] | None = None

    def update(self, batch: RolloutBatch, i: int, progress: float) -> dict[str, float]:
        if self.value is not None:
            with torch.no_grad():
                # φ_0 = argmin E (V_φ(s) − V(s) / σ_R)²
                begun = self.value(batch.observation) / self.scale.std
            self.baseline.fit(batch, begun)
            self.value = None
        return super().update(batch, i, progress)
