"""From progress to rewards of steps.

    shaped   r_t = [done first at t] + γ Φ_t − Φ_{t−1}      Φ = progress, Φ_{−1} = that of the start, 0 after the end
    delta    r_t = [done first at t] + Φ_t − Φ_{t−1}
    share    r_t = [done first at t] + c_t      Φ_t = Φ_{t−1} + (1 − Φ_{t−1}) c_t   c_t ≥ 0: of what was left
                                                Φ_t = Φ_{t−1} (1 + c_t)             c_t < 0: of what was there

Potentials telescope, Σ γ^t r_t = Σ γ^t [done] − Φ_{−1} for an episode that ends, so the best policy stays the best
(Ng, Harada and Russell 1999); raw differences do not where γ < 1, nor do shares: VLAC's reward of a step (Zhai et al.
2025), the c in [-1, 1] that accumulate to the progress.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from robolearn.core import Score, check_choice

Shaping = Literal["shaped", "delta", "share", "none"]


def shaped_rewards(
    progress: NDArray[np.float32],
    done: NDArray[np.bool_],
    *,
    start: float = 0.0,
    gamma: float = 0.99,
    ended: bool = False,
    kind: Shaping = "shaped",
) -> NDArray[np.float32]:
    """(T,) rewards of the steps that led to `progress` (T,), 1 more where the task was `done` (T,) first.

    Args:
      start: progress before the first step.
      gamma: discount of a step.
      ended: the episode ended with the last step by itself, so that nothing comes after it: its potential is 0.
    """
    check_choice("shaping", kind, Shaping)
    reward = np.zeros(len(progress), np.float32)
    first = np.flatnonzero(done)[:1]
    reward[first] = 1.0
    if kind == "none":
        return reward
    before = np.concatenate([[start], progress[:-1]]).astype(np.float32)
    after = np.array(progress, np.float32)
    if kind == "share":
        return (reward + shares(before, after)).astype(np.float32)
    if kind == "shaped" and ended and len(after):
        after[-1] = 0.0
    return (reward + (gamma if kind == "shaped" else 1.0) * after - before).astype(np.float32)


def score_of_frames(
    progress: NDArray[np.float32],
    probability: NDArray[np.floating],
    steps: int,
    threshold: float,
    sure: NDArray[np.floating] | None = None,
) -> Score:
    """The score of the last `steps` frames of P, shaped by the progress from the first frame.

    Args:
      progress, probability: (P,), the latter of done.
      threshold: probability from which a frame is done.
      sure: (P,) of the verdict, by default the probability, brought to a scale on which the threshold is a half: what
        asks for a confidence takes it to be that.
    """
    after = slice(len(progress) - steps, None)
    start, progress, probability = float(progress[0]), progress[after], probability[after]
    done = probability >= threshold
    scaled = np.interp(probability, [0.0, threshold, 1.0], [0.0, 0.5, 1.0])
    confidence = np.where(done, scaled, 1.0 - scaled) if sure is None else sure[after]
    return Score(progress, shaped_rewards(progress, done, start=start), done, confidence.astype(np.float32))


def shares(before: NDArray[np.float32], after: NDArray[np.float32]) -> NDArray[np.float32]:
    """(T,) c in [-1, 1] of progress that goes from `before` (T,) to `after` (T,), both in [0, 1]; see the module."""
    gain = after - before
    whole = np.where(gain >= 0.0, 1.0 - before, before)  # 0 only where nothing changed
    return (gain / np.where(whole > 0.0, whole, 1.0)).astype(np.float32)
