"""What a diffusion policy is; apart from the network so that reading a command line does not load diffusers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from policies.flow import check_chunk
from policies.networks.field import NetworkConfig
from robolearn.core import BadInput


@dataclass(frozen=True)
class DiffusionConfig:
    """What a diffusion policy is.

    Attributes:
      steps: K, denoising steps when sampling.
      train_steps: length of the noise schedule in training.
      eta: 0 samples by DDIM, 1 by DDPM's ancestral sampler.
      prediction: what the network predicts.
      schedule: a noise schedule of diffusers.
      horizon, execute, observe, network, mask_padding: as in `policies.flow.FlowConfig`.
    """

    steps: int = 10
    train_steps: int = 100
    eta: float = 0.0
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
        if self.prediction not in ("epsilon", "sample", "v_prediction"):
            raise BadInput("prediction", got=self.prediction, available=("epsilon", "sample", "v_prediction"))
        if self.schedule not in ("squaredcos_cap_v2", "linear"):
            raise BadInput("noise schedule", got=self.schedule, available=("squaredcos_cap_v2", "linear"))
