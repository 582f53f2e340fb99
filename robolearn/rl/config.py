"""Settings of ReinFlow."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from robolearn.core import BadInput
from robolearn.rl.noise import NoiseConfig


@dataclass(frozen=True)
class ReinFlowConfig:
    """Settings of fine-tuning; the defaults serve every embedded task.

    Attributes:
      env_steps: budget of control steps, calibration of the noise included.
      decisions: T, action chunks a world and iteration.
      gamma: discount a decision (a chunk of Ta steps).
      lam: λ of GAE.
      actor_lr: Adam's step size at the beginning; it then follows `target_kl`.
      critic_lr: of the critic.
      epochs: passes of the actor over an iteration's data.
      critic_epochs: passes of the critic.
      minibatch: chunks a gradient step.
      clip: ε of PPO, for ratios of likelihoods normalised as in `stochastic_flow`.
      target_kl: how far an iteration moves the policy (in the normalised log-likelihood): the step size is raised
        when the KL divergence falls below half of it and lowered above twice, so that one setting serves every
        task, flow and range of noise. Falls on a cosine to a half. An iteration's epochs end at 4 times it, and a
        step that went further is shortened (`trust`).
      entropy: α.
      regulariser: distance to the pre-trained policy: "kl", "w2" or "none".
      regularisation: β.
      critic_warmup: iterations in which only the critic learns.
      max_grad_norm: of actor and critic each.
      average: decay of the exported average of weights, an iteration; 0 exports the last weights.
      noise: range and schedule of the exploration noise.
      threads: shares of a batch whose gradients are computed side by side (`shards`). Sums come out bit for bit the
        same only for the same number, which is therefore not the machine's.
      seed: of everything random here.
    """

    env_steps: int = 300_000
    decisions: int = 20
    gamma: float = 0.99
    lam: float = 0.9
    actor_lr: float = 2e-4
    critic_lr: float = 1e-3
    epochs: int = 3
    critic_epochs: int = 6
    minibatch: int = 640
    clip: float = 0.1
    target_kl: float = 0.015
    entropy: float = 0.0
    regulariser: str = "none"
    regularisation: float = 0.0
    critic_warmup: int = 3
    max_grad_norm: float = 1.0
    average: float = 0.8
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    threads: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.regulariser not in ("kl", "w2", "none"):
            raise BadInput("regulariser", got=self.regulariser, available=("kl", "w2", "none"))
        if min(self.decisions, self.epochs, self.critic_epochs, self.threads) < 1 or self.minibatch < 2:
            raise BadInput(
                "decisions, epochs, critic_epochs, minibatch", expected="positive numbers (minibatch at least 2)"
            )
        for name, low, high in (
            ("gamma", 0.0, 1.0),
            ("lam", 0.0, 1.0),
            ("entropy", 0.0, math.inf),
            ("regularisation", 0.0, math.inf),
            ("seed", 0, 2**63),
        ):
            value = getattr(self, name)
            if not (low <= value <= high and math.isfinite(value)):
                raise BadInput(name, got=value, expected=f"{low} to {high}" if high < 2 else "0 or more")
        for name in ("actor_lr", "critic_lr", "clip", "target_kl"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadInput(name, got=getattr(self, name), expected="a positive number")
