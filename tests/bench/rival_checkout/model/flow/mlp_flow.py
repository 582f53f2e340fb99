"""A flow whose velocity is its time: x_1 − x_0 is the sum of the times that it is asked at, over K."""

from __future__ import annotations

from typing import Any

import torch


class FlowMLP(torch.nn.Module):
    horizon_steps, action_dim = 2, 1

    def forward(self, x: torch.Tensor, time: torch.Tensor, cond: Any) -> torch.Tensor:
        return time[:, None, None].expand_as(x)

    def sample_action(
        self, cond: Any, inference_steps: int, clip_intermediate_actions: bool, act_range: Any, z: Any = None
    ) -> torch.Tensor:
        x = z
        for time in torch.linspace(0, 1, inference_steps):
            x += self(x, time.repeat(len(x)), cond) / inference_steps
        return x
