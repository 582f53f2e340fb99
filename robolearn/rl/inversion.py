"""The noise that a frozen sampler makes a given chunk of: its steps backwards, then descent on what is left.

    x_k ← x_k + x_{k+1} − μ_k(x_k),   k = K − 1 … 0         `ROUNDS` times each, from x_K = a: μ_k(x_k) = x_{k+1} where
                                                            it settles, which is an Euler step of the flow backwards
    x_0 ← clip(x_0 − η ∇ e²(x_0), ±M)                       `DESCENT` steps of Adam
    e²(x_0) = 1/n Σ_i m_i (μ_{K−1} ∘ … ∘ μ_0(x_0) − a)_i²   over the n = Σ m components that count

The nearest of all x_0 on the way is what is found. A flow contracts towards what was demonstrated, so that a chunk far
from all demonstrations is made of no noise within ±M: whoever uses the noise looks at what it gives first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROUNDS = 3
DESCENT = 60
STEP = 0.1  # η of the first step of descent; it falls to 0


def sampled(net: Any, x0: Tensor, cond: Tensor) -> Tensor:
    """μ_{K−1} ∘ … ∘ μ_0: noise (B, Tp, Da) → chunks that are not cut to ±1, so that a gradient goes through all."""
    x = x0
    for k in range(net.config.steps):
        x = net.denoise(x, k, cond)
    return x


@torch.no_grad()
def backwards(net: Any, chunk: Tensor, cond: Tensor) -> Tensor:
    """Chunks (B, Tp, Da) → noise, by the sampler's steps from the last to the first."""
    after = chunk
    for k in reversed(range(net.config.steps)):
        x = after
        for _ in range(ROUNDS):
            # x_k ← x_k + x_{k+1} − μ_k(x_k)
            x = x + after - net.denoise(x, k, cond)
        after = x
    return after


def invert(net: Any, chunk: Tensor, counts: Tensor, cond: Tensor, bound: float) -> Tensor:
    """The noise (B, Tp, Da) within ±`bound` whose chunk is the nearest that was found.

    Args:
      net: a flow or diffusion policy's network; its weights stay as they are.
      chunk: (B, Tp, Da) normalised.
      counts: (B, Tp) the steps of it that shall be met; the others are a start alone.
      cond: (B, C) from `encode`.
      bound: M.
    """
    share = (counts / counts.sum(1, keepdim=True).clamp_min(1))[..., None] / chunk.shape[2]
    x0 = backwards(net, chunk, cond).clamp_(-bound, bound).requires_grad_()
    adam = torch.optim.Adam([x0], lr=STEP)
    best, least = x0.detach().clone(), torch.full((len(chunk),), torch.inf, device=chunk.device)
    for i in range(DESCENT + 1):
        with torch.enable_grad():
            # e² = 1/n Σ m (μ ∘ … ∘ μ_0(x_0) − a)²
            error = ((sampled(net, x0, cond) - chunk).square() * share).sum((1, 2))
            adam.zero_grad(set_to_none=True)
            error.sum().backward(inputs=[x0])
        nearer = error.detach() < least
        best[nearer], least[nearer] = x0.detach()[nearer], error.detach()[nearer]
        adam.param_groups[0]["lr"] = STEP * (1.0 - i / DESCENT)
        adam.step()
        with torch.no_grad():
            x0.clamp_(-bound, bound)
    return best
