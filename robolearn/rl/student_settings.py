"""Configs of the algorithms whose copy of the policy goes on learning, offline and online. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

from robolearn.core import BadInput
from robolearn.core.switches import Count, Inside, NotNegative, Positive, Share, Within
from robolearn.rl.off_policy_settings import NEVER, OffPolicyConfig
from robolearn.rl.settings import NoiseConfig, ReinFlowConfig


@dataclass(frozen=True, kw_only=True)
class StudentConfig(OffPolicyConfig):
    """Settings of algorithms whose copy of the policy imitates what its critics hold to be good."""

    explores_by_itself: ClassVar[bool] = False  # its rollouts have a noise of their own, whatever the initial noise
    later: ClassVar[dict[str, Any]] = OffPolicyConfig.later | {"initial_noise": None}

    initial_noise: Annotated[float | None, Within(0.0, 1.0)] = None
    """Standard deviation of the noise that the copy denoises from; by default the policy's own. With 0 all proposals
    are one; 1 is what imitation trains with."""
    proposals: Count = 1
    """Chunks that the policy proposes when it acts, among which the critics choose; 1: they do not."""
    caution: NotNegative = 0.5
    """Standard deviations of the ensemble that are taken off a candidate's advantage over the first proposal."""
    imitate_lr: Positive = 3e-4
    """Learning rate of the imitation."""
    imitate_average: Share = 0.999
    """Decay of the averaged weights, which act."""

    def __post_init__(self) -> None:
        super().__post_init__()
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

    expectile: Inside = 0.9
    """κ of the values: 0.5 is what was done on average, towards 1 the best of it."""
    beta: NotNegative = 200.0
    """β: windows are imitated with the weight exp(β · advantage), advantages in units of the rewards; 0 imitates all
    alike."""
    weight_max: Positive = 100.0
    """The largest weight."""


@dataclass(frozen=True, kw_only=True)
class RiqlConfig(IqlConfig):
    """Implicit Q-learning from data of which a part is corrupted."""

    title: ClassVar[str] = "RIQL"
    page: ClassVar[str] = "robolearn.rl.algorithms.riql:Riql"

    critics: Count = 10
    """Members of the critic ensemble."""
    quantile: Share = 0.25
    """α: quantile of the critics that a window is worth; 0 is their minimum."""
    huber: Positive = 0.1
    """δ: errors of the critics beyond it count by their direction alone; in units of the rewards."""


@dataclass(frozen=True, kw_only=True)
class FamO2oConfig(IqlConfig):
    """Implicit Q-learning of a family of policies, and a balance that critics choose for each state."""

    title: ClassVar[str] = "FamO2O"
    samples_base: ClassVar[bool] = False
    page: ClassVar[str] = "robolearn.rl.algorithms.famo2o:FamO2o"

    beta: NotNegative = 400.0
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

    n_step: Count = 4
    """Chunks whose rewards are summed before a value is looked at: an advantage is over so many."""
    positive: Inside = 0.3
    """p: share of the windows without a human whose advantage counts as good; what a human did always does."""
    indicator_dropout: Annotated[float, Within(0.0, 0.99)] = 0.1
    """Share of the windows that are learned without being called good or not."""
    guidance: Annotated[float, Within(0.0, 100.0)] = 1.0
    """w, how much of what being good changes is taken: v + w (v of what is good - v), v being of all windows; 1: no
    guidance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guidance != 1.0 and not self.indicator_dropout:
            raise BadInput("--guidance", got=self.guidance, expected="1, or --indicator-dropout above 0")


@dataclass(frozen=True, kw_only=True)
class ReBracConfig(StudentConfig):
    """A policy that climbs its critics and is held near what was done, in their targets, too."""

    title: ClassVar[str] = "ReBRAC"
    page: ClassVar[str] = "robolearn.rl.algorithms.rebrac:ReBrac"

    actor_bc: NotNegative = 30.0
    """β₁: weight of the imitation, beside values that are scaled to 1."""
    critic_bc: NotNegative = 0.1
    """β₂: what the squared distance of the next chunk to what was done costs; in units of the rewards."""


@dataclass(frozen=True, kw_only=True)
class Ro2oConfig(ReBracConfig):
    """An ensemble that is smooth around what was seen and doubts what was not; less pessimistic once online."""

    title: ClassVar[str] = "RO2O"
    page: ClassVar[str] = "robolearn.rl.algorithms.ro2o:Ro2o"

    critics: Annotated[int, Within(2)] = 10
    """Members of the critic ensemble: offline their minimum is the target, online the mean minimum of two."""
    perturbation: Share = 0.01
    """ε: features are changed by up to so much, in their standard deviations."""
    perturbed: Count = 2
    """Changed observations for each one."""
    smooth_critic: NotNegative = 1.0
    """η_Q: what a value that changes with the observation costs."""
    asymmetry: Share = 0.2
    """α: weight of a value that falls; one that rises has 1 − α."""
    smooth_actor: NotNegative = 1.0
    """η_π: what a chunk that changes with the observation costs, beside values that are scaled to 1."""
    unseen: NotNegative = 0.5
    """η_ood: weight of the doubt about the policy's own chunks."""
    uncertainty: NotNegative = 1.0
    """λ: standard deviations of the ensemble that those are to be worth less."""


@dataclass(frozen=True, kw_only=True)
class CalQlConfig(StudentConfig):
    """Calibrated conservative critics, which choose among chunks of a copy that imitates what succeeded."""

    title: ClassVar[str] = "Cal-QL"
    page: ClassVar[str] = "robolearn.rl.algorithms.cal_ql:CalQl"

    proposals: Count = 8
    """Chunks that the policy proposes when it acts, among which the critics choose."""
    backup_proposals: Count = 2
    """Chunks that they choose among in the target."""
    conservatism: NotNegative = 0.02
    """α: how much values of what was not done are pressed down; in units of the rewards."""
    unseen: Count = 4
    """Chunks that are pressed down for each window, of the policy and at random each."""


@dataclass(frozen=True, kw_only=True)
class OgpoConfig(StudentConfig):
    """Critics of replayed experience judge groups of fresh chunks, and the policy moves by PPO's clipped surrogate."""

    explores_by_itself: ClassVar[bool] = True
    title: ClassVar[str] = "OGPO"
    page: ClassVar[str] = "robolearn.rl.algorithms.ogpo:Ogpo"

    critics: Count = 10
    """Members of the critic ensemble, whose mean is read."""
    tau: Positive = 0.05
    """Share of the critics that moves into their targets with each update."""
    imitate_lr: Positive = 4.5e-5
    """Learning rate of the policy."""
    states: Count = 8
    """States of a batch in which the policy is moved."""
    group: Annotated[int, Within(2)] = 32
    """Chunks that are drawn in each of them."""
    sigma: Positive = 0.05
    """Standard deviation of the noise in the sampler's last step."""
    clip: Positive = 0.01
    """ε of the clipped surrogate."""
    epochs: Count = 2
    """Gradient steps on the same groups; with one no ratio is ever clipped."""
    imitation: NotNegative = 1.0
    """c: weight of the imitation of own successes and demonstrations."""
    backup_proposals: Count = 8
    """Chunks that the target's maximum is taken over."""
    trust_after: Annotated[int, Within(0)] = 1000
    """Updates of the critics before they move the policy."""


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

    expectile: Inside = 0.7
    """κ of the values: 0.5 is what was done on average, towards 1 the best of it."""
    beta: NotNegative = 0.0
    """β of the imitation to begin with: windows weigh exp(β · advantage), advantages in units of the rewards; 0
    imitates all alike."""
    imitate_average: Share = 0.999
    """Decay of the averaged weights, from which the surrogate begins."""
    trust_after: Annotated[int, Within(0)] = 1000
    """Updates of the critics, beside imitation, before the surrogate moves the policy."""
    surrogate_lr: Positive = 4.5e-5
    """Learning rate of the surrogate."""
    states: Count = 32
    """States of a batch in which the policy is moved."""
    group: Count = 4
    """Chunks that are drawn in each of them."""
    sigma: Positive = 0.05
    """Standard deviation of the noise in the sampler's last step."""
    clip: Positive = 0.1
    """ε of the clipped surrogate."""
    gate_every: Count = 50
    """Updates between two questions to the evaluation, whether what was learned shall act."""
    gate_caution: NotNegative = 1.0
    """Standard deviations of the evaluation's critics by which the gain has to be above 0."""
    decisions: Count = 20
    """Online: chunks a world and rollout."""

    def __post_init__(self) -> None:
        super().__post_init__()
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
