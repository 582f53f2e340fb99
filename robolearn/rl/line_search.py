"""How far one iteration may move a policy.

The clip of PPO bounds what a sample can gain, not how far the weights go: Adam's first steps are as long as its step
size whatever the gradient says, and with few samples the first iteration can move a policy by many times what is good
for it. A policy that was nearly always right then never comes back within a short budget. Near θ the KL divergence
grows with the square of the way Δ that the weights went,

    KL(θ + s Δ) ≈ s² KL(θ + Δ),    s = √(target / KL),

so a step that went too far is shortened to where it should have ended (the line search of TRPO, Schulman et al. 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

TRIES = 8


class KlLineSearch:
    """The trained parameters of `module` as they are now, to come back towards."""

    def __init__(self, module: nn.Module) -> None:
        self._now: list[nn.Parameter] = [p for p in module.parameters() if p.requires_grad]
        self._before = [p.detach().clone() for p in self._now]

    @torch.no_grad()
    def shorten(self, share: float) -> None:
        """θ ← θ_before + share · (θ − θ_before)."""
        for now, before in zip(self._now, self._before, strict=True):
            now.copy_(torch.lerp(before, now, share) if share > 0 else before)

    def within(self, found: float, kl: Callable[[], float], limit: float, target: float) -> tuple[float, float]:
        """Shorten until the divergence, `found` now and `kl()` after each time, is at most `limit`, aiming at `target`.

        Returns:
          The share of the way that is kept, in [0, 1], and the divergence then.
        """
        kept = 1.0
        for _ in range(TRIES):
            if found <= limit:
                break
            # Far from θ the divergence is not quadratic: bounds on the share. Where it is not finite: back to θ.
            share = min(max(math.sqrt(target / found), 0.1), 0.5) if math.isfinite(found) else 0.0
            self.shorten(share)
            kept *= share
            found = kl()
        return kept, found
