"""Kinds of policy that imitation trains: one frozen dataclass each, listed in `POLICIES`.

The fields are stored in config.json and are flags of ``robolearn train``; a docstring below a field is its help. No
import of torch: `PolicyConfig.network` loads it, so that a command line is read without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal

import tyro

from policies.networks.encoder_settings import EncoderConfig
from robolearn.core import BadInput, Interface, check_choice
from robolearn.core.plugins import Table, with_plugins
from robolearn.core.switches import switch

NetworkKind = Literal["mlp", "unet1d", "transformer"]
Activation = Literal["silu", "mish", "relu", "tanh"]
FlowKind = Literal["rectified", "shortcut"]
TimeSampling = Literal["uniform", "beta", "logit_normal"]
Prediction = Literal["epsilon", "sample", "v_prediction"]
NoiseSchedule = Literal["squaredcos_cap_v2", "linear"]
Spacing = Literal["trailing", "leading", "linspace"]
MOST, DEEPEST = 65_536, 1_000  # limits of sizes and layers: a config.json may come from anywhere


@dataclass(frozen=True)
class NetworkConfig:
    """The network from (chunk, time, condition) to a chunk."""

    kind: Annotated[NetworkKind, tyro.conf.arg(name="network")] = "mlp"
    """A residual MLP over the flat chunk, a conditional 1-D U-Net along its time, or a transformer whose actions attend
    to the observation."""
    width: int = 256
    """Units per layer of the MLP or the transformer."""
    depth: int = 3
    """Layers of the MLP or the transformer."""
    heads: int = 4
    """Attention heads of the transformer; they divide its width."""
    channels: tuple[int, ...] = (32, 64)
    """Channels per level of the U-Net."""
    activation: Activation = "silu"
    """Of MLP and U-Net."""
    norm: Annotated[bool, tyro.conf.arg(name="layer-norm")] = False
    """LayerNorm before each residual layer of the MLP."""
    embedding: Annotated[int, tyro.conf.arg(name="time-embedding")] = 16
    """Fourier features of the flow time, an even number."""
    image_features: int = 64
    """Length of the encoding of one camera."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)

    def __post_init__(self) -> None:
        check_choice("network", self.kind, NetworkKind)
        heads, width = self.heads, self.width if self.kind == "transformer" else self.heads
        if not 1 <= heads <= MOST or width % heads:
            raise BadInput("attention heads", got=f"{heads} of a width of {width}", expected="a divisor of the width")
        check_choice("activation", self.activation, Activation)
        if self.embedding < 2 or self.embedding % 2:
            raise BadInput("time embedding", got=self.embedding, expected="an even number of at least 2")
        channels_fit = self.channels and all(type(c) is int and c > 0 for c in self.channels)
        size = (self.width, self.depth, *self.channels, self.embedding, self.image_features)
        if self.width < 1 or self.depth < 1 or not channels_fit or max(size) > MOST or self.depth > DEEPEST:
            expected = f"positive numbers up to {MOST}, and at most {DEEPEST} layers"
            raise BadInput("network size", got=(self.width, self.depth, self.channels), expected=expected)


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """Settings of every kind of policy that imitation trains. A kind is a subclass, listed in `POLICIES`.

    Attributes:
      name: of the kind, in config.json and in --policy.
      page: ``module:Class`` of its `policies.kinds.chunk_net.ChunkNet`, imported by `build`: it needs torch.
      denoises: a `DenoisingConfig`: RL fine-tunes it step by step, critics choose among its samples.
      learns: its weights can be trained here.
    """

    name: ClassVar[str]
    page: ClassVar[str]
    denoises: ClassVar[bool] = False
    learns: ClassVar[bool] = True

    horizon: int = 4
    """Tp, actions in a predicted chunk."""
    execute: int = 4
    """Ta, how many of them are executed before the policy is asked again."""
    observe: Annotated[int, tyro.conf.arg(name="observe-steps")] = 1
    """To, observed steps: the newest one and those before it, also those inside an executed chunk."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    mask_padding: Annotated[bool, switch("mask-padding")] = True
    """Leave the padded steps of a chunk that reaches over the end of its episode out of the loss: they were never
    commanded. --no-mask-padding trains on them (a repetition of the last action)."""

    def build(self, interface: Interface, device: str = "cpu") -> Any:
        """A fresh network; its random weights come from torch's global generator on the CPU. `device`: "meta" gives
        shapes without weights."""
        import torch

        with torch.device(device):
            return resolve_name(self.page)(self, interface)

    def __post_init__(self) -> None:
        sizes = (getattr(self, "steps", 1), self.horizon, self.execute, self.observe)
        if min(sizes) < 1:
            raise BadInput("K, Tp, Ta, To", got=sizes, expected="at least 1 each")
        if max(sizes) > MOST:
            raise BadInput("K, Tp, Ta, To", got=sizes, expected=f"at most {MOST} each")
        if self.execute > self.horizon:
            raise BadInput("executed steps Ta", got=self.execute, expected=f"at most the horizon Tp = {self.horizon}")


@dataclass(frozen=True, kw_only=True)
class DenoisingConfig(PolicyConfig):
    """Settings of policies that go from noise to actions in K steps, each with a likelihood."""

    denoises: ClassVar[bool] = True

    steps: Annotated[int, tyro.conf.arg(name="denoise-steps")] = 4
    """K, denoising steps from noise to action when the policy acts."""
    initial_noise_std: Annotated[float, tyro.conf.arg(name="initial-noise-std")] = 1.0
    """Standard deviation of the first noise x_0 when the policy acts. Training always uses 1; less keeps to the middle
    of what was demonstrated, 0 makes the policy deterministic. Fine-tuning chooses it."""
    goal_dropout: float = 0.1
    """p, share of a batch that is trained without its goal, so that --guidance has what to compare with (policies with
    --goal only)."""
    guidance: float = 1.0
    """w, how much of what the goal changes is taken when the policy acts: v + w (v with the goal - v), v being without;
    1: no guidance (policies with --goal only)."""

    @property
    def guidable(self) -> bool:
        """False where no guidance but 1 can be sampled, whatever the policy observes."""
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.goal_dropout < 1.0:
            raise BadInput("--goal-dropout", got=self.goal_dropout, expected="0 to less than 1")
        if not 0.0 <= self.guidance <= 100.0:
            raise BadInput("--guidance", got=self.guidance, expected="0 to 100; 1 is without guidance")
        if not 0.0 <= self.initial_noise_std <= 1.0:
            raise BadInput("initial noise std", got=self.initial_noise_std, expected="0 to 1")


@dataclass(frozen=True)
class FlowConfig(DenoisingConfig):
    """A flow policy: rectified flow, or a shortcut model."""

    name: ClassVar[str] = "flow"
    page: ClassVar[str] = "policies.kinds.flow:FlowPolicy"

    kind: Annotated[FlowKind, tyro.conf.arg(name="flow")] = "rectified"
    """The kind of flow; the velocity of shortcut models also depends on the step size, so that large steps are
    learned."""
    time_sampling: TimeSampling = "uniform"
    """Density of the flow time in training: beta as in π0, more weight near the noise; logit_normal, in the middle."""
    consistency: float = 0.25
    """Share of a batch that trains self-consistency (shortcut only)."""
    levels: int = 4
    """The smallest trained step of a shortcut model is 2^-levels."""

    @property
    def guidable(self) -> bool:
        # A large step is trained as the mean of two smaller ones that are not guided.
        return self.kind != "shortcut"

    def __post_init__(self) -> None:
        check_choice("flow kind", self.kind, FlowKind)
        check_choice("time sampling", self.time_sampling, TimeSampling)
        super().__post_init__()
        if self.kind == "shortcut" and not (0 < self.consistency < 1 and 1 <= self.levels <= 10):
            raise BadInput(
                "shortcut", got=(self.consistency, self.levels), expected="0 < consistency < 1, levels 1..10"
            )
        if self.kind == "shortcut" and self.steps > 2**self.levels:
            raise BadInput("shortcut steps", got=self.steps, expected=f"at most 2^levels = {2**self.levels}")


@dataclass(frozen=True)
class DiffusionConfig(DenoisingConfig):
    """A diffusion policy, trained by DDPM and sampled by DDIM."""

    name: ClassVar[str] = "diffusion"
    page: ClassVar[str] = "policies.kinds.diffusion:DiffusionPolicy"

    steps: Annotated[int, tyro.conf.arg(name="denoise-steps")] = 10
    """K, denoising steps from noise to action when the policy acts."""
    train_steps: Annotated[int, tyro.conf.arg(name="noise-schedule-steps")] = 100
    """Length of the noise schedule in training."""
    eta: float = 0.0
    """0 samples by DDIM, 1 by the ancestral sampler of DDPM; fine-tuning needs 0."""
    prediction: Prediction = "epsilon"
    """Target of the network's prediction."""
    schedule: NoiseSchedule = "squaredcos_cap_v2"
    """The noise schedule, by its name in diffusers."""
    spacing: Spacing = "trailing"
    """Which of the schedule's steps are taken when sampling, by its name in diffusers; trailing begins with
    pure noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.steps <= self.train_steps <= MOST:
            expected = f"at most train_steps = {self.train_steps}, and that at most {MOST}"
            raise BadInput("denoising steps K", got=self.steps, expected=expected)
        if not 0.0 <= self.eta <= 1.0:
            raise BadInput("eta", got=self.eta, expected="between 0 (DDIM) and 1 (DDPM)")
        check_choice("prediction", self.prediction, Prediction)
        check_choice("noise schedule", self.schedule, NoiseSchedule)
        check_choice("spacing", self.spacing, Spacing)


@dataclass(frozen=True)
class RegressionConfig(PolicyConfig):
    """A policy that predicts the chunk itself, in one step or in two: the baseline that any flow has to beat."""

    name: ClassVar[str] = "regression"
    page: ClassVar[str] = "policies.kinds.regression:RegressionPolicy"

    steps: Annotated[Literal[1, 2], tyro.conf.arg(name="regression-steps")] = 2
    """1: plain regression. 2: the first prediction is refined by a second one, which was trained on noisy chunks."""
    noise: Annotated[float, tyro.conf.arg(name="refine-noise")] = 0.1
    """σ, standard deviation of that noise; a chunk's components fill [-1, 1]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps > 2:
            raise BadInput("regression steps", got=self.steps, available=(1, 2))
        if not 0.0 < self.noise < 1.0:
            raise BadInput("refine noise", got=self.noise, expected="between 0 and 1")


@dataclass(frozen=True)
class ActConfig(PolicyConfig):
    """Action chunking with transformers: a conditional VAE over chunks (ACT)."""

    name: ClassVar[str] = "act"
    page: ClassVar[str] = "policies.kinds.act:ActPolicy"

    horizon: int = field(default=16, kw_only=True)
    """Tp, actions in a predicted chunk."""
    execute: int = field(default=8, kw_only=True)
    """Ta, how many of them are executed before the policy is asked again."""
    network: NetworkConfig = field(
        default_factory=lambda: NetworkConfig("transformer", width=128, depth=2), kw_only=True
    )
    latent: int = 16
    """Length of the style variable z, which is 0 when the policy acts."""
    kl_weight: float = 10.0
    """β, weight of the KL divergence of the style from N(0, 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network.kind != "transformer":
            raise BadInput("network of act", got=self.network.kind, available=("transformer",))
        if not 1 <= self.latent <= MOST:
            raise BadInput("latent", got=self.latent, expected=f"1 to {MOST}")
        if not 0.0 <= self.kl_weight < math.inf:
            raise BadInput("kl weight", got=self.kl_weight, expected="at least 0")


@dataclass(frozen=True, kw_only=True)
class LeRobotConfig:
    """A policy of LeRobot's as the base of RL, which samples from it and does not train it; not in `POLICIES`.

    See `policies.storage.lerobot_base`.
    """

    name: ClassVar[str] = "lerobot"
    denoises: ClassVar[bool] = True
    learns: ClassVar[bool] = False

    folder: str = ""
    sha256: str = ""
    horizon: int = 1
    execute: int = 1
    observe: int = 1
    initial_noise_std: float = 1.0
    words: str = ""

    def reopen(self, what: str) -> Any:
        """The base that `what` names so, as it was. Raises `BadInput`: it is gone, or another one."""
        return resolve_name("policies.storage.lerobot_base:reopen_base")(self, what)


POLICIES: Table[type[PolicyConfig]] = with_plugins(
    "policies",
    {config.name: config for config in (FlowConfig, DiffusionConfig, RegressionConfig, ActConfig)},
    PolicyConfig,
    own=("page", "build"),
)


def denoising_kinds() -> dict[str, type[Any]]:
    """The `DenoisingConfig` among `POLICIES`, by their names."""
    return {name: config for name, config in POLICIES.items() if config.denoises}


def check_layers(what: str, *, depth: int, **sizes: int) -> None:
    """Raise `BadInput` unless `sizes` and the number of layers `depth` are positive and within the limits."""
    if not (all(1 <= size <= MOST for size in sizes.values()) and 1 <= depth <= DEEPEST):
        raise BadInput(what, got=(*sizes.values(), depth), expected=f"positive numbers up to {MOST}")
