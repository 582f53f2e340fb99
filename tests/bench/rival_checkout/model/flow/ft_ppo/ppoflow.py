"""Its sampler has another grid than its likelihood, and actions of noise 0.1."""

from __future__ import annotations

from typing import Any

import torch


class PPOFlow(torch.nn.Module):
    inference_steps, device, act_min, act_max, denoised_clip_value = 2, "cpu", -1.0, 1.0, 1.0
    min_sampling_denoising_std, randn_clip_value = 0.1, 3.0

    def __init__(self, horizon_steps: int, action_dim: int) -> None:
        super().__init__()
        self.horizon_steps, self.action_dim = horizon_steps, action_dim
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def actor_ft(self, x: torch.Tensor, time: torch.Tensor, cond: Any, learn: bool, step: int) -> tuple:
        return time[:, None, None].expand_as(x), torch.full((len(x), x[0].numel()), 0.1)

    def critic(self, cond: Any) -> torch.Tensor:
        return cond["state"].reshape(len(cond["state"]), -1)[:, :1]

    def get_logprobs(self, cond: Any, chains: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        total = torch.zeros(len(chains))
        for k in range(self.inference_steps):
            mean = chains[:, k] + k / self.inference_steps / self.inference_steps
            total = total + torch.distributions.Normal(mean, 0.1).log_prob(chains[:, k + 1]).sum((-2, -1))
        return total, torch.tensor(0.1)

    def get_actions(self, cond: Any, eval_mode: bool, save_chains: bool = False, ret_logprob: bool = True) -> Any:
        x = torch.randn(len(cond["state"]), self.horizon_steps, self.action_dim)
        for k, time in enumerate(torch.linspace(0, 1, self.inference_steps)):
            velocity, _ = self.actor_ft(x, time.repeat(len(x)), cond, False, k)
            x = x + velocity / self.inference_steps
        return x
