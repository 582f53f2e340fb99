"""What a policy is: the frozen dataclasses in its config.json, whose fields are flags of ``robolearn train``.

Apart from the networks so that reading a command line does not load torch. A docstring below a field is its help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from policies.networks.encoder_settings import EncoderConfig
from robolearn.core import BadInput
from robolearn.core.switches import switch

NETWORKS = ("mlp", "unet1d", "transformer")
ACTIVATIONS = ("silu", "mish", "relu", "tanh")
TIME_SAMPLING = ("uniform", "beta", "logit_normal")
PREDICTIONS = ("epsilon", "sample", "v_prediction")
SCHEDULES = ("squaredcos_cap_v2", "linear")
MOST, DEEPEST = 65_536, 1_000  # of whatever a config.json asks for, which may be a stranger's
SPACINGS = ("trailing", "leading", "linspace")


@dataclass(frozen=True)
class NetworkConfig:
    """The network from (chunk, time, condition) to a chunk."""

    kind: Annotated[Literal["mlp", "unet1d", "transformer"], tyro.conf.arg(name="network")] = "mlp"
    """A residual MLP over the flat chunk, a conditional 1-D U-Net along its time, or a transformer whose actions attend
    to what is observed."""
    width: int = 256
    """Units per layer of the MLP or the transformer."""
    depth: int = 3
    """Layers of the MLP or the transformer."""
    heads: int = 4
    """Attention heads of the transformer; they divide its width."""
    channels: tuple[int, ...] = (32, 64)
    """Channels per level of the U-Net."""
    activation: Literal["silu", "mish", "relu", "tanh"] = "silu"
    """Of MLP and U-Net."""
    norm: Annotated[bool, tyro.conf.arg(name="layer-norm")] = False
    """LayerNorm before each residual layer of the MLP."""
    embedding: Annotated[int, tyro.conf.arg(name="time-embedding")] = 16
    """Fourier features of the flow time, an even number."""
    image_features: int = 64
    """Length of the encoding of one camera."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)

    def __post_init__(self) -> None:
        if self.kind not in NETWORKS:
            raise BadInput("network", got=self.kind, available=NETWORKS)
        check_heads(self.heads, self.width if self.kind == "transformer" else self.heads)
        if self.activation not in ACTIVATIONS:
            raise BadInput("activation", got=self.activation, available=ACTIVATIONS)
        if self.embedding < 2 or self.embedding % 2:
            raise BadInput("time embedding", got=self.embedding, expected="an even number of at least 2")
        channels_fit = self.channels and all(type(c) is int and c > 0 for c in self.channels)
        size = (self.width, self.depth, *self.channels, self.embedding, self.image_features)
        if self.width < 1 or self.depth < 1 or not channels_fit or max(size) > MOST or self.depth > DEEPEST:
            expected = f"positive numbers up to {MOST}, and at most {DEEPEST} layers"
            raise BadInput("network size", got=(self.width, self.depth, self.channels), expected=expected)


@dataclass(frozen=True)
class FlowConfig:
    """A flow policy: rectified flow, or a shortcut model."""

    kind: Annotated[Literal["rectified", "shortcut"], tyro.conf.arg(name="flow")] = "rectified"
    """The kind of flow; the velocity of shortcut models also depends on the step size, so that large steps are
    learned."""
    steps: Annotated[int, tyro.conf.arg(name="denoise-steps")] = 4
    """K, Euler steps from noise to action."""
    horizon: int = 4
    """Tp, actions in a predicted chunk."""
    execute: int = 4
    """Ta, how many of them are executed before the policy is asked again."""
    observe: Annotated[int, tyro.conf.arg(name="observe-steps")] = 1
    """To, observed steps: the newest one and those before it, also those inside an executed chunk."""
    initial_noise_std: Annotated[float, tyro.conf.arg(name="initial-noise-std")] = 1.0
    """Standard deviation of x_0 when the policy acts. Training always sees 1, the prior of the flow; less keeps to the
    middle of what was demonstrated, 0 makes the policy deterministic. Fine-tuning chooses it."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    time_sampling: Literal["uniform", "beta", "logit_normal"] = "uniform"
    """Density of the flow time in training: beta as in π0, more weight near the noise; logit_normal, in the middle."""
    mask_padding: Annotated[bool, switch("mask-padding")] = True
    """Leave the padded steps of a chunk that reaches over the end of its episode out of the loss: nobody commanded
    them. --no-mask-padding trains on them (a repetition of the last action)."""
    consistency: float = 0.25
    """Share of a batch that trains self-consistency (shortcut only)."""
    levels: int = 4
    """The smallest trained step of a shortcut model is 2^-levels."""
    goal_dropout: float = 0.1
    """p, share of a batch that is trained without its goal, so that --guidance has what to compare with (policies with
    --goal only)."""
    guidance: float = 1.0
    """w, how much of what the goal changes is taken when the policy acts: v + w (v with the goal - v), v being without;
    1: no guidance (policies with --goal only)."""

    def __post_init__(self) -> None:
        if self.kind not in ("rectified", "shortcut"):
            raise BadInput("flow kind", got=self.kind, available=("rectified", "shortcut"))
        if self.time_sampling not in TIME_SAMPLING:
            raise BadInput("time sampling", got=self.time_sampling, available=TIME_SAMPLING)
        check_chunk(self.steps, self.horizon, self.execute, self.observe)
        check_goal(self.goal_dropout, self.guidance)
        if not 0.0 <= self.initial_noise_std <= 1.0:
            raise BadInput("initial noise std", got=self.initial_noise_std, expected="0 to 1")
        if self.kind == "shortcut" and not (0 < self.consistency < 1 and 1 <= self.levels <= 10):
            raise BadInput(
                "shortcut", got=(self.consistency, self.levels), expected="0 < consistency < 1, levels 1..10"
            )
        if self.kind == "shortcut" and self.steps > 2**self.levels:
            raise BadInput("shortcut steps", got=self.steps, expected=f"at most 2^levels = {2**self.levels}")


@dataclass(frozen=True)
class DiffusionConfig:
    """A diffusion policy, trained by DDPM and sampled by DDIM."""

    steps: Annotated[int, tyro.conf.arg(name="denoise-steps")] = 10
    """K, denoising steps when sampling."""
    train_steps: Annotated[int, tyro.conf.arg(name="noise-schedule-steps")] = 100
    """Length of the noise schedule in training."""
    eta: float = 0.0
    """0 samples by DDIM, 1 by the ancestral sampler of DDPM; fine-tuning wants 0."""
    initial_noise_std: Annotated[float, tyro.conf.arg(name="initial-noise-std")] = 1.0
    """Standard deviation of the first noise when the policy acts; training always sees 1. Fine-tuning chooses it."""
    prediction: Literal["epsilon", "sample", "v_prediction"] = "epsilon"
    """What the network predicts."""
    schedule: Literal["squaredcos_cap_v2", "linear"] = "squaredcos_cap_v2"
    """The noise schedule, by its name in diffusers."""
    spacing: Literal["trailing", "leading", "linspace"] = "trailing"
    """Which of the schedule's steps are taken when sampling, by its name in diffusers; trailing begins with
    pure noise."""
    horizon: int = 4
    """Tp, actions in a predicted chunk."""
    execute: int = 4
    """Ta, how many of them are executed before the policy is asked again."""
    observe: Annotated[int, tyro.conf.arg(name="observe-steps")] = 1
    """To, observed steps: the newest one and those before it, also those inside an executed chunk."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    mask_padding: Annotated[bool, switch("mask-padding")] = True
    """As of a flow policy."""
    goal_dropout: float = 0.1
    """p, share of a batch that is trained without its goal, so that --guidance has what to compare with (policies with
    --goal only)."""
    guidance: float = 1.0
    """w, how much of what the goal changes is taken when the policy acts: v + w (v with the goal - v), v being without;
    1: no guidance (policies with --goal only)."""

    def __post_init__(self) -> None:
        check_chunk(self.steps, self.horizon, self.execute, self.observe)
        check_goal(self.goal_dropout, self.guidance)
        if not self.steps <= self.train_steps <= MOST:
            expected = f"at most train_steps = {self.train_steps}, and that at most {MOST}"
            raise BadInput("denoising steps K", got=self.steps, expected=expected)
        if not 0.0 <= self.eta <= 1.0:
            raise BadInput("eta", got=self.eta, expected="between 0 (DDIM) and 1 (DDPM)")
        if not 0.0 <= self.initial_noise_std <= 1.0:
            raise BadInput("initial noise std", got=self.initial_noise_std, expected="0 to 1")
        for what, value, available in (
            ("prediction", self.prediction, PREDICTIONS),
            ("noise schedule", self.schedule, SCHEDULES),
            ("spacing", self.spacing, SPACINGS),
        ):
            if value not in available:
                raise BadInput(what, got=value, available=available)


@dataclass(frozen=True)
class RegressionConfig:
    """A policy that predicts the chunk itself, in one step or in two: the baseline that any flow has to beat."""

    steps: Annotated[Literal[1, 2], tyro.conf.arg(name="regression-steps")] = 2
    """1: plain regression. 2: the first prediction is refined by a second one, which was trained on noisy chunks."""
    noise: Annotated[float, tyro.conf.arg(name="refine-noise")] = 0.1
    """σ, standard deviation of that noise; a chunk's components fill [-1, 1]."""
    horizon: int = 4
    """Tp, actions in a predicted chunk."""
    execute: int = 4
    """Ta, how many of them are executed before the policy is asked again."""
    observe: Annotated[int, tyro.conf.arg(name="observe-steps")] = 1
    """To, observed steps: the newest one and those before it, also those inside an executed chunk."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    mask_padding: Annotated[bool, switch("mask-padding")] = True
    """As of a flow policy."""

    def __post_init__(self) -> None:
        check_chunk(self.steps, self.horizon, self.execute, self.observe)
        if self.steps > 2:
            raise BadInput("regression steps", got=self.steps, available=(1, 2))
        if not 0.0 < self.noise < 1.0:
            raise BadInput("refine noise", got=self.noise, expected="between 0 and 1")


@dataclass(frozen=True)
class ActConfig:
    """Action chunking with transformers: a conditional VAE over chunks (ACT)."""

    horizon: int = 16
    """Tp, actions in a predicted chunk."""
    execute: int = 8
    """Ta, how many of them are executed before the policy is asked again."""
    observe: Annotated[int, tyro.conf.arg(name="observe-steps")] = 1
    """To, observed steps."""
    latent: int = 16
    """Length of the style variable z, which is 0 when the policy acts."""
    kl_weight: float = 10.0
    """β, weight of the KL divergence of the style from N(0, 1)."""
    network: NetworkConfig = field(default_factory=lambda: NetworkConfig("transformer", width=128, depth=2))
    mask_padding: Annotated[bool, switch("mask-padding")] = True
    """As of a flow policy."""

    def __post_init__(self) -> None:
        check_chunk(1, self.horizon, self.execute, self.observe)
        if self.network.kind != "transformer":
            raise BadInput("network of act", got=self.network.kind, available=("transformer",))
        if not 1 <= self.latent <= MOST:
            raise BadInput("latent", got=self.latent, expected=f"1 to {MOST}")
        if not 0.0 <= self.kl_weight < math.inf:
            raise BadInput("kl weight", got=self.kl_weight, expected="at least 0")


@dataclass(frozen=True)
class CriticsConfig:
    """An ensemble of critics that is part of a policy."""

    critics: int = 4
    """Members of the ensemble."""
    width: int = 128
    """Units of a hidden layer."""
    depth: int = 2
    """Hidden layers."""
    batch_norm: bool = False
    """Batch norm in the place of LayerNorm."""

    def __post_init__(self) -> None:
        if not (1 <= self.critics <= MOST and 1 <= self.width <= MOST and 1 <= self.depth <= DEEPEST):
            got = (self.critics, self.width, self.depth)
            raise BadInput("critics, width, depth", got=got, expected=f"positive numbers up to {MOST}")


@dataclass(frozen=True)
class ChosenConfig(CriticsConfig):
    """A policy whose chunks critics choose; see `policies.wrappers.best_of_n`."""

    proposals: int = 4
    """P, chunks that are proposed in each state."""
    tempo: float = 0.5
    """τ: twins are up to so much quicker, or half as much slower; 0 for no twins."""
    caution: float = 0.5
    """κ, standard deviations of the ensemble that are taken off a candidate's advantage over the first proposal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (1 <= self.proposals <= MOST and 0.0 <= self.tempo <= 4.0 and 0.0 <= self.caution <= 100.0):
            got = (self.proposals, self.tempo, self.caution)
            raise BadInput("proposals, tempo, caution", got=got, expected="at least 1; 0 to 4; 0 to 100")


@dataclass(frozen=True)
class ActorConfig:
    """A policy that is one squashed Gaussian, of chunks (`policies.kinds.gaussian`) or of noise
    (`policies.wrappers.noise_steered`)."""

    execute: int = 4
    """Ta, actions in a chunk."""
    width: int = 128
    """Units of a hidden layer."""
    depth: int = 2
    """Hidden layers."""
    magnitude: float = 1.0
    """The largest component."""

    def __post_init__(self) -> None:
        if not (1 <= self.execute <= MOST and 1 <= self.width <= MOST and 1 <= self.depth <= DEEPEST):
            got = (self.execute, self.width, self.depth)
            raise BadInput("execute, width, depth", got=got, expected=f"positive numbers up to {MOST}")
        if not 0.0 < self.magnitude <= 10.0:
            raise BadInput("magnitude", got=self.magnitude, expected="0 to 10")


@dataclass(frozen=True)
class GaussianConfig(ActorConfig):
    """A squashed Gaussian of chunks; see `policies.kinds.gaussian`."""

    discrete_gripper: bool = False
    """The gripper is not the Gaussian's: critics choose among close, stay and open."""


DenoisingConfig = FlowConfig | DiffusionConfig
PolicyConfig = FlowConfig | DiffusionConfig | RegressionConfig | ActConfig
DENOISING: dict[str, type[FlowConfig] | type[DiffusionConfig]] = {"flow": FlowConfig, "diffusion": DiffusionConfig}
"""Policies with a likelihood step by step: what is fine-tuned by RL."""
POLICIES: dict[str, type[FlowConfig] | type[DiffusionConfig] | type[RegressionConfig] | type[ActConfig]] = {
    **DENOISING,
    "regression": RegressionConfig,
    "act": ActConfig,
}
RENAMED = {"start_noise": "initial_noise_std"}  # settings in checkpoints that were written under another name
BEFORE = {"spacing": "leading"}  # settings of policies whose checkpoint does not state them


def check_chunk(steps: int, horizon: int, execute: int, observe: int) -> None:
    """Raise `BadInput` unless K, Tp, Ta, To make sense together."""
    if min(steps, horizon, execute, observe) < 1:
        raise BadInput("K, Tp, Ta, To", got=(steps, horizon, execute, observe), expected="at least 1 each")
    if max(steps, horizon, observe) > MOST:
        raise BadInput("K, Tp, Ta, To", got=(steps, horizon, execute, observe), expected=f"at most {MOST} each")
    if execute > horizon:
        raise BadInput("executed steps Ta", got=execute, expected=f"at most the horizon Tp = {horizon}")


def check_goal(dropout: float, guidance: float) -> None:
    """Raise `BadInput` unless a goal can be dropped so often, and be followed with that guidance."""
    if not 0.0 <= dropout < 1.0:
        raise BadInput("--goal-dropout", got=dropout, expected="0 to less than 1")
    if not 0.0 <= guidance <= 100.0:
        raise BadInput("--guidance", got=guidance, expected="0 to 100; 1 is without guidance")


def check_heads(heads: int, width: int) -> None:
    """Raise `BadInput` unless a transformer of `width` can have so many heads."""
    if not 1 <= heads <= MOST or width % heads:
        raise BadInput("attention heads", got=f"{heads} of a width of {width}", expected="a divisor of the width")
