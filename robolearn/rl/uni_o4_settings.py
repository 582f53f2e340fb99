"""Config of Uni-O4. Loads no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from robolearn.core import BadInput
from robolearn.core.switches import check_least, check_positive, check_range
from robolearn.rl.off_policy_settings import NEVER
from robolearn.rl.settings import NoiseConfig, ReinFlowConfig
from robolearn.rl.student_settings import IqlConfig


@dataclass(frozen=True, kw_only=True)
class UniO4OnlineConfig(ReinFlowConfig):
    """PPO from the policy and the value of the offline phase."""

    page: ClassVar[str] = "robolearn.rl.algorithms.uni_o4:UniO4Online"


@dataclass(frozen=True, kw_only=True)
class UniO4Config(IqlConfig):
    """PPO's clipped surrogate: offline its updates act once an evaluation from data calls them better, online it learns
    from fresh rollouts."""

    explores_by_itself: ClassVar[bool] = True
    title: ClassVar[str] = "Uni-O4"
    samples_base: ClassVar[bool] = False
    page: ClassVar[str] = "robolearn.rl.algorithms.uni_o4:UniO4"

    expectile: float = 0.7
    """κ of the values: 0.5 is what was done on average, towards 1 the best of it."""
    beta: float = 0.0
    """β of the imitation to begin with: windows weigh exp(β · advantage), advantages in units of the rewards; 0
    imitates all alike."""
    imitate_average: float = 0.999
    """Decay of the averaged weights, from which the surrogate begins."""
    trust_after: int = 1000
    """Updates of the critics, beside imitation, before the surrogate moves the policy."""
    surrogate_lr: float = 4.5e-5
    """Learning rate of the surrogate."""
    states: int = 32
    """States of a batch in which the policy is moved."""
    group: int = 4
    """Chunks that are drawn in each of them."""
    sigma: float = 0.05
    """Standard deviation of the noise in the sampler's last step."""
    clip: float = 0.1
    """ε of the clipped surrogate."""
    gate_every: int = 50
    """Updates between two questions to the evaluation, whether what was learned shall act."""
    gate_caution: float = 1.0
    """Standard deviations of the evaluation's critics by which the gain has to be above 0."""
    decisions: int = 20
    """Online: chunks a world and rollout."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "states", "group", "gate_every", "decisions")
        check_range(self, trust_after=(0, math.inf), gate_caution=(0.0, math.inf))
        check_positive(self, "surrogate_lr", "sigma", "clip")
        if self.states * self.group < 2:
            raise BadInput("--states, --group", got="a single chunk", expected="two, to standardise advantages over")
        if self.gate_every % self.actor_every:
            expected = f"a multiple of the {self.actor_every} of --actor-every"
            raise BadInput("--gate-every", got=self.gate_every, expected=expected)

    def online(self, num_envs: int, execute: int) -> UniO4OnlineConfig:
        # σ as offline, and no rollout in which the critic learns alone: it begins at V
        noise = NoiseConfig(sigma_max=self.sigma, min_share=1.0)
        return UniO4OnlineConfig(num_envs=num_envs, chunks_per_rollout=self.decisions, gamma=self.gamma**execute,
                                 clip=self.clip, critic_warmup=0, noise=noise)  # fmt: skip

    def without_critics(self) -> Self:
        return replace(self, trust_after=NEVER)
