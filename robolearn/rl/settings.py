"""Configs of the on-policy algorithms: frozen dataclasses whose fields are the flags of ``robolearn finetune``.

A config holds what depends on the algorithm before anything is built: its flags, what it can do, what an iteration
costs. Reading a command line loads no torch, so `build` imports the algorithm's page. A docstring below a field is its
help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from robolearn.core import BadInput, check_choice
from robolearn.core.switches import Count, NotNegative, Positive, Share, Within, check_ranges
from robolearn.io.json_files import plain
from robolearn.rewards.shaping import Shaping

if TYPE_CHECKING:
    from policies.policy import ChunkPolicy
    from robolearn.core import Env, Interface, RewardModel
    from robolearn.rl.adversary import AdversaryConfig
    from robolearn.rl.along import AlongConfig

UNKNOWN_EPISODE = 1000  # control steps to reckon with where a world states no limit

BACKWARD = "back"
"""Folder of the policy of the way back, in that of the other one, and the prefix of its metrics."""


@dataclass(frozen=True)
class NoiseConfig:
    """Range and schedule of the injected noise, in units of the normalised action."""

    sigma_max: float = 0.0
    """Largest standard deviation of the noise of one denoising step; 0 chooses the range by calibration."""
    sigma_min: float = 0.0
    """Smallest; 0: a share of the largest."""
    min_share: Annotated[float, tyro.conf.arg(name="sigma-min-share")] = 0.25
    """The share of the largest noise that the smallest is, where it is not given."""
    steps: Annotated[Literal["last", "all"], tyro.conf.arg(name="noise-steps")] = "last"
    """Denoising steps that are noised: the last one, or all as in the papers."""
    initial: Annotated[float | None, tyro.conf.arg(name="initial-noise")] = None
    """Standard deviation of the noise that denoising begins with; by default chosen by calibration, or the policy's
    own where --sigma-max is given. 1 is what imitation trains with."""
    hold: Annotated[float, tyro.conf.arg(name="noise-hold")] = 0.35
    """Share of the budget before the largest noise begins to fall."""
    hidden: Annotated[int, tyro.conf.arg(name="noise-hidden")] = 64
    """Width of the two hidden layers of the noise network."""
    within: Annotated[float, tyro.conf.arg(name="noise-within")] = 0.0
    """The farthest that a draw may be from its mean, in standard deviations: 3 in ReinFlow's paper; 0: any distance."""
    clip_means: bool = False
    """Clamp the mean of every denoising step to ±1, as ReinFlow's paper does; there no gradient goes through it."""

    def __post_init__(self) -> None:
        if self.sigma_max and not 0 <= self.sigma_min <= self.sigma_max < math.inf:
            raise BadInput(
                "range of the noise", got=(self.sigma_min, self.sigma_max), expected="0 <= sigma-min <= sigma-max"
            )
        if not 0 < self.min_share <= 1:
            raise BadInput("sigma-min-share", got=self.min_share, expected="more than 0, at most 1")
        if not 0 <= self.within < math.inf:
            raise BadInput("noise-within", got=self.within, expected="0 or more")
        if self.initial is not None and not 0 <= self.initial <= 1:
            raise BadInput("initial-noise", got=self.initial, expected="0 to 1")

    @property
    def sigma_range(self) -> tuple[float, float]:
        """(σ_min, σ_max)."""
        return self.sigma_min or self.sigma_max * self.min_share, self.sigma_max


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """An algorithm's settings, and what it is.

    Attributes:
      samples_base: it only samples from the policy that it begins with, which may be another maker's.
    """

    title: ClassVar[str]  # as people write it
    samples_base: ClassVar[bool] = False
    page: ClassVar[str]  # ``module:Class`` of the algorithm, imported by `build`
    later: ClassVar[dict[str, Any]] = {}  # options that older runs do not have → what they did

    def __post_init__(self) -> None:
        check_ranges(self)

    def page_class(self) -> Any:
        """The class that `page` names."""
        return resolve_name(self.page)

    def stored(self) -> dict[str, Any]:
        """For a run's config.json: without the options of `later` that are as they were, so that older runs resume."""
        values = plain(self)
        for path, value in self.later.items():
            *above, name = path.split(".")
            place = values[above[0]] if above else values
            if place.get(name) == value:
                del place[name]
        return values


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(AlgorithmConfig):
    """Settings that the on-policy algorithms share; the defaults serve every embedded task.

    Attributes:
      cheaper: flags that make an iteration cheaper.
      takes_demonstrations: it learns from stored episodes beside its own.
      by_success: of the world it looks at the success alone, not at rewards.
    """

    cheaper: ClassVar[tuple[str, ...]] = ("--worlds",)
    takes_demonstrations: ClassVar[bool] = False
    by_success: ClassVar[bool] = False
    later: ClassVar[dict[str, Any]] = {
        "exponent": "root",
        "lr_schedule": "kl",
        "lr_end": 0.5,
        "weigh": "decision",
        "noise.within": 0.0,
        "noise.clip_means": False,
        "reward_shaping": "shaped",
    }

    num_envs: Annotated[int, tyro.conf.arg(name="worlds"), Within(1)] = 64
    """Worlds side by side."""
    gamma: Share = 0.99
    """Discount of one decision (an executed chunk)."""
    actor_lr: Positive = 2e-4
    """Learning rate of the policy at the beginning; it then follows --target-kl, between 1e-5 and 2e-3."""
    epochs: Count = 3
    """Passes of the policy over a rollout."""
    minibatch: Annotated[int | None, Within(2)] = None
    """Chunks per gradient step; by default half of a rollout."""
    clip: Positive = 0.1
    """ε: how far a ratio of likelihoods may go; see --exponent."""
    target_kl: Positive = 0.4
    """Size of one iteration of the policy: KL divergence of a chunk, per noised denoising step [nats]; it falls on a
    cosine to a half. The learning rate is raised where the divergence stays below half of it and lowered above twice,
    epochs end at 4 times it, and a step that went further is shortened."""
    entropy: NotNegative = 0.0
    """Weight of the entropy term."""
    regulariser: Literal["none", "kl", "w2"] = "none"
    """Distance that keeps the policy near the demonstrations."""
    regularisation: NotNegative = 0.0
    """Its weight."""
    max_grad_norm: Positive = 1.0
    """Largest norm of a gradient, of policy and critic each."""
    average: Share = 0.8
    """Decay per iteration of the exported average of weights; 0 exports the last weights."""
    exponent: Literal["root", "mean"] = "root"
    """Exponent of a ratio: the log-likelihood divided by the root of its number of terms, or its mean over them, cut as
    in the papers (ReinFlow: ±1, DPPO: -5 to 2), whose --clip is 0.01."""
    lr_schedule: Literal["kl", "cosine", "constant"] = "kl"
    """kl: the policy's learning rate follows --target-kl. cosine: those of policy and critic fall to --lr-end of what
    they began with. constant: they stay. With the latter two no step is shortened and no epoch is cut."""
    lr_end: Share = 0.5
    """Share of the learning rates that a cosine ends with."""
    reward_shaping: Shaping = "shaped"
    """Rewards of a reward model beside 1 for what it calls done: shaped by the potential of its progress; raw
    differences of it (delta) or shares of what was left (share, VLAC's), which may make another policy the best; or
    none."""
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    threads: Count = 2
    """Shares of a batch that are learned from side by side; the same number gives the same weights, bit for bit, on any
    number of CPUs. The simulation uses every CPU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("--reward-shaping", self.reward_shaping, Shaping)
        check_choice("--regulariser", self.regulariser, ("kl", "w2", "none"))

    def build(self, policy: ChunkPolicy, *, seed: int, infinite: bool = False, offered: Interface | None = None) -> Any:
        """The algorithm for `num_envs` worlds; `policy`'s network is trained in place, on its device.

        Args:
          seed: of the weights that are new and of the noise.
          infinite: the world's time limit means nothing to the task; see `looks_beyond_the_time_limit`.
          offered: by the worlds, for a critic that observes something else than the policy.

        Raises:
          BadInput: a policy that the algorithm cannot fine-tune.
        """
        return self.page_class()(policy, self, seed=seed)

    def runner(
        self, policy: ChunkPolicy, env: Env, env_steps: int, seed: int, name: str, model: RewardModel | None = None,
        altered: AlongConfig | AdversaryConfig | None = None,
    ) -> Any:  # fmt: skip
        """A trainer that fine-tunes `policy` in `env`; see `robolearn.rl.runner.Runner`."""
        return resolve_name("robolearn.rl.runner:Runner")(policy, env, self, env_steps, seed, name, model, altered)

    def check_budget(self, max_episode_steps: int, execute: int, env_steps: int) -> None:
        """Raise `BadInput` unless `env_steps` pay for learning; see `robolearn.rl.runner.check_budget`."""
        resolve_name("robolearn.rl.runner:check_budget")(self, max_episode_steps, execute, env_steps)

    def step_discount(self, execute: int) -> float:
        """Discount of one control step, where a decision takes `execute` of them."""
        return self.gamma ** (1.0 / execute)

    @property
    def sigma_max(self) -> float:
        """Largest standard deviation of the injected noise; 0 until calibration has chosen it."""
        return self.noise.sigma_max

    @property
    def group_size(self) -> int:
        """Worlds that begin alike; it divides `num_envs`."""
        return 1

    @property
    def warmup_iterations(self) -> int:
        """Iterations before the policy is moved."""
        return 0

    def iteration_cost(self, max_episode_steps: int, execute: int) -> int:
        """The most control steps that an iteration takes: here, an episode in every world. `max_episode_steps`: of the
        worlds; 0 where they state no limit. `execute`: Ta."""
        return self.num_envs * math.ceil((max_episode_steps or UNKNOWN_EPISODE) / execute) * execute

    def looks_beyond_the_time_limit(self, *, reports_success: bool, max_episode_steps: int) -> bool:
        """True where a time limit is no end of the task to the critic."""
        return False


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(OnPolicyConfig):
    """Settings of the algorithms that have a critic."""

    cheaper: ClassVar[tuple[str, ...]] = ("--worlds", "--decisions")

    chunks_per_rollout: Annotated[int, tyro.conf.arg(aliases=["--decisions"]), Within(1)] = 20
    """Action chunks a world and iteration."""
    lam: Share = 0.9
    """λ of generalised advantage estimation."""
    critic_lr: Positive = 1e-3
    """Learning rate of the critic."""
    critic_epochs: Count = 6
    """Passes of the critic over a rollout."""
    critic_warmup: Annotated[int, Within(0)] = 3
    """Iterations in which only the critic learns."""
    critic_observe: tuple[str, ...] = ()
    """Features of the critic, as in --critic-observe proprio objects; by default those of the policy. It is thrown away
    after fine-tuning, so in simulation it may see what no arm has (asymmetric actor and critic)."""
    time_limit: Literal["auto", "finite", "infinite"] = "auto"
    """Meaning of a time limit. finite: nothing counts after it, V = 0 there (a task to be solved in time). infinite:
    the world would go on, so the critic looks beyond it. auto: finite, where the world reports success."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_envs * self.chunks_per_rollout < 2:
            raise BadInput(
                "--worlds times --chunks-per-rollout",
                got=self.num_envs * self.chunks_per_rollout,
                expected="at least 2",
            )

    def build(self, policy: ChunkPolicy, *, seed: int, infinite: bool = False, offered: Interface | None = None) -> Any:
        return self.page_class()(policy, self, seed=seed, infinite=infinite, offered=offered)

    @property
    def warmup_iterations(self) -> int:
        return self.critic_warmup

    def iteration_cost(self, max_episode_steps: int, execute: int) -> int:
        """The control steps of an iteration."""
        return self.num_envs * self.chunks_per_rollout * execute

    def looks_beyond_the_time_limit(self, *, reports_success: bool, max_episode_steps: int) -> bool:
        means_nothing = not reports_success or max_episode_steps <= 0
        return self.time_limit == "infinite" or (self.time_limit == "auto" and means_nothing)


@dataclass(frozen=True, kw_only=True)
class ReinFlowConfig(ActorCriticConfig):
    """PPO on the likelihood of the denoising steps: one ratio per chunk."""

    title: ClassVar[str] = "ReinFlow"
    page: ClassVar[str] = "robolearn.rl.algorithms.reinflow:ReinFlow"


@dataclass(frozen=True, kw_only=True)
class DppoConfig(ActorCriticConfig):
    """PPO over environment steps and denoising steps: one ratio per denoising step."""

    title: ClassVar[str] = "DPPO"
    page: ClassVar[str] = "robolearn.rl.algorithms.dppo:Dppo"

    gamma_denoising: Share = 0.99
    """Discount of the advantage per denoising step that is still to come."""
    clip_first: Positive = 0.01
    """ε of the first denoising step; it grows to --clip at the last, ever faster."""


@dataclass(frozen=True, kw_only=True)
class GrpoConfig(OnPolicyConfig):
    """Episodes from equal starts, each judged by how it compares with the others of its group: no critic."""

    title: ClassVar[str] = "GRPO"
    page: ClassVar[str] = "robolearn.rl.algorithms.grpo:Grpo"

    group: int = 8
    """Worlds that begin alike; it divides --worlds."""
    weigh: Literal["episode", "decision"] = "episode"
    """Units of equal weight in the loss: episodes, as in the paper, or decisions, of which long episodes have more."""
    divide_by_std: bool = False
    """Divide advantages by their group's standard deviation."""
    dual_clip: float | None = None
    """Bound on what a bad sample costs, as a multiple of its advantage (RIFT: 3); by default none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group < 2 or self.num_envs % self.group:
            raise BadInput("--group", got=self.group, expected=f"at least 2, a divisor of --worlds {self.num_envs}")
        if self.dual_clip is not None and not 1 < self.dual_clip < math.inf:
            raise BadInput("--dual-clip", got=self.dual_clip, expected="more than 1")

    @property
    def group_size(self) -> int:
        return self.group


@dataclass(frozen=True, kw_only=True)
class SrpoConfig(GrpoConfig):
    """GRPO whose failures are rewarded by how near they came to the successes of the same rollout."""

    title: ClassVar[str] = "SRPO"
    page: ClassVar[str] = "robolearn.rl.algorithms.srpo:Srpo"
    by_success: ClassVar[bool] = True

    latent: str = "auto"
    """Features by which episodes are compared: pictures (by EfficientNet-Lite0, extra vision), vectors of the state, or
    vjepa2:<model>, whole videos by V-JEPA 2 in a folder or owner/name of the hub (extra vla); auto: pictures where the
    policy sees some."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ("auto", "pictures", "vectors")
        kind, _, model = self.latent.partition(":")
        if self.latent not in known and not (kind == "vjepa2" and model):
            raise BadInput("--latent", got=self.latent, available=(*known, "vjepa2:<model>"))
