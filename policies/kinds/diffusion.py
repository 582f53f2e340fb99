"""Diffusion policies over action chunks (Chi et al. 2023), with the noise schedules of diffusers.

Training: DDPM (Ho et al. 2020). Sampling: DDIM (Song et al. 2021) with `eta` between 0, deterministic given
the first noise, and 1, the ancestral sampler of DDPM. Everything here is normalised: see `policies.normalize`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from torch import Tensor

from policies.kinds.chunk_net import DenoisingNet
from policies.settings import DiffusionConfig
from robolearn.core import Interface


class DiffusionPolicy(DenoisingNet):
    """A denoiser over normalised action chunks.

    Attributes:
      config: the `DiffusionConfig`.
      noise_shape: (Tp, Da), or with eta > 0 (1 + K, Tp, Da): the first noise and that of every step, so that a sample
        is a function of its noise.
      scheduler: the diffusers scheduler of the sampler.
    """

    def __init__(self, config: DiffusionConfig, interface: Interface) -> None:
        super().__init__(config, interface)
        self.forward_process = DDPMScheduler(**_schedule(config))

    def prepare_sampler(self) -> None:
        config, chunk = self.config, (self.config.horizon, self.action_dim)
        self.noise_shape = chunk if config.eta == 0.0 else (1 + config.steps, *chunk)
        with torch.device("cpu"):  # it takes its numbers to where the chunks are, step by step
            self.scheduler = DDIMScheduler(**_schedule(config), timestep_spacing=config.spacing)
            self.scheduler.set_timesteps(config.steps)

    def predict(self, x: Tensor, t: Tensor, cond: Tensor) -> Tensor:
        """The quantity that `config.prediction` names, (B, Tp, Da), not guided, for noisy chunks x at schedule steps t
        (B,)."""
        return self.field(x, self.time(t / self.config.train_steps), cond)

    def _guided(self, x: Tensor, t: Tensor, cond: Tensor) -> Tensor:
        return self.guided(x, self.time(t / self.config.train_steps), cond)

    def time_grid(self) -> Tensor:
        """(K+1,) flow times τ_k = k/K of the denoising steps, from noise to action."""
        return torch.linspace(0.0, 1.0, self.config.steps + 1, device=self.time.frequency.device)

    def denoise(self, x: Tensor, k: int, cond: Tensor) -> Tensor:
        """μ_k for (B, Tp, Da) states: step k of DDIM (η = 0), guided as `sample`.

        The action that each step predicts is clamped to ±1 before it is used, as in DPPO: the last mean, which is that
        action, lies within ±1, and no gradient goes through what was clamped.
        """
        t = self.scheduler.timesteps[k]
        prediction = self._guided(x, t.to(x.device).expand(len(x)), cond)
        return self.scheduler.step(prediction, int(t), x, eta=0.0, use_clipped_model_output=True, return_dict=False)[0]

    def sample(self, cond: Tensor, x0: Tensor) -> Tensor:
        """Noise (B, *noise_shape) → actions (B, Tp, Da) in [-1, 1], deterministically."""
        eta = self.config.eta
        x, extra = (x0, None) if eta == 0.0 else (x0[:, 0], x0[:, 1:])
        for k, t in enumerate(self.scheduler.timesteps.tolist()):
            prediction = self._guided(x, torch.full((x.shape[0],), t, device=x.device), cond)
            step = self.scheduler.step(
                prediction,
                t,
                x,
                eta=eta,
                # With a clipped x1 the noise that fits it must be taken, or eta = 1 is not DDPM.
                use_clipped_model_output=True,
                variance_noise=None if extra is None else extra[:, k],
                return_dict=False,
            )
            x = step[0]
        return x.clamp(-1.0, 1.0)

    def noises(self, action: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """t and ε."""
        like = {"generator": generator, "device": action.device}
        t = torch.randint(self.config.train_steps, (len(action),), **like)
        return {"t": t, "noise": torch.randn(action.shape, dtype=action.dtype, **like)}

    def errors(
        self, observation: Mapping[str, Tensor], action: Tensor, draws: Mapping[str, Tensor], target: Any
    ) -> Tensor:
        cond, t, noise = self.condition(observation, draws), draws["t"], draws["noise"]
        # x_t = √ᾱ_t x1 + √(1 − ᾱ_t) ε
        noisy = self.forward_process.add_noise(action, noise, t)  # type: ignore[arg-type]
        if self.config.prediction == "epsilon":
            wanted = noise
        elif self.config.prediction == "sample":
            wanted = action
        else:
            wanted = self.forward_process.get_velocity(action, noise, t)  # type: ignore[arg-type]
        return (self.predict(noisy, t, cond) - wanted).square().mean(dim=2)


def _schedule(config: DiffusionConfig) -> dict[str, Any]:
    """Settings that the schedulers of training and of sampling share."""
    return {
        "num_train_timesteps": config.train_steps,
        "beta_schedule": config.schedule,
        "prediction_type": config.prediction,
        "clip_sample": True,
    }
