"""A robot's own vector against the demonstrations: what a policy never saw is said, and a joint a turn on is refused.

With mean μ and deviation σ of a component, as the policy's normalisation has them, x' = x − 2πn the nearest to μ of all
whole turns, and z = (x − μ) / σ:

    |z| > FAR, or |x − μ| > STILL where it never moved    the policy extrapolates
    n ≠ 0, |z| > WITHIN, 2 |x' − μ| ≤ |x − μ|, and
    |x' − μ| ≤ WITHIN σ, or FAR σ and a quarter turn      the joint is where it was, but whole turns on

A joint that the demonstrations turned by more than half a turn has a wide σ: its place is judged by where x' is, too.
"""

from __future__ import annotations

import math

import numpy as np

from policies.normalize import CONSTANT, PROPRIO, Normalizer
from robolearn.core import Interface, Observation
from robolearn.core.protocols import UNJUDGED

FAR, WITHIN = 6.0, 3.0  # standard deviations; 3 hold all of a component that moves evenly
STILL = 0.02  # [rad], [m]


def unfamiliar(normalizer: Normalizer, interface: Interface, observation: Observation) -> tuple[str, str]:
    """(why the policy must not act, what it has not seen) by the proprioception (1, D) of `observation`; each empty
    where there is nothing to say."""
    if PROPRIO not in normalizer.vectors or PROPRIO not in observation:
        return "", UNJUDGED
    mean, inverse = (
        normalizer.get_buffer(f"{PROPRIO}/{name}").cpu().numpy().astype(np.float64) for name in ("mean", "inverse_std")
    )
    value = np.asarray(observation[PROPRIO], np.float64)[0]
    names = interface.observation[PROPRIO].names or tuple(f"component {i}" for i in range(len(value)))
    off = value - mean
    far = np.where(np.isclose(inverse, 1 / CONSTANT), np.abs(off) > STILL, np.abs(off * inverse) > FAR)
    turns = np.round(off / (2 * math.pi))
    rest = np.abs(off - 2 * math.pi * turns)
    near = (rest * inverse <= WITHIN) | ((rest * inverse <= FAR) & (rest < math.pi / 2))
    turn = (turns != 0) & (np.abs(off * inverse) > WITHIN) & (2 * rest <= np.abs(off)) & near
    refused, warned = (
        "; ".join(
            f"{names[i]} at {value[i]:.3f}, in the demonstrations about {mean[i]:.3f}" for i in np.flatnonzero(where)
        )
        for where in (turn, far & ~turn)
    )
    refused = refused and f"a whole turn from what the policy has seen: {refused}. Turn it back"
    return refused, warned and f"the policy has not seen this: {warned}"
