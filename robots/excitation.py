"""Motions that show an arm's dynamics: sums of sines about changing postures, quick ones and slow ones in turn.

    q_i(t) = c_i + Σ_k a_ik sin(2π f_ik t + φ_ik),   a_ik ∝ 1/f_ik

Quick pieces show inertia, gains and delay; slow ones dry friction, backlash and weight. Every piece begins and ends at
its posture, with sin² ramps of a second.
"""

from __future__ import annotations

import numpy as np

from robolearn.core.errors import RobolearnError
from robots.chain import Array
from robots.limits import Limits
from robots.spec import RobotSpec

PIECE_S = 10.0
RAMP_S = 1.0
SINES = 4
QUICK, SLOW = (0.25, 1.6), (0.05, 0.25)  # [Hz]
SHARE = 0.35  # of the velocity limit at most
LARGEST = 0.5  # amplitude of a joint [rad]
MARGIN = 0.15  # from a joint's limits [rad]
ROOM = 0.01  # between the tcp and the border of a station's workspace [m]
TRIES = 400


def excitation(
    robot: RobotSpec, seconds: float, period: float, seed: int, limits: Limits | None = None, speed: float = 1.0
) -> Array:
    """(T, n) joint targets from home and back to it, every `period` [rad].

    The tcp stays above 15 cm (small arms: 4 cm) and before the base.

    Args:
      limits: of a station: the joints keep to its velocities, and the tcp to its workspace; by default the arm's own.
      speed: in (0, 1], share of the motion's usual speed.

    Raises:
      RobolearnError: no such motion is found.
    """
    velocity = speed * (np.array(robot.velocity) if limits is None else limits.velocity)
    rng = np.random.default_rng([6, seed])
    pieces = max(1, round(seconds / PIECE_S))
    home, ways = np.array(robot.home), []
    postures = [home, *(_posture(robot, rng, limits) for _ in range(pieces - 1))]
    for i, posture in enumerate(postures):
        way = _piece(robot, posture, seconds / pieces, period, SLOW if i % 3 == 2 else QUICK, velocity, limits, rng)
        after = postures[(i + 1) % pieces]
        ways += [way, _between(posture, after, period, velocity)]
    return np.concatenate(ways)


def _posture(robot: RobotSpec, rng: np.random.Generator, limits: Limits | None) -> Array:
    """A posture in which there is room around the tcp."""
    home = np.array(robot.home)
    for _ in range(TRIES):
        q = home + rng.uniform(-0.5, 0.5, len(home))
        if _is_free(robot, q[None], limits):
            return q
    return home


def _piece(
    robot: RobotSpec, posture: Array, seconds: float, period: float, band: tuple[float, float], velocity: Array,
    limits: Limits | None, rng: np.random.Generator,
) -> Array:  # fmt: skip
    n, t = len(posture), np.arange(0.0, seconds, period)
    ramp = np.sin(0.5 * np.pi * np.clip(np.minimum(t, seconds - t) / RAMP_S, 0.0, 1.0)) ** 2
    for shrunk in range(TRIES):
        f = np.exp(rng.uniform(np.log(band[0]), np.log(band[1]), (n, SINES)))
        phase = rng.uniform(0.0, 2 * np.pi, (n, SINES))
        waves = (np.sin(2 * np.pi * f[..., None] * t + phase[..., None]) / f[..., None]).sum(1)  # (n, T)
        fastest = np.abs(np.gradient(waves, period, axis=1)).max(1)
        scale = np.minimum(SHARE * velocity / fastest, LARGEST / np.abs(waves).max(1))
        q = posture + 0.98**shrunk * (scale[:, None] * waves).T * ramp[:, None]
        if _is_free(robot, q[::10], limits):
            return q
    raise RobolearnError(f"no motion of {robot.name} about {np.round(posture, 2).tolist()} stays in free space")


def _between(a: Array, b: Array, period: float, velocity: Array) -> Array:
    """A smooth way between two postures, at a quarter of the speed."""
    seconds = max(1.0, 1.5 * float(np.max(np.abs(b - a) / (0.25 * velocity))))
    s = np.arange(0.0, 1.0, period / seconds)
    return a + (3 * s**2 - 2 * s**3)[:, None] * (b - a)


def _is_free(robot: RobotSpec, q: Array, limits: Limits | None) -> bool:
    reach = float(np.linalg.norm(robot.chain.forward(np.array([robot.home]))[0][0, :2]))
    pos = robot.chain.forward(q)[0]
    lower, upper = (robot.lower, robot.upper) if limits is None else (limits.lower, limits.upper)
    inside = (q > lower + MARGIN).all() and (q < upper - MARGIN).all()
    if limits is not None and limits.workspace is not None:
        corner, opposite = limits.workspace
        inside = inside and (pos > corner + ROOM).all() and (pos < opposite - ROOM).all()
    low = 0.15 if reach > 0.3 else 0.04
    near = np.linalg.norm(pos[:, :2], axis=1)
    return bool(inside and pos[:, 2].min() > low and pos[:, 0].min() > 0.3 * reach and near.max() < 1.45 * reach)
