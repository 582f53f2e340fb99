"""The threshold of *done*, fitted on episodes that training has not seen.

    m_e = max_t min(p_t, …, p_{t+k−1})      the highest threshold at which episode e is called done: k frames in a row
    θ ∈ (lo, hi]                            lo: the highest failure above which at most 2% of the failures lie
                                            hi: the least success above lo
    θ = ½ where that lies between, else (lo + hi) / 2

All thresholds from lo to hi have the same false positives and the same recall, the best that the bound leaves. Of few
failures the highest says little of the next one, so the smallest of these thresholds is not taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FALSE = 0.02  # most of the failures that may be called done
USUAL = 0.5


@dataclass(frozen=True)
class FittedThreshold:
    """A threshold of *done*, and what it did on the episodes that it was fitted on.

    Attributes:
      recall, false: (called, of how many) successes and failures.
    """

    threshold: float
    recall: tuple[int, int]
    false: tuple[int, int]


def highest_threshold(probability: NDArray, frames: int = 1) -> float:
    """m of an episode with (T,) probabilities of done, `frames` of them in a row; 0 where it is shorter."""
    if len(probability) < frames:
        return 0.0
    return float(np.lib.stride_tricks.sliding_window_view(probability, frames).min(1).max())


def fit_threshold(solved: NDArray[np.float64], failed: NDArray[np.float64]) -> FittedThreshold:
    """θ of the m (n,) of successes and of failures, at least one of each; see the module."""
    lo = float(np.sort(failed)[::-1][int(FALSE * len(failed))])
    hi = float(solved[solved > lo].min(initial=1.0))
    threshold = USUAL if lo < USUAL <= hi else (lo + hi) / 2.0
    called = (int((solved >= threshold).sum()), len(solved)), (int((failed >= threshold).sum()), len(failed))
    return FittedThreshold(threshold, *called)
