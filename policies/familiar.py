"""A robot's own vector against the demonstrations: what a policy never saw is said, and a joint a turn on is refused.

With mean μ and deviation σ of a component, as the policy's normalisation has them, z = (x − μ) / σ:

    |z| > FAR, or |x − μ| > STILL where it never moved      the policy extrapolates
    … and x ∓ 2π is within FAR σ and a quarter turn of μ   the joint is where it was, but a whole turn on
"""

from __future__ import annotations

import math

import numpy as np

from policies.normalize import CONSTANT, PROPRIO, Normalizer
from robolearn.core import Interface, Observation

FAR = 6.0  # standard deviations
STILL = 0.02  # [rad], [m]


def unfamiliar(normalizer: Normalizer, interface: Interface, observation: Observation) -> tuple[str, str]:
    """(why the policy must not act, what it has not seen) by the proprioception (1, D) of `observation`; each empty
    where there is nothing to say."""
    if PROPRIO not in normalizer.vectors or PROPRIO not in observation:
        return "", ""
    mean, inverse = (
        normalizer.get_buffer(f"{PROPRIO}/{name}").cpu().numpy().astype(np.float64) for name in ("mean", "inverse_std")
    )
    value = np.asarray(observation[PROPRIO], np.float64)[0]
    names = interface.observation[PROPRIO].names or tuple(f"component {i}" for i in range(len(value)))
    off = value - mean
    far = np.where(np.isclose(inverse, 1 / CONSTANT), np.abs(off) > STILL, np.abs(off * inverse) > FAR)
    rest = np.abs(np.abs(off) - 2 * math.pi)
    turn = far & (rest < math.pi / 2) & (rest * inverse <= FAR)
    refused, warned = (
        "; ".join(
            f"{names[i]} at {value[i]:.3f}, in the demonstrations about {mean[i]:.3f}" for i in np.flatnonzero(where)
        )
        for where in (turn, far & ~turn)
    )
    refused = refused and f"a whole turn from what the policy has seen: {refused}. Turn it back"
    return refused, warned and f"the policy has not seen this: {warned}"
