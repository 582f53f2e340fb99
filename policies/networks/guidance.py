"""Classifier-free guidance: what the goal changes in a prediction, made larger or smaller (Ho and Salimans 2022).

    training    g ← ∅ with probability p
    sampling    v = v(x, τ, o, ∅) + w (v(x, τ, o, g) − v(x, τ, o, ∅))

for the velocity of a flow, and alike for what a diffusion policy predicts: noise, sample and velocity of one x are
affine in each other. w = 1 is the conditional prediction itself, 0 the one without a goal; more than 1 keeps to the
goal more than the demonstrations did. As in BESO (Reuss et al. 2023) the goal is a state or a picture of later in the
demonstration. ∅ is learned.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from policies.networks.encoder import ObservationEncoder
from policies.settings import DiffusionConfig, FlowConfig
from robolearn.core import BadInput

Field = Callable[[Tensor, Tensor, Tensor], Tensor]
"""field(x (B, Tp, Da), embedding (B, E), cond (B, C)) → (B, Tp, Da)"""


class GoalCondition(nn.Module):
    """The part of the condition (B, C) that is of goals, and what stands there without one."""

    mask: Tensor

    def __init__(self, encoder: ObservationEncoder) -> None:
        super().__init__()
        self.register_buffer("mask", encoder.of_goals(), persistent=False)
        # Standard normal, where no condition is: what is normal of a goal is near 0.
        self.nothing = nn.Parameter(torch.randn(encoder.size))

    def drop(self, cond: Tensor, dropped: Tensor) -> Tensor:
        """`cond` (B, C) with ∅ for the goals of the rows that are `dropped` (B,)."""
        return torch.where(self.mask & dropped[:, None], self.nothing, cond)

    def without(self, cond: Tensor) -> Tensor:
        """`cond` (B, C) with ∅ for all goals."""
        return torch.where(self.mask, self.nothing, cond)


def goal_condition(encoder: ObservationEncoder, config: FlowConfig | DiffusionConfig) -> GoalCondition | None:
    """That of a policy with this encoder; None where it is told no goal."""
    check_guidance(encoder, config)
    return GoalCondition(encoder) if encoder.has_goals else None


def check_guidance(encoder: ObservationEncoder, config: FlowConfig | DiffusionConfig) -> None:
    """Raise `BadInput` unless a policy with this encoder and these settings can be sampled with its guidance."""
    if config.guidance == 1.0:
        return
    if not encoder.has_goals:
        hint = "`robolearn train --goal …` makes one that is told a goal"
        raise BadInput("--guidance", got=f"{config.guidance:g} of a policy without a goal", expected="1", hint=hint)
    if config.goal_dropout == 0.0:
        got = f"{config.guidance:g} of a policy that never went without its goal"
        raise BadInput("--guidance", got=got, expected="1, or training with --goal-dropout above 0")
    if isinstance(config, FlowConfig) and config.kind == "shortcut":
        # A large step is trained as the mean of two smaller ones that are not guided.
        raise BadInput("--guidance", got=f"{config.guidance:g} of a shortcut model", expected="1, or --flow rectified")


def guided(field: Field, goal: GoalCondition | None, w: float, x: Tensor, embedding: Tensor, cond: Tensor) -> Tensor:
    """What `field` predicts with the guidance `w`, (B, Tp, Da)."""
    if goal is None or w == 1.0:
        return field(x, embedding, cond)
    twice = torch.cat((x, x)), torch.cat((embedding, embedding)), torch.cat((goal.without(cond), cond))
    both = field(*twice)
    free, conditional = both[: x.shape[0]], both[x.shape[0] :]
    # v = v_∅ + w (v_g − v_∅)
    return free + w * (conditional - free)
