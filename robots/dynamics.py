"""Dynamics of an arm as distributions: what its model leaves open, and what a simulated world draws for each episode.

Values of an arm's links and motors are relative to its model (a factor, an addition), so that one range serves every
arm. Everything is drawn through a Gaussian copula:

    z ~ N(0, R),   u = Φ(z),   value = F⁻¹(u)

R is the identity unless a file correlates parameters, as the result of `robolearn identify` does: its normal
distributions with their correlation are the posterior of the fit. Nothing but (seed, start id, episode) decides a draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from robolearn.core.errors import BadInput
from robots.spec import RobotSpec

Array = NDArray[np.float64]
When = Literal["episode", "world", "run"]
WHEN: tuple[When, ...] = ("episode", "world", "run")


@dataclass(frozen=True)
class Parameter:
    """One property of an arm or its station."""

    per: Literal["arm", "joint", "axis", "thing"]  # one number, one a joint, three a link, one a thing of the task
    nominal: float
    low: float  # bounds of its values
    high: float
    unit: str
    meaning: str

    def count(self, joints: int) -> int:
        """Number of its values for an arm of so many joints."""
        return {"arm": 1, "joint": joints, "axis": 3 * joints, "thing": 1}[self.per]


PARAMETERS: dict[str, Parameter] = {
    "link_mass": Parameter("joint", 1.0, 0.2, 5.0, "×", "mass and inertia of a link; gravity is carried as modelled"),
    "link_centre": Parameter("axis", 0.0, -0.1, 0.1, "m", "shift of a link's centre of mass"),
    "payload": Parameter("arm", 0.0, 0.0, 10.0, "kg", "mass at the tool centre point that nothing compensates"),
    "gain": Parameter("joint", 1.0, 0.1, 10.0, "×", "proportional gain of a joint's servo"),
    "damping": Parameter("joint", 1.0, 0.1, 10.0, "×", "damping of a joint and its servo"),
    "armature": Parameter("joint", 1.0, 0.1, 10.0, "×", "inertia of a motor behind its gear"),
    "joint_friction": Parameter("joint", 0.0, 0.0, 0.5, "of the effort limit", "dry friction of a joint"),
    "backlash": Parameter("joint", 0.0, 0.0, 0.1, "rad", "play between a servo and its joint, end to end"),
    "joint_offset": Parameter("joint", 0.0, -0.2, 0.2, "rad", "measured minus true position of a joint"),
    "gripper_force": Parameter("arm", 1.0, 0.05, 5.0, "×", "largest force of the gripper"),
    "command_delay": Parameter("arm", 0.0, 0.0, 0.5, "s", "time before a command takes effect"),
    "command_jitter": Parameter("arm", 0.0, 0.0, 0.1, "s", "standard deviation of that time, each control step"),
    "observation_delay": Parameter("arm", 0.0, 0.0, 0.5, "s", "age of measured joint positions"),
    "joint_noise": Parameter("arm", 0.0, 0.0, 0.05, "rad", "standard deviation of measured joint positions"),
    "contact_friction": Parameter("thing", 1.0, 0.05, 20.0, "×", "friction of a task's things"),
    "object_mass": Parameter("thing", 1.0, 0.05, 20.0, "×", "mass and inertia of a task's things"),
}
"""All that a dynamics file may state, in the order in which it is drawn."""


@dataclass(frozen=True)
class Spread:
    """Distribution of a parameter's values: uniform from a to b, or normal with mean a and standard deviation b (before
    it is truncated to the parameter's bounds). One value of `a` and `b` for all, or one each.

    Attributes:
      when: drawn for each episode, once for each world (by its start id), or once for all worlds.
    """

    kind: Literal["uniform", "normal"]
    a: tuple[float, ...]
    b: tuple[float, ...]
    when: When = "episode"

    def at(self, share: Array, low: ArrayLike = -np.inf, high: ArrayLike = np.inf) -> Array:
        """F⁻¹ of `share` (..., k) in (0, 1); of a normal distribution that of the one truncated to `low` and `high`,
        one bound each or (k,): F⁻¹(u) = a + b Φ⁻¹(Φ(α) + u (Φ(β) − Φ(α))), α = (low − a)/b, β = (high − a)/b."""
        a, b = np.array(self.a), np.array(self.b)
        if self.kind == "uniform":
            return a + (b - a) * share
        sd = np.where(b > 0.0, b, 1.0)
        below, above = (ndtr((np.asarray(bound) - a) / sd) for bound in (low, high))
        return np.clip(a + b * ndtri(below + share * (above - below)), low, high)  # rounding


def uniform(low: float, high: float, when: When = "episode") -> Spread:
    """A uniform distribution of all values of a parameter."""
    return Spread("uniform", (low,), (high,), when)


@dataclass(frozen=True)
class DynamicsConfig:
    """Distributions of the dynamics of an arm; a parameter that is not named is nominal.

    Attributes:
      name: a level's, or the path of a file.
      robot: the arm that they are of; empty for any.
      correlated, correlation: names such as ``gain.2`` and their correlation matrix. A correlated normal value beyond
        a bound is set to it, not truncated: all others then stay where the relations of a posterior put them.
    """

    name: str
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    robot: str = ""
    correlated: tuple[str, ...] = ()
    correlation: tuple[tuple[float, ...], ...] = ()

    @property
    def plain(self) -> bool:
        """True where no arm differs from its model, but for whole steps of delay."""
        return self.name == "none"

    def has(self, *names: str) -> bool:
        """True where one of the parameters is drawn."""
        return any(name in self.spreads for name in names)

    @cached_property
    def _groups(self) -> dict[When, list[str]]:
        drawn = [name for name in PARAMETERS if name in self.spreads and PARAMETERS[name].per != "thing"]
        return {when: [name for name in drawn if self.spreads[name].when == when] for when in WHEN}

    @cached_property
    def _factor(self) -> Array:
        return np.linalg.cholesky(np.array(self.correlation)) if self.correlated else np.empty((0, 0))

    def draw(self, robot: RobotSpec, key: tuple[int, int, int]) -> dict[str, Array]:
        """Values of the arm's parameters, (k,) each, for (seed, start id, episode) = `key`."""
        seed, start, episode = key
        entropy = {"episode": [1, seed, start, episode], "world": [2, seed, start], "run": [3, seed]}
        values: dict[str, Array] = {}
        for when, names in self._groups.items():
            if not names:
                continue
            counts = {name: PARAMETERS[name].count(len(robot.joints)) for name in names}
            z = np.random.default_rng(entropy[when]).standard_normal(sum(counts.values()))
            flat = [f"{name}.{i}" for name in names for i in range(counts[name])]
            if self.correlated and self.spreads[_base(self.correlated[0])].when == when:
                at = [flat.index(name) for name in self.correlated]
                z[at] = self._factor @ z[at]
            shares = np.split(ndtr(z), np.cumsum(list(counts.values()))[:-1])
            for name, share in zip(names, shares, strict=True):
                low, high = PARAMETERS[name].low, PARAMETERS[name].high
                alone = np.array([f"{name}.{i}" not in self.correlated for i in range(counts[name])])
                value = self.spreads[name].at(share, np.where(alone, low, -np.inf), np.where(alone, high, np.inf))
                values[name] = np.clip(value, low, high)
        return values

    def most(self, name: str) -> float:
        """The largest value that is drawn of a parameter, of a normal distribution that of four deviations."""
        if name not in self.spreads:
            return PARAMETERS[name].nominal
        spread = self.spreads[name]
        top = spread.b if spread.kind == "uniform" else np.array(spread.a) + 4.0 * np.array(spread.b)
        return float(np.clip(np.max(top), PARAMETERS[name].low, PARAMETERS[name].high))

    def check(self, robot: RobotSpec) -> None:
        """Raise `BadInput` for a file of another arm, or lists of another number of joints."""
        if self.robot and self.robot != robot.name:
            raise BadInput(f"dynamics {self.name}", got=f"of the arm {self.robot}", expected=f"of {robot.name}")
        for name, spread in self.spreads.items():
            count = PARAMETERS[name].count(len(robot.joints))
            for values in (spread.a, spread.b):
                if len(values) not in (1, count):
                    expected = f"one value or {count}, as {robot.name} has"
                    raise BadInput(f"dynamics {self.name}: {name}", got=f"{len(values)} values", expected=expected)
        flat = {f"{name}.{i}" for name in self.spreads for i in range(PARAMETERS[name].count(len(robot.joints)))}
        for name in self.correlated:
            if name not in flat:
                raise BadInput(f"dynamics {self.name}: correlation", got=name, available=sorted(flat))


def _base(flat: str) -> str:
    return flat.partition(".")[0]


NONE = DynamicsConfig(
    "none",
    {
        "command_delay": uniform(0.0, 0.02),  # sensing, inference and communication take time
        "contact_friction": uniform(0.7, 1.3),
        "object_mass": uniform(0.9, 1.1),
    },
)


def _around(name: str, things: tuple[float, float], **spreads: Spread) -> DynamicsConfig:
    friction, mass = things
    ours = {"contact_friction": uniform(1 - friction, 1 + friction), "object_mass": uniform(1 - mass, 1 + mass)}
    return DynamicsConfig(name, ours | spreads)


DYNAMICS: dict[str, DynamicsConfig] = {
    "none": NONE,
    "mild": _around(
        "mild",
        (0.3, 0.1),
        link_mass=uniform(0.9, 1.1),
        gain=uniform(0.9, 1.1),
        damping=uniform(0.8, 1.25),
        armature=uniform(0.9, 1.1),
        joint_friction=uniform(0.0, 0.01),
        backlash=uniform(0.0, 0.002),
        joint_offset=uniform(-0.002, 0.002),
        gripper_force=uniform(0.9, 1.1),
        command_delay=uniform(0.0, 0.03),
        command_jitter=uniform(0.0, 0.002),
        observation_delay=uniform(0.0, 0.01),
        joint_noise=uniform(0.0, 0.0005),
    ),
    "wild": _around(
        "wild",
        (0.5, 0.3),
        link_mass=uniform(0.7, 1.3),
        link_centre=uniform(-0.01, 0.01),
        payload=uniform(0.0, 0.3),
        gain=uniform(0.75, 1.25),
        damping=uniform(0.5, 2.0),
        armature=uniform(0.7, 1.3),
        joint_friction=uniform(0.0, 0.03),
        backlash=uniform(0.0, 0.008),
        joint_offset=uniform(-0.005, 0.005),
        gripper_force=uniform(0.7, 1.3),
        command_delay=uniform(0.0, 0.06),
        command_jitter=uniform(0.0, 0.005),
        observation_delay=uniform(0.0, 0.03),
        joint_noise=uniform(0.0, 0.001),
    ),
}
"""The levels of ``--dynamics``."""


def dynamics_names() -> tuple[str, ...]:
    """Levels, and the form of a file's name."""
    return (*DYNAMICS, "<path>.yaml")
