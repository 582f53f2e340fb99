"""What a policy is: the frozen dataclasses in its config.json, whose fields are flags of ``robolearn train``.

Apart from the networks so that reading a command line does not load torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from robolearn.core import BadInput

ACTIVATIONS = ("silu", "mish", "relu", "tanh")
TIME_SAMPLING = ("uniform", "beta", "logit_normal")


@dataclass(frozen=True)
class NetworkConfig:
    """The network from (chunk, time, condition) to a chunk.

    Attributes:
      kind: residual MLP over the flat chunk, or U-Net 1-D along its time.
      width: units per layer of the MLP.
      depth: layers of the MLP.
      channels: channels per level of the U-Net.
      activation: "silu", "mish", "relu" or "tanh".
      norm: LayerNorm before each residual layer of the MLP.
      embedding: Fourier features of the flow time, even.
      image_features: length of the encoding of one camera.
    """

    kind: Literal["mlp", "unet1d"] = "mlp"
    width: int = 256
    depth: int = 3
    channels: tuple[int, ...] = (32, 64)
    activation: Literal["silu", "mish", "relu", "tanh"] = "silu"
    norm: bool = False
    embedding: int = 16
    image_features: int = 64

    def __post_init__(self) -> None:
        if self.kind not in ("mlp", "unet1d"):
            raise BadInput("network", got=self.kind, available=("mlp", "unet1d"))
        if self.activation not in ACTIVATIONS:
            raise BadInput("activation", got=self.activation, available=ACTIVATIONS)
        if self.embedding < 2 or self.embedding % 2:
            raise BadInput("time embedding", got=self.embedding, expected="an even number of at least 2")
        channels_fit = self.channels and all(type(c) is int and c > 0 for c in self.channels)
        if self.width < 1 or self.depth < 1 or not channels_fit:
            raise BadInput("network size", got=(self.width, self.depth, self.channels), expected="positive numbers")


@dataclass(frozen=True)
class FlowConfig:
    """What a flow policy is.

    Attributes:
      kind: "rectified", or "shortcut" whose velocity also depends on the step size d.
      steps: K, Euler steps from noise to action.
      horizon: Tp, actions in a predicted chunk.
      execute: Ta, how many of them are executed.
      observe: To, observed steps. More than one needs Ta = 1, see `policies.policy`.
      initial_noise_std: standard deviation of x_0 when the policy acts. Training always sees 1, the prior of the flow; less
        keeps to the middle of what was demonstrated, 0 makes the policy deterministic. Fine-tuning chooses it.
      network: the velocity network.
      time_sampling: density of τ in training: "uniform"; "beta" as in π0, more weight near the noise;
        "logit_normal", more weight in the middle.
      mask_padding: leave the padded steps of a chunk that reaches over the end of its episode out of the
        loss: nobody commanded them. False trains on them (a repetition of the last action).
      consistency: share of a batch that trains self-consistency (shortcut only).
      levels: the smallest trained step of a shortcut model is 2^-levels.
    """

    kind: Literal["rectified", "shortcut"] = "rectified"
    steps: int = 4
    horizon: int = 4
    execute: int = 4
    observe: int = 1
    initial_noise_std: float = 1.0
    network: NetworkConfig = field(default_factory=NetworkConfig)
    time_sampling: Literal["uniform", "beta", "logit_normal"] = "uniform"
    mask_padding: bool = True
    consistency: float = 0.25
    levels: int = 4

    def __post_init__(self) -> None:
        if self.kind not in ("rectified", "shortcut"):
            raise BadInput("flow kind", got=self.kind, available=("rectified", "shortcut"))
        if self.time_sampling not in TIME_SAMPLING:
            raise BadInput("time sampling", got=self.time_sampling, available=TIME_SAMPLING)
        check_chunk(self.steps, self.horizon, self.execute, self.observe)
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
    """What a diffusion policy is.

    Attributes:
      steps: K, denoising steps when sampling.
      train_steps: length of the noise schedule in training.
      eta: 0 samples by DDIM, 1 by DDPM's ancestral sampler.
      initial_noise_std: standard deviation of the first noise when the policy acts, as in `policies.flow.FlowConfig`.
      prediction: what the network predicts.
      schedule: a noise schedule of diffusers.
      horizon, execute, observe, network, mask_padding: as in `policies.flow.FlowConfig`.
    """

    steps: int = 10
    train_steps: int = 100
    eta: float = 0.0
    initial_noise_std: float = 1.0
    prediction: Literal["epsilon", "sample", "v_prediction"] = "epsilon"
    schedule: Literal["squaredcos_cap_v2", "linear"] = "squaredcos_cap_v2"
    horizon: int = 4
    execute: int = 4
    observe: int = 1
    network: NetworkConfig = field(default_factory=NetworkConfig)
    mask_padding: bool = True

    def __post_init__(self) -> None:
        check_chunk(self.steps, self.horizon, self.execute, self.observe)
        if self.steps > self.train_steps:
            raise BadInput("denoising steps K", got=self.steps, expected=f"at most train_steps = {self.train_steps}")
        if not 0.0 <= self.eta <= 1.0:
            raise BadInput("eta", got=self.eta, expected="between 0 (DDIM) and 1 (DDPM)")
        if not 0.0 <= self.initial_noise_std <= 1.0:
            raise BadInput("initial noise std", got=self.initial_noise_std, expected="0 to 1")
        if self.prediction not in ("epsilon", "sample", "v_prediction"):
            raise BadInput("prediction", got=self.prediction, available=("epsilon", "sample", "v_prediction"))
        if self.schedule not in ("squaredcos_cap_v2", "linear"):
            raise BadInput("noise schedule", got=self.schedule, available=("squaredcos_cap_v2", "linear"))


def check_chunk(steps: int, horizon: int, execute: int, observe: int) -> None:
    """Raise `BadInput` unless K, Tp, Ta, To make sense together."""
    if min(steps, horizon, execute, observe) < 1:
        raise BadInput("K, Tp, Ta, To", got=(steps, horizon, execute, observe), expected="at least 1 each")
    if execute > horizon:
        raise BadInput("executed steps Ta", got=execute, expected=f"at most the horizon Tp = {horizon}")
    if observe > 1 and execute > 1:
        raise BadInput(
            "observed steps To",
            got=f"To = {observe} with Ta = {execute}",
            expected="To = 1 or Ta = 1",
            hint="What was seen inside an executed chunk never reaches the policy",
        )
