"""Configs of the algorithms whose copy of the policy goes on learning, offline and online. Loads no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from robolearn.core import BadInput
from robolearn.core.switches import check_least, check_positive, check_range
from robolearn.rl.off_policy_settings import NEVER, OffPolicyConfig
from robolearn.rl.settings import NoiseConfig, ReinFlowConfig


@dataclass(frozen=True, kw_only=True)
class StudentConfig(OffPolicyConfig):
    """Settings of algorithms whose copy of the policy imitates what its critics hold to be good."""

    explores_by_itself: ClassVar[bool] = False  # its rollouts have a noise of their own, whatever the initial noise
    later: ClassVar[dict[str, Any]] = OffPolicyConfig.later | {"initial_noise": None}

    initial_noise: float | None = None
    """Standard deviation of the noise that the copy denoises from; by default the policy's own. With 0 all proposals
    are one; 1 is what imitation trains with."""
    proposals: int = 1
    """Chunks that the policy proposes when it acts, among which the critics choose; 1: they do not."""
    caution: float = 0.5
    """Standard deviations of the ensemble that are taken off a candidate's advantage over the first proposal."""
    imitate_lr: float = 3e-4
    """Learning rate of the imitation."""
    imitate_average: float = 0.999
    """Decay of the averaged weights, which act."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "proposals")
        check_range(self, caution=(0.0, math.inf), imitate_average=(0.0, 1.0))
        if self.initial_noise is not None:
            check_range(self, initial_noise=(0.0, 1.0))
        check_positive(self, "imitate_lr")
        if self.cross_q:
            raise BadInput(
                "--cross-q", got=f"with {self.title}", expected="another algorithm: its targets are slow ones"
            )


@dataclass(frozen=True, kw_only=True)
class IqlConfig(StudentConfig):
    """Implicit Q-learning: offline from successes and failures alike, and from there online."""

    title: ClassVar[str] = "IQL"
    samples_base: ClassVar[bool] = True
    page: ClassVar[str] = "robolearn.rl.algorithms.iql:Iql"

    expectile: float = 0.9
    """κ of the values: 0.5 is what was done on average, towards 1 the best of it."""
    beta: float = 200.0
    """β: windows are imitated with the weight exp(β · advantage), advantages in units of the rewards; 0 imitates all
    alike."""
    weight_max: float = 100.0
    """The largest weight."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.expectile < 1.0:
            raise BadInput("--expectile", got=self.expectile, expected="between 0 and 1")
        check_range(self, beta=(0.0, math.inf))
        check_positive(self, "weight_max")


@dataclass(frozen=True, kw_only=True)
class RiqlConfig(IqlConfig):
    """Implicit Q-learning from data of which a part is corrupted."""

    title: ClassVar[str] = "RIQL"
    page: ClassVar[str] = "robolearn.rl.algorithms.riql:Riql"

    critics: int = 10
    """Members of the critic ensemble."""
    quantile: float = 0.25
    """α: quantile of the critics that a window is worth; 0 is their minimum."""
    huber: float = 0.1
    """δ: errors of the critics beyond it count by their direction alone; in units of the rewards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, quantile=(0.0, 1.0))
        check_positive(self, "huber")


@dataclass(frozen=True, kw_only=True)
class FamO2oConfig(IqlConfig):
    """Implicit Q-learning of a family of policies, and a balance that critics choose for each state."""

    title: ClassVar[str] = "FamO2O"
    samples_base: ClassVar[bool] = False
    page: ClassVar[str] = "robolearn.rl.algorithms.famo2o:FamO2o"

    beta: float = 400.0
    """The largest β of the family: windows are imitated with the weight exp(β · advantage)."""
    beta_min: float = 10.0
    """The smallest β of the family."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.beta_min < self.beta:
            raise BadInput("--beta-min", got=self.beta_min, expected=f"above 0 and below --beta, {self.beta:g}")


@dataclass(frozen=True, kw_only=True)
class RecapConfig(StudentConfig):
    """Imitation that sees which windows were good, by their advantage, and acts as if all were."""

    title: ClassVar[str] = "RECAP"
    page: ClassVar[str] = "robolearn.rl.algorithms.recap:Recap"

    n_step: int = 4
    """Chunks whose rewards are summed before a value is looked at: an advantage is over so many."""
    positive: float = 0.3
    """p: share of the windows without a human whose advantage counts as good; what a human did always does."""
    indicator_dropout: float = 0.1
    """Share of the windows that are learned without being called good or not."""
    guidance: float = 1.0
    """w, how much of what being good changes is taken: v + w (v of what is good - v), v being of all windows; 1: no
    guidance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.positive < 1.0:
            raise BadInput("--positive", got=self.positive, expected="between 0 and 1")
        check_range(self, indicator_dropout=(0.0, 0.99), guidance=(0.0, 100.0))
        if self.guidance != 1.0 and not self.indicator_dropout:
            raise BadInput("--guidance", got=self.guidance, expected="1, or --indicator-dropout above 0")


@dataclass(frozen=True, kw_only=True)
class ReBracConfig(StudentConfig):
    """A policy that climbs its critics and is held near what was done, in their targets, too."""

    title: ClassVar[str] = "ReBRAC"
    page: ClassVar[str] = "robolearn.rl.algorithms.rebrac:ReBrac"

    actor_bc: float = 30.0
    """β₁: weight of the imitation, beside values that are scaled to 1."""
    critic_bc: float = 0.1
    """β₂: what the squared distance of the next chunk to what was done costs; in units of the rewards."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, actor_bc=(0.0, math.inf), critic_bc=(0.0, math.inf))


@dataclass(frozen=True, kw_only=True)
class Ro2oConfig(ReBracConfig):
    """An ensemble that is smooth around what was seen and doubts what was not; less pessimistic once online."""

    title: ClassVar[str] = "RO2O"
    page: ClassVar[str] = "robolearn.rl.algorithms.ro2o:Ro2o"

    critics: int = 10
    """Members of the critic ensemble: offline their minimum is the target, online the mean minimum of two."""
    perturbation: float = 0.01
    """ε: features are changed by up to so much, in their standard deviations."""
    perturbed: int = 2
    """Changed observations for each one."""
    smooth_critic: float = 1.0
    """η_Q: what a value that changes with the observation costs."""
    asymmetry: float = 0.2
    """α: weight of a value that falls; one that rises has 1 − α."""
    smooth_actor: float = 1.0
    """η_π: what a chunk that changes with the observation costs, beside values that are scaled to 1."""
    unseen: float = 0.5
    """η_ood: weight of the doubt about the policy's own chunks."""
    uncertainty: float = 1.0
    """λ: standard deviations of the ensemble that those are to be worth less."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 2, "critics")
        check_least(self, 1, "perturbed")
        check_range(self, perturbation=(0.0, 1.0), asymmetry=(0.0, 1.0), smooth_critic=(0.0, math.inf))
        check_range(self, smooth_actor=(0.0, math.inf), unseen=(0.0, math.inf), uncertainty=(0.0, math.inf))


@dataclass(frozen=True, kw_only=True)
class CalQlConfig(StudentConfig):
    """Calibrated conservative critics, which choose among chunks of a copy that imitates what succeeded."""

    title: ClassVar[str] = "Cal-QL"
    page: ClassVar[str] = "robolearn.rl.algorithms.cal_ql:CalQl"

    proposals: int = 8
    """Chunks that the policy proposes when it acts, among which the critics choose."""
    backup_proposals: int = 2
    """Chunks that they choose among in the target."""
    conservatism: float = 0.02
    """α: how much values of what was not done are pressed down; in units of the rewards."""
    unseen: int = 4
    """Chunks that are pressed down for each window, of the policy and at random each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "backup_proposals", "unseen")
        check_range(self, conservatism=(0.0, math.inf))


@dataclass(frozen=True, kw_only=True)
class OgpoConfig(StudentConfig):
    """Critics of replayed experience judge groups of fresh chunks, and the policy moves by PPO's clipped surrogate."""

    explores_by_itself: ClassVar[bool] = True
    title: ClassVar[str] = "OGPO"
    page: ClassVar[str] = "robolearn.rl.algorithms.ogpo:Ogpo"

    critics: int = 10
    """Members of the critic ensemble, whose mean is read."""
    tau: float = 0.05
    """Share of the critics that moves into their targets with each update."""
    imitate_lr: float = 4.5e-5
    """Learning rate of the policy."""
    states: int = 8
    """States of a batch in which the policy is moved."""
    group: int = 32
    """Chunks that are drawn in each of them."""
    sigma: float = 0.05
    """Standard deviation of the noise in the sampler's last step."""
    clip: float = 0.01
    """ε of the clipped surrogate."""
    epochs: int = 2
    """Gradient steps on the same groups; with one no ratio is ever clipped."""
    imitation: float = 1.0
    """c: weight of the imitation of own successes and demonstrations."""
    backup_proposals: int = 8
    """Chunks that the target's maximum is taken over."""
    trust_after: int = 1000
    """Updates of the critics before they move the policy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "states", "epochs", "backup_proposals")
        check_least(self, 2, "group")
        check_range(self, imitation=(0.0, math.inf), trust_after=(0, math.inf))
        check_positive(self, "sigma", "clip")


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
