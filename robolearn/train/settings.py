"""Settings of imitation: the frozen dataclass whose fields are flags of ``robolearn train``.

Apart from the trainer so that reading a command line does not load torch. A docstring below a field is its help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from policies.settings import FlowConfig, PolicyConfig
from robolearn.core import BadInput, check_choice
from robolearn.core.switches import Count, Positive, Share, Within, check_ranges, switch

Precision = Literal["float32", "bfloat16"]
Normalise = Literal["deviation", "quantiles"]
VECTORS_BATCH, PICTURES_BATCH = 256, 64  # windows of a gradient step, unless somebody says how many


@dataclass(frozen=True)
class ImitationConfig:
    """Settings of imitation."""

    policy: PolicyConfig = field(default_factory=FlowConfig)
    steps: Count = 3000
    """Gradient steps."""
    steps_per_iteration: Count = 50
    """Gradient steps between two rows of the metrics."""
    batch: Annotated[int | None, Within(1)] = None
    """Windows per gradient step; by default 256, and 64 for a visuomotor policy, whose windows cost 30 times
    as much."""
    accumulate: Count = 1
    """Pieces of a batch, one after the other: the same gradient step with so many times less memory."""
    lr: Positive = 1e-3
    """Learning rate after the warm-up."""
    lr_final: float = 1e-4
    """What a cosine brings it down to."""
    warmup: int = 100
    """Gradient steps of the warm-up."""
    weight_decay: float = 1e-6
    """AdamW's."""
    grad_clip: Positive = 1.0
    """Largest norm of the gradient."""
    ema: float = 0.995
    """Decay of the averaged weights, which are the ones that are exported."""
    validation: float = 0.0
    """Share of the episodes that is kept for validation."""
    seed: int = 0
    """Of the weights, the order of the data and the noise."""
    threads: Count = 1
    """Threads of torch; results are reproducible for one number of threads."""
    precision: Precision = "float32"
    """In what the training loss is computed: float32, or bfloat16 where torch holds it to be safe (autocast). Weights,
    optimiser, averages and checkpoints are float32 either way."""

    cache_features: Annotated[bool, switch("cache-features")] = True
    """Keep what a frozen encoder (--freeze-encoder) makes of each frame, instead of encoding it anew in every epoch."""
    hindsight: Literal["end", "later"] = "end"
    """What a window's goal is, with --goal: the last observation of its episode, or any later one, drawn anew in every
    epoch."""

    normalise: Normalise = "deviation"
    """What observed vectors are scaled by: mean and standard deviation, or the quantiles q01 and q99, which a few wild
    frames do not move."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.batch is not None and self.accumulate > self.batch:
            raise BadInput("--accumulate", got=self.accumulate, expected=f"at most the {self.batch} windows of a batch")
        check_choice("--hindsight", self.hindsight, ("end", "later"))
        check_choice("imitation: precision", self.precision, Precision)
        check_choice("--normalise", self.normalise, Normalise)
        for name in ("ema", "validation"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise BadInput(f"--{name}", got=getattr(self, name), expected="a share from 0 to less than 1")
        for name in ("lr_final", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise BadInput(
                    f"--{name.replace('_', '-')}", got=getattr(self, name), expected="a positive number, or 0"
                )

    def of_size(self, *, pictures: bool) -> ImitationConfig:
        """With the default number of windows where none is given, for a policy with `pictures` or without."""
        if self.batch is not None:
            return self
        return replace(self, batch=PICTURES_BATCH if pictures else VECTORS_BATCH)

    @property
    def windows(self) -> int:
        """Of a gradient step; `of_size` has said how many."""
        assert self.batch is not None
        return self.batch

    @property
    def iterations(self) -> int:
        """Number of iterations that make up `steps`; the last one may be shorter."""
        return -(-self.steps // self.steps_per_iteration)


@dataclass(frozen=True)
class PreferenceConfig(ImitationConfig):
    """Settings of learning from preferences (CPL)."""

    alpha: Positive = 3.0
    """α, how much a difference between the errors of two clips counts."""
    conservative: Share = 0.5
    """λ, share of the worse clip's score in the comparison: with less the policy stays nearer to the data."""
    gamma: Annotated[Positive, Within(0.0, 1.0)] = 1.0
    """γ, discount of later steps of a clip."""
    imitate: float = 1.0
    """β, weight of imitating the better clips."""
    pairs: Count = 16
    """Pairs of clips per gradient step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.imitate < math.inf:
            raise BadInput("--imitate", got=self.imitate, expected="a positive number, or 0")


@dataclass(frozen=True)
class DistillConfig:
    """Settings of the distillation of a privileged policy into a visuomotor one."""

    imitation: ImitationConfig = field(
        default_factory=lambda: ImitationConfig(FlowConfig(initial_noise_std=0.0), steps=4000, batch=64)
    )
    rounds: Count = 6
    """Times that the worlds run; the student learns between them."""
    decisions: Count = 48
    """Decisions of each world in a round."""
    beta: Share = 0.5
    """β: in round r the teacher takes β^r of the decisions, in round 0 all."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.rounds > self.imitation.iterations:
            count, imitation = self.imitation.iterations, self.imitation
            steps = f"--steps {imitation.steps} make so many iterations of {imitation.steps_per_iteration}"
            raise BadInput("--rounds", got=self.rounds, expected=f"at most {count}: {steps}")


@dataclass(frozen=True)
class InverseDynamicsConfig:
    """Settings of the inverse dynamics that label a set without actions."""

    past: Annotated[int, Within(0)] = 1
    """Observations before the step that are looked at, beside its own and the next."""
    ahead: Annotated[int, Within(0)] = 1
    """Observations after the next: an arm that accelerates has moved by then."""
    steps: Count = 400
    """Gradient steps."""
    batch: Count = 256
    """Transitions per gradient step."""
    width: Count = 256
    """Units of a hidden layer."""
    depth: Count = 2
    """Hidden layers."""
    lr: Positive = 1e-3
    """Learning rate at the beginning; a cosine brings it down to 0."""
    validation: float = 0.2
    """Share of the labelled episodes that is held out, to measure the error."""
    seed: int = 0
    """Of the weights, the order of the data and the episodes that are held out."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not 0.0 < self.validation < 1.0:
            raise BadInput("--validation", got=self.validation, expected="a share between 0 and 1")
