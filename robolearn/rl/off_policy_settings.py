"""Configs of the off-policy algorithms: frozen dataclasses whose fields are flags. Loads no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from importlib import import_module
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import tyro

from robolearn.core import BadInput
from robolearn.core.switches import Count, NotNegative, Positive, Share, Within, check_ranges
from robolearn.rl.settings import AlgorithmConfig, OnPolicyConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policies.policy import ChunkPolicy
    from robolearn.core import Env, RewardModel
    from robolearn.data.replay import PlayedEpisode
    from robolearn.rl.adversary import AdversaryConfig
    from robolearn.rl.along import AlongConfig


NEVER = 10**9  # updates


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(AlgorithmConfig):
    """Settings that the off-policy algorithms share."""

    later: ClassVar[dict[str, Any]] = {"return_weight": 0.0}

    gamma: Share = 0.99
    """Discount of one control step: what a quicker success is worth against a surer one."""
    batch: Count = 128
    """Windows per gradient step."""
    demo_share: Share = 0.5
    """Share of a batch that comes from demonstrations and interventions."""
    utd: Positive = 1.0
    """Critic updates per control step (update-to-data ratio); it is kept, and logged."""
    actor_every: Count = 1
    """Critic updates per update of the actor."""
    critics: Count = 4
    """Members of the critic ensemble."""
    subset: Count = 2
    """Members, drawn anew for each target, that the minimum is taken of."""
    tau: Positive = 0.005
    """Share of the critics that moves into their targets with each update."""
    lr: Positive = 3e-4
    """Learning rate of critics, soft actors and their temperature."""
    width: Count = 128
    """Units of a hidden layer of critics and soft actors."""
    depth: Count = 2
    """Hidden layers."""
    capacity: Count = 200_000
    """Frames that each replay buffer keeps, the oldest of what was played forgotten first; stored episodes must fit."""
    warmup: Annotated[int, Within(0)] = 200
    """Control steps before the first update."""
    return_weight: Annotated[float, Within(0.0, 50.0)] = 0.0
    """ω: windows are drawn with probabilities proportional to exp(ω · return of their episode), the returns scaled to
    0 … 1; for data of mixed quality. 0 draws all alike."""
    n_step: Count = 1
    """Chunks whose rewards are summed before a value is looked at (n-step returns)."""
    dropout: Annotated[float, Within(0.0, 0.9)] = 0.0
    """Share of the critics' hidden units that is dropped while they learn (DroQ; there 0.01)."""
    cross_q: bool = False
    """Critics with batch normalisation, of what was done and what comes next in one pass, without targets (CrossQ);
    after 100,000 updates it is batch renormalisation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset > self.critics:
            raise BadInput("--subset", got=self.subset, expected=f"at most the {self.critics} critics")

    def build(self, base: ChunkPolicy, *, seed: int) -> Any:
        """The algorithm around `base`, whose weights stay as they are. Raises `BadInput`: a base that RL does not start
        from."""
        import_module("robolearn.rl.actors").check_tunable(base)  # which needs torch
        return self.page_class()(base, self, seed=seed)

    def online(self, num_envs: int, execute: int) -> OnPolicyConfig | None:
        """Settings of the online phase where it is on-policy, in `num_envs` worlds by chunks of `execute` steps; None:
        it goes on by replay."""
        return None

    def updates_paid(self, env_steps: int) -> int:
        """Updates ⌊utd · (steps − warmup)⌋ that so many control steps in the replay pay for."""
        return math.floor(self.utd * max(env_steps - self.warmup, 0))

    @property
    def acting_delay(self) -> int:
        """Control steps that a decision takes while it learns in a simulated world."""
        return 0

    @property
    def initial_temperature(self) -> float | None:
        """α to begin with, of algorithms that have one."""
        return None

    def without_critics(self) -> Self:
        """The same, where critics never change what is executed: what imitation of the operator does alone."""
        return self


@dataclass(frozen=True, kw_only=True)
class SoftConfig(OffPolicyConfig):
    """Settings of soft actor-critic."""

    temperature: float = 0.01
    """α to begin with; it follows the target entropy."""
    target_entropy: float = 0.5
    """Target of the entropy, as a multiple of −|A| nats, the number of action components."""

    @property
    def initial_temperature(self) -> float | None:
        return self.temperature


@dataclass(frozen=True, kw_only=True)
class RlpdConfig(SoftConfig):
    """RLPD: soft actor-critic with demonstrations in every batch."""

    title: ClassVar[str] = "RLPD"
    page: ClassVar[str] = "robolearn.rl.algorithms.rlpd:Rlpd"

    critics: Count = 10
    """Members of the critic ensemble."""
    backup_entropy: bool = False
    """Count the entropy into the target of the critics."""
    discrete_gripper: bool = False
    """Choose among closing, staying and opening by a critic of the gripper's own (double DQN); the actor moves the
    arm."""
    gripper_penalty: NotNegative = 0.02
    """Cost of each change of a discrete gripper."""


@dataclass(frozen=True, kw_only=True)
class DsrlConfig(SoftConfig):
    """DSRL: soft actor-critic on the initial noise of the frozen policy."""

    title: ClassVar[str] = "DSRL"
    samples_base: ClassVar[bool] = True
    page: ClassVar[str] = "robolearn.rl.algorithms.dsrl:Dsrl"
    later: ClassVar[dict[str, Any]] = SoftConfig.later | {"steer_weight": 0.0, "steer_error": 0.1}

    magnitude: Positive = 1.5
    """The largest component of the noise."""
    noise_steps: Count = 2
    """Gradient steps of the noise's critics per update of the actor."""
    steer_weight: NotNegative = 0.0
    """λ: weight of the noise that would have made what a person did, in demonstrations and interventions, beside what
    critics say (UniSteer); 0: critics alone teach the actor."""
    steer_error: Positive = 0.1
    """Root mean square, in units of actions (-1 to 1), beyond which a person's chunk is made of no noise: such windows
    teach the actor nothing, and are counted."""


@dataclass(frozen=True, kw_only=True)
class ProposalsConfig(OffPolicyConfig):
    """A copy of the policy that goes on learning by imitation, and critics that choose among its chunks."""

    title: ClassVar[str] = "proposals"
    samples_base: ClassVar[bool] = True
    page: ClassVar[str] = "robolearn.rl.algorithms.proposals:Proposals"

    proposals: Count = 4
    """Chunks that are proposed in each state; each gets a twin of another tempo."""
    backup_proposals: int = 1
    """Chunks that the target's maximum is taken over, each with its twin."""
    proposal_noise: Share = 0.5
    """Standard deviation of the noise that proposals are denoised from; learning always sees 1. Less keeps to the
    middle of what was shown, 0 makes all proposals one."""
    tempo: Annotated[float, Within(0.0, 4.0)] = 0.5
    """Largest gain in tempo of a twin, for actions that are displacements; when exploring it may also be half as much
    slower. 0 for no twins."""
    delay_steps: Annotated[int, Within(0)] = 0
    """Control steps that proposing takes while it learns: what is executed then was proposed from an observation that
    old, and has no twins. In simulated worlds; an arm has a delay of its own."""
    caution: NotNegative = 0.5
    """Standard deviations of the ensemble that are taken off a candidate's advantage over the first proposal."""
    ask_for_help: NotNegative = 0.0
    """Standard deviation of the critics about what is proposed, above which the console says that the policy is unsure;
    0 for never. `robolearn benchmark hil` says what it foretells, and gives a threshold."""
    trust_after: Annotated[int, Within(0)] = 6000
    """Updates of the critics before they choose; until then the first proposal is executed."""
    imitate_own: bool = False
    """Imitate the policy's own steps that led to success unaided, too. It makes a policy quicker and quicker: what
    succeeded at the tempo of a twin is proposed next time, and gets a twin again."""
    imitate_rows: Count = 128
    """Windows per gradient step of the imitation, as far as a batch has windows that are worth it."""
    imitate_lr: Positive = 3e-4
    """Learning rate of the imitation."""
    imitate_average: Share = 0.999
    """Decay of the averaged weights, which propose."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.backup_proposals <= self.proposals:
            raise BadInput("--backup-proposals", got=self.backup_proposals, expected=f"1 to {self.proposals}")

    @property
    def acting_delay(self) -> int:
        return self.delay_steps

    def without_critics(self) -> Self:
        return replace(self, trust_after=NEVER)


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """An off-policy algorithm on stored episodes, and in simulated worlds side by side, whose episodes all go into its
    replay."""

    num_envs: Annotated[int, tyro.conf.arg(name="worlds"), Within(1)] = 16
    """Worlds side by side."""
    updates: Annotated[int, Within(0)] = 0
    """Updates offline: from --data alone, before the first control step. Its episodes then count as they were recorded,
    with their rewards, ends and successes, and failures are learned from; at 0 they are demonstrations, failures left
    out."""
    algorithm: OffPolicyConfig = field(default_factory=ProposalsConfig)

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def title(self) -> str:
        """Name of the algorithm, as people write it."""
        return self.algorithm.title

    @property
    def samples_base(self) -> bool:
        """As of the algorithm."""
        return self.algorithm.samples_base

    takes_demonstrations: ClassVar[bool] = True
    sigma_max = None  # actions are explored otherwise

    def stored(self) -> dict[str, Any]:
        """For a run's config.json."""
        offline = {"updates": self.updates} if self.updates else {}
        return {"num_envs": self.num_envs, **offline, **self.algorithm.stored()}

    def runner(
        self,
        policy: ChunkPolicy,
        env: Env | None,
        env_steps: int,
        seed: int,
        name: str,
        demonstrations: Iterable[PlayedEpisode] = (),
        model: RewardModel | None = None,
        backward: ChunkPolicy | None = None,
        shown: Iterable[PlayedEpisode] = (),
        back_model: RewardModel | None = None,
        judges: tuple[RewardModel, RewardModel] | None = None,
        altered: AlongConfig | AdversaryConfig | None = None,
    ) -> Any:
        """A trainer that fine-tunes `policy`, in `env` or without worlds, and `backward` with it where nobody resets;
        see `robolearn.rl.replay_runner.ReplayRunner`, `robolearn.rl.two_way_runner.TwoWayRunner`,
        `robolearn.rl.offline_runner.FreshRunner` and `robolearn.rl.offline_runner.OfflineRunner`."""
        if env is None:
            made = resolve_name("robolearn.rl.offline_runner:OfflineRunner")
            return made(policy, self.algorithm, self.updates, seed, demonstrations, model)
        if backward is not None:
            made = resolve_name("robolearn.rl.two_way_runner:TwoWayRunner")
            both = demonstrations, model, name, backward, shown, back_model, judges
            return made(policy, env, self.algorithm, env_steps, seed, *both)
        fresh = self.algorithm.online(self.num_envs, policy.execute_steps) is not None
        made = resolve_name(f"robolearn.rl.{'offline_runner:Fresh' if fresh else 'replay_runner:Replay'}Runner")
        return made(policy, env, self.algorithm, env_steps, seed, demonstrations, model, name, self.updates, altered)

    def check_budget(self, max_episode_steps: int, execute: int, env_steps: int) -> None:
        """Raise `BadInput` unless `env_steps` pay for an iteration."""
        if (online := self.algorithm.online(self.num_envs, execute)) is not None:
            online.check_budget(max_episode_steps, execute, env_steps)
            return
        resolve_name("robolearn.rl.replay_runner:check_budget")(self.num_envs, execute, env_steps)

    def step_discount(self, execute: int) -> float:
        """Discount of one control step."""
        return self.algorithm.gamma
