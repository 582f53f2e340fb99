"""Jitter: is the motion one stroke, or many small ones?

Balasubramanian, Melendez-Calderon, Roby-Brami, Burdet, "On the analysis of movement smoothness" (J. NeuroEngineering
and Rehabilitation, 2015). The spectral arc length of a speed profile v(t),

    SPARC = − ∫_0^{ω_c} √( (1/ω_c)² + (dV̂/dω)² ) dω,       V̂(ω) = |V(ω)| / |V(0)|,
    ω_c   = the highest frequency below 10 Hz at which V̂ ≥ 0.05,

does not depend on how far and how fast one moves. Beside it the jerk of the commands: they are differentiated by the
demonstrator's hand and not smoothed by the arm,

    J = √( mean_t |a_t − 2 a_{t−1} + a_{t−2}|² ) / √( mean_t |a_t|² )       over the components that steer the motion.
"""

from __future__ import annotations

import numpy as np

from robolearn.data.quality.demonstrations import Array, Demonstrations

AMPLITUDE = 0.05
HIGHEST_HZ = 10.0
_PADDING = 4  # the spectrum is sampled 2⁴ times as finely
_SHORTEST = 6  # frames; less has no spectrum to speak of


def spectral_arc_length(speed: Array, hz: float) -> float:
    """SPARC of (T,) speeds: about −1.6 for one smooth stroke, lower for a shaky one; NaN for a rest."""
    if len(speed) < _SHORTEST or not speed.sum() > 0:
        return float("nan")
    size = 2 ** (int(np.ceil(np.log2(len(speed)))) + _PADDING)
    frequency = np.fft.rfftfreq(size, 1.0 / hz)
    spectrum = np.abs(np.fft.rfft(speed, size))
    spectrum /= spectrum[0]
    below = frequency <= HIGHEST_HZ
    frequency, spectrum = frequency[below], spectrum[below]
    highest = int(np.flatnonzero(spectrum >= AMPLITUDE)[-1])
    if highest < 1:
        return float("nan")
    omega, v = frequency[: highest + 1] / frequency[highest], spectrum[: highest + 1]
    # − Σ √( (Δω/ω_c)² + ΔV̂² )
    return -float(np.hypot(np.diff(omega), np.diff(v)).sum())


def command_jerk(action: Array) -> float:
    """J of (T, Da) actions, whose last component is the gripper's and is left out if there are others."""
    steering = action[:, :-1] if action.shape[1] > 1 else action
    if len(steering) < 3:
        return float("nan")
    power = float((steering**2).sum(axis=1).mean())
    jerk = np.diff(steering, n=2, axis=0)
    return float(np.sqrt((jerk**2).sum(axis=1).mean() / power)) if power > 1e-12 else float("nan")


def jitter(demonstrations: Demonstrations) -> tuple[Array, Array]:
    """(E,) spectral arc length of the path's speed, negated so that more is worse, and (E,) jerk of the commands."""
    d = demonstrations
    arc, jerk = np.full(d.episodes, np.nan), np.full(d.episodes, np.nan)
    for e in range(d.episodes):
        rows = d.frames(e)
        speed = np.linalg.norm(np.diff(d.path[rows], axis=0), axis=1) * d.control_hz
        arc[e] = -spectral_arc_length(speed, d.control_hz)
        jerk[e] = command_jerk(d.action[rows])
    return arc, jerk
