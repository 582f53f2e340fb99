"""The mean of an error over the steps of chunks that somebody commanded."""

from __future__ import annotations

from torch import Tensor


def mean_over_steps(error: Tensor, is_pad: Tensor | None) -> Tensor:
    """The mean of `error` (B, Tp) over the steps that `is_pad` (B, Tp) leaves; over all of them where it is None."""
    if is_pad is None:
        return error.mean()
    weight = (~is_pad).to(error.dtype)
    return (error * weight).sum() / weight.sum().clamp_min(1.0)
