"""The arms that one filter moves, each with what is its own: joint states, inverse kinematics, gripper.

The joints of two arms stand one after the other, the left ones first; a target has a part for each arm, which are
checked one by one and taken together, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from numpy.typing import ArrayLike

from hardware.safety import checks
from hardware.safety.checks import Array, Reach, Refused
from hardware.safety.measured import MeasuredArm
from hardware.safety.motion import Opening
from hardware.safety.states import ArmCommand, JointTarget, PairTarget, PoseTarget, Target
from robots.limits import Limits
from robots.pair import AnyRobot
from robots.spec import ArmPart


class _Arm:
    """One of them; `at` are its joints among those of all."""

    def __init__(self, part: ArmPart, joints: tuple[str, ...], at: slice, limits: Limits, period: float) -> None:
        self.joints, self.at, self.limits = joints, at, limits
        self.measured = MeasuredArm(joints, limits.state_timeout_s, part.name)
        self.reach = Reach(part.robot)
        self.opening = Opening(limits, period)

    def goal(self, target: JointTarget | PoseTarget, start: list[float]) -> tuple[list[float], float | None]:
        """Joint positions [rad] and opening [m] of a target, near `start` of all arms. Raises `Refused`."""
        gripper = None if target.gripper is None else checks.finite("gripper", target.gripper)[0]
        if isinstance(target, PoseTarget):
            return self.reach.joints(target, start[self.at]), gripper
        goal = checks.finite("target", target.positions)
        checks.named(target.names, target.positions, self.joints)
        return goal, gripper


class Arms:
    """The arms of `robot`, whose `joints` are called so by joint states and targets; `period` is the filter's [s]."""

    def __init__(self, robot: AnyRobot, joints: tuple[str, ...], limits: Limits, period: float) -> None:
        self.joints = joints
        self._arms: list[_Arm] = []
        end = 0
        for part, own in zip(robot.parts, limits.each, strict=True):
            at = slice(end, end := end + len(part.robot.joints))
            self._arms.append(_Arm(part, joints[at], at, own, period))
        self._least_jump = 0.999 * min(arm.limits.max_jump for arm in self._arms)
        self._positions: list[float] | None = None  # of all, once they have been asked for

    @property
    def reaches(self) -> list[Reach]:
        """The inverse kinematics of each."""
        return [arm.reach for arm in self._arms]

    # --- joint states ----------------------------------------------------------------------------------------

    def take(self, names: Sequence[str], positions: ArrayLike, now: float, *, armed: bool) -> None:
        """A joint state arrived, of one arm or of both; see `MeasuredArm.take`. Raises `Refused`: it is of neither, or
        cannot be used."""
        meant = [arm for arm in self._arms if len(self._arms) == 1 or any(name in names for name in arm.joints)]
        if not meant:
            raise Refused("joint state", f"joint state: no joint of any arm; got {', '.join(names)}")
        self._positions = None
        for arm in meant:
            arm.measured.take(names, positions, now, armed=armed)

    @property
    def positions(self) -> list[float] | None:
        """(n,) newest positions [rad]; None before those of every arm have come."""
        if self._positions is None:
            found: list[float] = []
            for arm in self._arms:
                if arm.measured.positions is None:
                    return None
                found += arm.measured.positions
            self._positions = found
        return self._positions

    @property
    def at(self) -> float:
        """When the oldest of the newest joint states arrived [s]."""
        return min(arm.measured.at for arm in self._arms)

    def fresh(self, now: float) -> list[float]:
        """(n,) newest positions [rad]. Raises `Refused`: those of an arm are stale."""
        for arm in self._arms:
            arm.measured.fresh(now)
        assert self.positions is not None
        return self.positions

    def at_rest(self, now: float) -> list[float]:
        """(n,) positions [rad] where the arms rest, see `MeasuredArm.at_rest`."""
        return [q for arm in self._arms for q in arm.measured.at_rest(now)]

    def near(self, stage: str, what: str, positions: list[float], measured: list[float]) -> None:
        """Refuse positions (n,) farther from where the arms are `measured` (n,) than each arm's limits allow [rad]."""
        if math.dist(positions, measured) <= self._least_jump:  # the quick way: no joint is farther away than all
            return
        for arm in self._arms:
            checks.near(stage, what, arm.joints, positions[arm.at], measured[arm.at], arm.limits.max_jump)

    # --- targets ---------------------------------------------------------------------------------------------

    def goal(self, target: Target, start: list[float]) -> tuple[list[float], list[float | None]]:
        """(n,) joint positions [rad] near `start`, and the opening of each gripper [m]. Raises `Refused`."""
        each = target.arms if isinstance(target, PairTarget) else (target,)
        if len(each) != len(self._arms):
            raise Refused("names", f"target: of {len(each)} arms, expected {len(self._arms)}")
        goal: list[float] = []
        openings: list[float | None] = []
        for arm, one in zip(self._arms, each, strict=True):
            positions, opening = arm.goal(one, start)
            goal += positions
            openings.append(opening)
        return goal, openings

    # --- grippers --------------------------------------------------------------------------------------------

    def begin(self, openings: Sequence[float | None]) -> None:
        """The grippers stand at `openings` [m]; none given: where is not known."""
        for arm, opening in zip(self._arms, openings or [None] * len(self._arms), strict=True):
            arm.opening.begin(opening)

    def open(self, openings: Sequence[float | None]) -> None:
        """From now on to `openings` [m]; None leaves one as it is."""
        for arm, opening in zip(self._arms, openings, strict=True):
            if opening is not None:
                arm.opening.toward(opening)

    def step(self) -> None:
        """The grippers go on by one period."""
        for arm in self._arms:
            arm.opening.step()

    @property
    def openings(self) -> list[float]:
        """Goals of the grippers [m]; NaN before the first target."""
        return [math.nan if arm.opening.goal is None else arm.opening.goal for arm in self._arms]

    def command(self, positions: Array, velocities: Array, pose: tuple[Array, Array]) -> ArmCommand:
        """The set-point of all arms, with that of each where there are two."""
        if len(self._arms) == 1:
            return ArmCommand(positions, velocities, pose, self._arms[0].opening.width)
        each = [
            ArmCommand(positions[arm.at], velocities[arm.at], (at, turned), arm.opening.width)
            for arm, at, turned in zip(self._arms, *pose, strict=True)
        ]
        return ArmCommand(positions, velocities, pose, arms=tuple(each))
