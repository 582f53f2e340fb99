"""Least squares on rollouts: which dynamics explain a measured motion, and how sure that is.

    x̂ = argmin  Σ_j |q_j − q̂_j(x)|² / s_j²  +  |(x − μ)/σ|²,        C = (Σ_j J_jᵀJ_j / s_j² + diag(σ)⁻²)⁻¹

q are the measured joints, q̂ a rollout of the arm's model (`mujoco.batch`), x the parameters (factors by their
logarithm), μ and σ the prior: the model's value and how far arms differ from it. s_j² = r_j² τ_j is the variance of a
joint's residuals times their integrated autocorrelation time, for errors that follow each other are not independent.
The model steps at the period of the log, as worlds step at theirs: the values are those with which a world of that step
moves as the arm does. (An arm simulated in finer steps reads as if it had k Δt/2 more damping.) The posterior N(x̂, C)
(Laplace) keeps the prior where a motion says nothing, which `Fit.unidentified` lists.

`mujoco.sysid` is not used: it compiles and rolls out one model for each column of J, weighs residuals of a motion as if
they were independent, and has neither priors nor backlash. Here all columns are one batched rollout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mujoco.batch import SimulationError
from numpy.typing import NDArray
from scipy.optimize import least_squares

from robots import RobotSpec
from robots.dynamics import PARAMETERS, DynamicsConfig, Spread, uniform
from robots.motion_log import MotionLog
from sim.embedded.task import Array
from sim.identification.model import ArmModel

log = logging.getLogger(__name__)

Motions = MotionLog | Sequence[MotionLog]

MOST_DELAY_S = 0.25
SKIP_S = 4.0  # of each log: until every joint has moved, friction hides where it rests
SKIP_ROWS_S = 1.0  # of an episode of a data set, where it is less: many are short, and what came before is unknown
ROUNDS = 2  # of the weights s
EVALUATIONS = 10  # of the residuals, in a round
COARSE, GAIN = 1e-4, 0.2  # a round ends where a step takes less off χ²: this share; in the last this much
STEP = 0.05  # of finite differences, in σ
KEPT = 0.6  # a parameter whose σ shrinks by less was not identified
WIDEST = 100.0  # factor on a variance where residuals are far from linear
FIRST_ERROR = 1e-3  # s before there are residuals [rad]


@dataclass(frozen=True)
class Prior:
    """Deviation of arms from their model, in the parameter's unit; in its logarithm for a factor."""

    sd: float
    factor: bool = False
    mean: float = 0.0


PRIORS: dict[str, Prior] = {
    "link_mass": Prior(0.2, factor=True),
    "payload": Prior(0.3),
    "gain": Prior(0.2, factor=True),
    "damping": Prior(0.5, factor=True),
    "armature": Prior(0.1, factor=True),
    "joint_friction": Prior(0.02),
    "backlash": Prior(0.005),
    "command_delay": Prior(0.05, mean=0.02),
}
"""The parameters that a motion in free space is fitted to."""

BEYOND = {
    "link_centre": "it moves inertia and weight as masses do",
    "joint_offset": "the joints' own sensors move with it: measure the tcp from outside, as `robolearn calibrate` does",
    "observation_delay": "only its sum with the command's delay shows; the sum is `command_delay`",
    "command_jitter": "it is part of the residuals",
    "gripper_force": "nothing was gripped",
    "contact_friction": "nothing was touched",
    "object_mass": "nothing was lifted",
}
"""Parameters that no motion in free space shows, and why."""


@dataclass(frozen=True)
class Fit:
    """The posterior of an arm's dynamics.

    Attributes:
      names: of the k parameters, e.g. ``gain.2``.
      x, covariance: (k,), (k, k) of the normal posterior; factors by their logarithm.
      prior_sd: (k,).
      noise: standard deviation of the sensors' white noise [rad].
      residual: of the fit [rad].
    """

    robot: RobotSpec
    names: tuple[str, ...]
    x: Array
    covariance: Array
    prior_sd: Array
    noise: float
    residual: float

    @property
    def sd(self) -> Array:
        """(k,) standard deviations of `x`."""
        return np.sqrt(np.diag(self.covariance))

    def values(self) -> dict[str, Array]:
        """Parameter → its values at the optimum."""
        return _values(self.names, self.x)

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Name → value and 95% interval."""
        found = {}
        for name, x, sd in zip(self.names, self.x, self.sd, strict=True):
            ends = np.array([x, x - 1.96 * sd, x + 1.96 * sd])
            value, low, high = np.exp(ends) if _prior(name).factor else ends
            found[name] = (float(value), max(float(low), _bound(name)), float(high))
        return found

    @property
    def unidentified(self) -> tuple[str, ...]:
        """Parameters of which the motion says little more than the prior."""
        return tuple(n for n, sd, own in zip(self.names, self.sd, self.prior_sd, strict=True) if sd > KEPT * own)

    def config(self, name: str) -> DynamicsConfig:
        """The posterior as distributions to draw arms from."""
        spreads: dict[str, Spread] = {}
        for parameter, values in self.values().items():
            at = [i for i, flat in enumerate(self.names) if flat.split(".")[0] == parameter]
            scale = values if PRIORS[parameter].factor else np.ones(len(at))  # d exp(x) = exp(x) dx
            spreads[parameter] = Spread("normal", tuple(values.tolist()), tuple((scale * self.sd[at]).tolist()))
        spreads["joint_noise"] = Spread("normal", (self.noise,), (0.0,))
        sd = self.sd
        correlation = np.round(self.covariance / np.outer(sd, sd), 6)
        rows = tuple(tuple(row) for row in (0.9999 * correlation + 0.0001 * np.eye(len(sd))).tolist())
        return DynamicsConfig(name, spreads, self.robot.name, self.names, rows)


def _each(motions: Motions) -> Sequence[MotionLog]:
    return [motions] if isinstance(motions, MotionLog) else motions


def _prior(flat: str) -> Prior:
    return PRIORS[flat.split(".")[0]]


def _bound(flat: str) -> float:
    return PARAMETERS[flat.split(".")[0]].low


def _values(names: Sequence[str], x: Array) -> dict[str, Array]:
    found: dict[str, list[float]] = {}
    for flat, value in zip(names, x, strict=True):
        found.setdefault(flat.split(".")[0], []).append(np.exp(value) if _prior(flat).factor else value)
    return {name: np.array(values) for name, values in found.items()}


class Identifier:
    """Fits the dynamics of `robot` to logs of one period.

    Args:
      threads: of the physics.
      fitted: the parameters; others stay as modelled.
      skip_s: of each log, which is not judged [s].
    """

    def __init__(
        self, robot: RobotSpec, period: float, threads: int, fitted: Sequence[str] = tuple(PRIORS), *,
        skip_s: float = SKIP_S,
    ) -> None:  # fmt: skip
        self.robot, self._skip_s = robot, skip_s
        n = len(robot.joints)
        self.names = tuple(f"{name}.{i}" for name in fitted for i in range(PARAMETERS[name].count(n)))
        spreads = {name: uniform(PARAMETERS[name].low, PARAMETERS[name].high) for name in fitted}
        spreads["command_delay"] = uniform(0.0, MOST_DELAY_S)
        self.model = ArmModel(robot, DynamicsConfig("", spreads), len(self.names) + 1, period, threads)
        priors = [_prior(name) for name in self.names]
        self._mean = np.array([0.0 if p.factor else p.mean for p in priors])
        self._sd = np.array([p.sd for p in priors])
        limits = [PARAMETERS[name.split(".")[0]] for name in self.names]
        self._low = np.array([np.log(m.low) if p.factor else m.low for m, p in zip(limits, priors, strict=True)])
        self._high = np.array([np.log(m.high) if p.factor else m.high for m, p in zip(limits, priors, strict=True)])
        self._high = np.where([name == "command_delay.0" for name in self.names], MOST_DELAY_S, self._high)

    def predict(self, motion: MotionLog, values: dict[str, Array]) -> Array:
        """(K, n) predicted positions [rad], a row for each that was measured."""
        return motion.seen(self.model.predict(motion, [values]))[0]

    def error(self, motions: Motions, values: dict[str, Array]) -> float:
        """Root mean square of measured minus predicted positions [rad]."""
        judged = ((one, one.after(self._skip_s)) for one in _each(motions))
        errors = [(one.measured - self.predict(one, values))[rows] for one, rows in judged]
        return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))

    def fit(self, motions: Motions, progress: Callable[[int, float], None] = lambda done, error: None) -> Fit:
        """The posterior given `motions`; `progress` is called with the count of Jacobians and the residual [rad]."""
        motion = _each(motions)
        n = len(self.robot.joints)
        x, scale, count = self._start(), np.full(n, FIRST_ERROR), 0
        jacobian = np.empty((0, 0))

        def residuals(at: Array) -> Array:
            return self._errors(motion, [at])[0]

        def weighed(at: Array) -> Array:
            return np.concatenate([(residuals(at) / scale).ravel(), (at - self._mean) / self._sd])

        def derivative(at: Array) -> Array:
            nonlocal jacobian, count
            jacobian = self._jacobian(motion, at)
            count += 1
            progress(count, float(np.sqrt(np.mean(residuals(at) ** 2))))
            data = (jacobian / scale[:, None]).reshape(-1, len(at))
            return np.concatenate([data, np.diag(1.0 / self._sd)])

        rows = sum(one.measured[one.after(self._skip_s)].size for one in motion)
        for round_ in range(ROUNDS):
            tolerance = GAIN / rows if round_ else COARSE
            found = least_squares(
                weighed, x, jac=derivative,  # type: ignore[arg-type]
                bounds=(self._low, self._high), x_scale=self._sd, ftol=tolerance,
                xtol=1e-6, max_nfev=EVALUATIONS,
            )  # fmt: skip
            x = np.clip(found.x, self._low + 1e-9, self._high - 1e-9)
            errors = residuals(x)
            scale = np.maximum(_scales(errors), 1e-7)
        data = (self._jacobian(motion, x) / scale[:, None]).reshape(-1, len(x))
        covariance = np.linalg.inv(data.T @ data + np.diag(self._sd**-2.0))
        covariance = self._as_wide_as_it_is(motion, x, covariance, scale)
        if (delay := "command_delay.0") in self.names:  # one for all episodes: more of them do not make it less
            at = self.names.index(delay)
            covariance[at, at] += max(one.unsure_s for one in motion) ** 2
        white = float(np.sqrt(0.5 * np.mean(np.diff(errors, axis=0) ** 2)))
        residual = float(np.sqrt(np.mean(errors**2)))
        return Fit(self.robot, self.names, x, covariance, self._sd, white, residual)

    def _as_wide_as_it_is(self, motion: Sequence[MotionLog], x: Array, covariance: NDArray, scale: Array) -> Array:
        """`covariance` (k, k), wider along its axes where two deviations cost less than the 4 of linear residuals:
        friction and backlash, say, stand for each other further than their derivatives show."""
        variances, axes = np.linalg.eigh(covariance / np.outer(self._sd, self._sd))
        ways = 2.0 * np.sqrt(variances)[:, None] * axes.T * self._sd  # (k, k), one axis a row
        here = self._cost(motion, [x], scale)[0]
        costs = []
        for sign in (1.0, -1.0):
            points = np.clip(x + sign * ways, self._low, self._high)
            # On the way to a bound fewer deviations are passed.
            share = np.linalg.norm(points - x, axis=1) / np.linalg.norm(ways, axis=1)
            rise = self._cost(motion, list(points), scale) - here
            costs.append(np.where(share > 0.5, rise / np.maximum(share, 0.5) ** 2, 4.0))
        wider = 4.0 / np.clip(np.minimum(*costs), 4.0 / WIDEST, 4.0)
        wide = (axes * (wider * variances)) @ axes.T
        return np.outer(self._sd, self._sd) * wide

    def _cost(self, motion: Sequence[MotionLog], points: Sequence[Array], scale: Array) -> Array:
        """(M,) sums of squares of the weighed residuals and the prior's."""
        errors = self._errors(motion, points) / scale
        return (errors**2).sum((1, 2)) + (((np.array(points) - self._mean) / self._sd) ** 2).sum(1)

    def _start(self) -> Array:
        """The prior's mean, off the bounds."""
        inside = self._low + 0.2 * self._sd
        return np.where(self._mean <= self._low, inside, self._mean)

    def _errors(self, motion: Sequence[MotionLog], points: Sequence[Array]) -> Array:
        """(M, K, n) predicted minus measured, one log after the other, huge where a rollout breaks down."""
        values = [_values(self.names, point) for point in points]
        found = []
        for one in motion:
            rows = one.after(self._skip_s)
            try:
                seen = one.seen(self.model.predict(one, values))[:, rows]
            except SimulationError:
                found.append(np.full((len(points), *one.measured[rows].shape), 10.0))
                continue
            found.append(np.nan_to_num(seen - one.measured[rows], nan=10.0))
        return np.concatenate(found, 1)

    def _jacobian(self, motion: Sequence[MotionLog], at: Array) -> NDArray[np.float64]:
        """(T, n, k) by finite differences, all columns in one rollout."""
        steps = np.where(at + STEP * self._sd > self._high, -STEP, STEP) * self._sd
        points = [at, *(at + steps[i] * np.eye(len(at))[i] for i in range(len(at)))]
        errors = self._errors(motion, points)
        return np.moveaxis((errors[1:] - errors[0]) / steps[:, None, None], 0, -1)


def _scales(errors: Array) -> Array:
    """(n,) s of residuals (T, n): their deviation, times the root of τ = 1 + 2 Σ ρ_k up to the first ρ below 0.05."""
    found = []
    for column in errors.T:
        spectrum = np.fft.rfft(column, 2 * len(column))
        covariance = np.fft.irfft(np.abs(spectrum) ** 2)[: len(column)]
        rho = covariance / covariance[0]
        below = np.flatnonzero(rho < 0.05)
        end = int(below[0]) if len(below) else len(rho)
        found.append(np.sqrt(np.mean(column**2) * max(1.0, 1.0 + 2.0 * float(rho[1:end].sum()))))
    return np.array(found)
