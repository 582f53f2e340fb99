"""Weights of training windows by the progress that a critic stored beside the steps.

    r_t   = Φ(o_{t+Tp}) − Φ(o_t)                       Φ: progress, 0 before the first step; at most to the last step
    w̃_t   = clip((r_t − (μ − 2σ)) / (4σ + ε), 0, 1)    μ ≥ 0 and σ: of r over all windows
    w_t   = 1 where r_t > κ;  w̃_t where 0 ≤ r_t ≤ κ;  0 where r_t < 0

The reward-aligned behaviour cloning of SARM (Chen et al., "SARM: Stage-Aware Reward Modeling for Long Horizon Robot
Manipulation", arXiv 2509.25358, equations 8 and 9): a chunk that gains is imitated, one that loses is not, one that
waits only in part. Departure: windows are drawn in proportion to w in place of a loss that is multiplied by it, which
is the same in expectation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

KAPPA, EPSILON = 0.01, 1e-6


def gains(progress: NDArray[np.float32], horizon: int) -> NDArray[np.float64]:
    """(T,) what the `horizon` actions from each step on gain, by the `progress` (T,) after each step."""
    # r_t = Φ(o_{t+Tp}) − Φ(o_t), and progress[t] = Φ(o_{t+1})
    after = np.minimum(np.arange(len(progress)) + horizon, len(progress)) - 1
    return progress[after].astype(np.float64) - np.concatenate([[0.0], progress[:-1]])


def progress_weights(progress: Sequence[NDArray[np.float32]], horizon: int) -> list[NDArray[np.float64]]:
    """(T,) weights in [0, 1] of the windows of each episode, by its `progress` (T,) and the `horizon` of a chunk."""
    gained = [gains(one, horizon) for one in progress]
    together = np.concatenate(gained)
    mean, deviation = max(float(together.mean()), 0.0), max(float(together.std()), EPSILON)

    def weights(r: NDArray[np.float64]) -> NDArray[np.float64]:
        # w̃ = clip((r − (μ − 2σ)) / (4σ + ε), 0, 1)
        soft = np.clip((r - (mean - 2 * deviation)) / (4 * deviation + EPSILON), 0.0, 1.0)
        return np.where(r > KAPPA, 1.0, np.where(r < 0, 0.0, soft))

    return [weights(r) for r in gained]
