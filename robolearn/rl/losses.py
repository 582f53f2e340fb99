"""The losses of proximal policy optimisation (Schulman et al., 2017) and its relatives as pure functions."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(
    log_ratio: Tensor, advantage: Tensor, clip: float | Tensor, dual_clip: float | None = None
) -> Tensor:
    """−E[min(r A, clip(r, 1 − ε, 1 + ε) A)], r = exp(log π − log π_old).

    With a dual clip c > 1 (Ye et al., AAAI 2020; RIFT), what a bad sample may cost is bounded, too:
    for A < 0, max(min(r A, clip(r) A), c A).

    Args:
      log_ratio: (B,) or (B, M).
      advantage: of the same shape, or one that broadcasts to it.
      clip: ε, one or one per column.
      dual_clip: c, or None.
    """
    ratio, like = log_ratio.exp(), torch.as_tensor(clip, dtype=log_ratio.dtype, device=log_ratio.device)
    clipped = torch.minimum(torch.maximum(ratio, 1 - like), 1 + like)
    gain = torch.min(ratio * advantage, clipped * advantage)
    if dual_clip is not None:
        gain = torch.where(advantage < 0, torch.max(gain, dual_clip * advantage), gain)
    return -gain.mean()


def clip_fraction(log_ratio: Tensor, clip: float) -> Tensor:
    """Share of samples whose ratio lies outside [1 − ε, 1 + ε]."""
    return ((log_ratio.exp() - 1).abs() > clip).float().mean()


def value_loss(value: Tensor, target: Tensor) -> Tensor:
    """½ E[(V − R)²]."""
    return 0.5 * (value - target).square().mean()


STD_FLOOR = 0.01


def standardise(advantage: Tensor, *, centre: bool = True) -> Tensor:
    """Zero mean (unless `centre` is false), unit standard deviation; the divisor is never below `STD_FLOOR`.

    Rewards are scaled so that the return's standard deviation is about 1 (see `reward_scale`). Advantages that vary
    by less than a hundredth of that hold no reward, only the critic's error, and are not to be blown up.
    """
    shift = advantage.mean() if centre else 0.0
    return (advantage - shift) / advantage.std().clamp_min(STD_FLOOR)


def explained_variance(value: Tensor, target: Tensor) -> Tensor:
    """1 − Var(R − V)/Var(R): 1 for a perfect critic, 0 for a constant one."""
    return 1 - (target - value).var() / (target.var() + 1e-8)
