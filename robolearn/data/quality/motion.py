"""Measures of a single episode: jitter, idle time, near-limit joints, stale and wild frames, trajectory quality,
duration.

**Jitter.** Balasubramanian, Melendez-Calderon, Roby-Brami, Burdet, "On the analysis of movement smoothness" (J.
NeuroEngineering and Rehabilitation, 2015). The spectral arc length of a speed profile v(t),

    SPARC = − ∫_0^{ω_c} √( (1/ω_c)² + (dV̂/dω)² ) dω,       V̂(ω) = |V(ω)| / |V(0)|,
    ω_c   = the highest frequency below 10 Hz at which V̂ ≥ 0.05,

does not depend on distance and speed. Beside it the jerk of the commands, which the arm has not smoothed yet,

    J = √( mean_t |a_t − 2 a_{t−1} + a_{t−2}|² ) / √( mean_t |a_t|² )       over the components that steer the motion.

**Idle.** With b the joints and the gripper, and r_c the 95th percentile of |ḃ_c| over the set, the arm moves in frame t
when

    max_c |b_{t+1,c} − b_{t,c}| · hz / r_c > 0.03,

and rests of at least 0.25 s are idle. Shorter ones belong to the motion.

**Near limits.** A joint at the end of its range cannot follow. Frame t is near a limit when some joint j has

    min(q_j − lower_j, upper_j − q_j) < 0.02 · (upper_j − lower_j).

**Stale frames** repeat what was seen before: their raw stamps do not advance. A source slower than the control rate
repeats its stamp now and then, as a 15 Hz camera under a 20 Hz policy, so a frame is stale when the stamp of a source
has stood for more than `PATIENCE` times as long as it usually stands, and at least one frame longer.

**Wild frames** are the outliers of `robolearn.data.lerobot.columns`, in observations and actions.

**Trajectory quality.** Schweighofer et al., "A Dataset Perspective on Offline Reinforcement Learning" (CoLLAs 2022):

    TQ(D) = (ḡ(D) − ḡ(D_min)) / (ḡ(D_expert) − ḡ(D_min)),        ḡ the mean undiscounted return.

g_min is the lower of 0 and the least return of the set and g_expert its highest, so an episode has
TQ_e = (g_e − g_min) / (g_expert − g_min) in [0, 1] and the set has their mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.data.lerobot.columns import outliers
from robolearn.data.quality.demonstrations import Array, Demonstrations, runs

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


MOVING = 0.03
SHORTEST_S = 0.25


def idle(demonstrations: Demonstrations) -> Array:
    """(E,) share of the frames of each episode that are idle."""
    d = demonstrations
    step = np.zeros_like(d.body)
    step[:-1] = np.abs(np.diff(d.body, axis=0))
    ends = d.starts + d.lengths - 1
    # The last frame of an episode has no next one: it goes on as the one before.
    step[ends] = np.where((d.lengths > 1)[:, None], step[np.maximum(ends - 1, 0)], 0.0)
    usual = np.quantile(step, 0.95, axis=0)
    moves = usual > 1e-9
    still = (step[:, moves] / usual[moves]).max(axis=1, initial=0.0) <= MOVING
    least = max(1, round(SHORTEST_S * d.control_hz))
    return np.array([runs(still[d.frames(e)], least).mean() for e in range(d.episodes)])


MARGIN = 0.02


def near_limits(demonstrations: Demonstrations) -> tuple[Array, NDArray[np.int64]]:
    """(E,) share of frames near a limit, and (E,) the joint that is there most; NaN and −1 without known limits."""
    d = demonstrations
    if d.limits is None:
        return np.full(d.episodes, np.nan), np.full(d.episodes, -1, np.int64)
    lower, upper = d.limits
    q = d.body[:, : len(lower)]
    near = np.minimum(q - lower, upper - q) < MARGIN * (upper - lower)
    share = d.mean(near.any(axis=1).astype(np.float64))
    per_joint = np.add.reduceat(near.astype(np.int64), d.starts, axis=0)
    return share, np.where(share > 0, per_joint.argmax(axis=1), -1)


PATIENCE = 1.5


def stale(demonstrations: Demonstrations) -> tuple[Array, list[str]]:
    """(E,) share of stale frames, NaN where no stamps were recorded, and (E) the source that is stale most often."""
    d = demonstrations
    if not d.stamps:
        return np.full(d.episodes, np.nan), [""] * d.episodes
    names = list(d.stamps)
    marked = np.stack([_stale_frames(np.asarray(d.stamps[name], np.float64), d) for name in names], 1)
    counts = np.add.reduceat(marked.astype(np.int64), d.starts, axis=0)
    share = d.mean(np.asarray(marked.any(axis=1), np.float64))
    return share, [names[int(row.argmax())] if row.any() else "" for row in counts]


def _stale_frames(stamp: Array, d: Demonstrations) -> NDArray[np.bool_]:
    """(N,) whether the stamp has stood for longer than it does in most frames of the set."""
    fresh = np.ones(len(stamp), bool)
    fresh[1:] = stamp[1:] > stamp[:-1]
    fresh[1:] |= stamp[1:] < stamp[:-1] - 1.0  # a clock that was set back
    fresh[d.starts] = True
    last = np.maximum.accumulate(np.where(fresh, np.arange(len(stamp)), 0))
    stood = np.arange(len(stamp)) - last  # frames since the stamp advanced
    begins = np.flatnonzero(fresh)
    usual = float(np.median(np.diff(np.concatenate([begins, [len(stamp)]])))) if len(begins) else 1.0
    return stood >= max(PATIENCE * usual, usual + 1.0)


def wild(demonstrations: Demonstrations) -> tuple[Array, list[str]]:
    """(E,) 1 where an episode has a wild frame, else 0, and (E) one of them in words."""
    d = demonstrations
    said = [""] * d.episodes
    for what, values in (("an action", d.action), ("an observed value", d.state)):
        for one in outliers([values[d.frames(e)] for e in range(d.episodes)]):
            said[one.episode] = f"{what} is {one.value:.6g} at frame {one.frame}, far beyond all others"
    return np.array([float(bool(words)) for words in said]), said


def trajectory_quality(demonstrations: Demonstrations) -> Array:
    """(E,) TQ of each episode; NaN without rewards, or where none is better than another or than nothing."""
    reward = demonstrations.reward
    nothing = np.full(demonstrations.episodes, np.nan)
    if reward is None:
        return nothing
    returns = np.add.reduceat(reward, demonstrations.starts)
    least, best = min(0.0, float(returns.min())), float(returns.max())
    if best - least <= 1e-9:
        return nothing
    # TQ_e = (g_e − g_min) / (g_expert − g_min)
    return (returns - least) / (best - least)


def seconds(demonstrations: Demonstrations) -> Array:
    """(E,) how long each episode lasts [s]."""
    return demonstrations.lengths / demonstrations.control_hz
