"""Diffusion policies over action chunks (Chi et al. 2023), with the noise schedules of diffusers.

Training: DDPM (Ho et al. 2020). Sampling: DDIM (Song et al. 2021) with `eta` between 0, deterministic given
the first noise, and 1, the ancestral sampler of DDPM. Everything here is normalised: see `policies.normalize`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from torch import Tensor, nn

from policies.loss import step_weight, weighted_mean
from policies.networks.embedding import FourierEmbedding
from policies.networks.encoder import build_encoder
from policies.networks.field import build_field
from policies.networks.guidance import check_guidance, goal_condition, guided
from policies.settings import DiffusionConfig
from robolearn.core import Interface


class DiffusionPolicy(nn.Module):
    """A denoiser over normalised action chunks, with the outer interface of `policies.kinds.flow.FlowPolicy`.

    Attributes:
      config: the `DiffusionConfig`.
      action_dim: Da.
      cond_dim: C, length of the condition.
      noise_shape: shape of one sample's noise: (Tp, Da), or with eta > 0 (1 + K, Tp, Da): the first noise
        and that of every step, so that a sample is a function of its noise.
      scheduler: the diffusers scheduler of the sampler.
    """

    name = "diffusion"

    @property
    def initial_noise_std(self) -> float:
        """Standard deviation of the first noise when the policy acts; training always sees 1."""
        return self.config.initial_noise_std

    def __init__(self, config: DiffusionConfig, interface: Interface) -> None:
        super().__init__()
        self.config = config
        self.action_dim = interface.action.size
        net = config.network
        self.encoder = build_encoder(net, interface, config.observe)
        self.time = FourierEmbedding(net.embedding)
        self.cond_dim = self.encoder.size
        self.field = build_field(
            net, horizon=config.horizon, action_dim=self.action_dim, embedding=net.embedding, tokens=self.encoder.tokens
        )
        self.forward_process = DDPMScheduler(**_schedule(config))
        self._prepare_sampler()
        self.goal = goal_condition(self.encoder, config)

    def _prepare_sampler(self) -> None:
        config, chunk = self.config, (self.config.horizon, self.action_dim)
        self.noise_shape = chunk if config.eta == 0.0 else (1 + config.steps, *chunk)
        with torch.device("cpu"):  # it takes its numbers to where the chunks are, step by step
            self.scheduler = DDIMScheduler(**_schedule(config), timestep_spacing=config.spacing)
            self.scheduler.set_timesteps(config.steps)

    def with_config(self, config: DiffusionConfig) -> DiffusionPolicy:
        """The same weights, sampled with other settings."""
        check_guidance(self.encoder, config)
        net = copy.copy(self)
        net.config = config
        net._prepare_sampler()
        return net

    def encode(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Normalised {feature: (B, [To,] …)} → condition (B, C)."""
        return self.encoder(observation)

    def predict(self, x: Tensor, t: Tensor, cond: Tensor) -> Tensor:
        """What `config.prediction` names, (B, Tp, Da), not guided, for noisy chunks x at schedule steps t (B,)."""
        return self.field(x, self.time(t / self.config.train_steps), cond)

    def _guided(self, x: Tensor, t: Tensor, cond: Tensor) -> Tensor:
        return guided(self.field, self.goal, self.config.guidance, x, self.time(t / self.config.train_steps), cond)

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

    def loss(
        self,
        observation: Mapping[str, Tensor],
        action: Tensor,
        is_pad: Tensor | None,
        generator: torch.Generator,
        target: DiffusionPolicy | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """As `FlowPolicy.loss`; `target` is not used."""
        draws, weight = self.draw(action, generator), self.weight(action, is_pad)
        error = self.errors(observation, action, draws, target)
        return weighted_mean(error, weight), self.parts(error.detach(), weight, draws)

    def draw(self, action: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """What is random in the loss of a batch like `action` (B, Tp, Da), each (B, …): t, ε, and of policies with a
        goal whether it is dropped."""
        like = {"generator": generator, "device": action.device}
        t = torch.randint(self.config.train_steps, (len(action),), **like)
        draws = {"t": t, "noise": torch.randn(action.shape, dtype=action.dtype, **like)}
        if self.goal is not None:
            draws["dropped"] = torch.rand(len(action), **like) < self.config.goal_dropout
        return draws

    def weight(self, action: Tensor, is_pad: Tensor | None) -> Tensor:
        """(B, Tp) how much each action counts in the loss."""
        return step_weight(action, is_pad if self.config.mask_padding else None)

    def errors(
        self,
        observation: Mapping[str, Tensor],
        action: Tensor,
        draws: Mapping[str, Tensor],
        target: DiffusionPolicy | None,
    ) -> Tensor:
        """(B, Tp) squared errors, whose `weighted_mean` is the loss: rows do not depend on each other."""
        cond, t, noise = self.encode(observation), draws["t"], draws["noise"]
        if self.goal is not None:
            cond = self.goal.drop(cond, draws["dropped"])
        # x_t = √ᾱ_t x1 + √(1 − ᾱ_t) ε
        noisy = self.forward_process.add_noise(action, noise, t)  # type: ignore[arg-type]
        if self.config.prediction == "epsilon":
            wanted = noise
        elif self.config.prediction == "sample":
            wanted = action
        else:
            wanted = self.forward_process.get_velocity(action, noise, t)  # type: ignore[arg-type]
        return (self.predict(noisy, t, cond) - wanted).square().mean(dim=2)

    def parts(self, error: Tensor, weight: Tensor, draws: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The loss by its name, of what `errors` gave."""
        return {"loss": weighted_mean(error, weight)}


def _schedule(config: DiffusionConfig) -> dict[str, Any]:
    """What the schedulers of training and of sampling have in common."""
    return {
        "num_train_timesteps": config.train_steps,
        "beta_schedule": config.schedule,
        "prediction_type": config.prediction,
        "clip_sample": True,
    }
