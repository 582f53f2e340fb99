"""The inputs of one arm to the safety filter, each judged: joint states, contact, reports of the robot's controller.

Nothing is stopped here: a method returns the reason for which an armed arm has to stop, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardware.observing.clocks import SenderClock
from hardware.observing.joints import JointReader
from hardware.observing.observer import ContactReader
from hardware.observing.timing import Freshness
from hardware.safety.measured import OwnJoints, Stuck
from hardware.safety.readings import EncoderNoise, Leap
from hardware.safety.senders import Conditions, Publishers
from robots.stations import Contract

Array = NDArray[np.float64]


class ArmInputs:
    """One arm's.

    Args:
      contract: the arm's.
      clock: steady time [s].
      wall: the clock of stamps [s].
      describe: the name of a publisher, for reasons.
    """

    def __init__(
        self,
        contract: Contract,
        clock: Callable[[], float],
        wall: Callable[[], float],
        describe: Callable[[Hashable], str],
    ) -> None:
        self._contract, self._clock = contract, clock
        states, timeout = contract.joint_states, contract.limits.state_timeout_s
        self._joints = Freshness(f"joint states on {states.topic}", states.max_age_s, clock)
        self._sender_clock = SenderClock(timeout, clock, wall)
        self._publishers = Publishers(f"joint states on {states.topic}", clock, describe)
        self._conditions = Conditions(contract.conditions, clock)
        self._contact = None if contract.contact is None else ContactReader(contract, clock)
        self._feelers = Publishers("" if self._contact is None else self._contact.name, clock, describe)
        # A jaw in the arm's command is commanded from the first one on: it begins where it is measured.
        self._gripper = JointReader(contract, clock, describe) if contract.gripper_in_command else None
        self._stuck = Stuck(timeout)
        self._noise = EncoderNoise(timeout)
        self._leap = Leap(contract.joints, contract.robot.acceleration, timeout)
        self._own = OwnJoints(contract.joints)

    def joint_state(
        self, names: tuple[str, ...], positions: ArrayLike, stamp: float, publisher: Hashable, *, armed: bool,
        set_point: Array | None,
    ) -> tuple[str | None, bool]:  # fmt: skip
        """A joint state: any order, other joints among them allowed; those of another device are ignored. One of the
        arm, or a jaw in its command, by another `publisher` than the one that it was `armed` by stops it, unread.

        Args:
          set_point: (n,) of the arm, as last sent since it was armed [rad]; None: none was.

        Returns:
          The reason, and true where the filter is to measure the arm by it.
        """
        arm = any(name in names for name in self._contract.joints)
        believed = self._publishers.heard(publisher, arm=arm)
        if armed and arm and not believed:
            return self._publishers.problem(), False
        values = np.asarray(positions, dtype=np.float64)
        if self._gripper is not None:
            self._gripper.update(names, values, stamp, publisher)
            if armed and (second := self._gripper.second_publisher()):
                return second, False
        if not arm:
            return None, False
        newer = self._joints.update(stamp)
        if newer:
            self._sender_clock.update(stamp)
        q = self._own(names, values)
        read = newer and q is not None and bool(np.isfinite(q).all())
        if not armed:
            if q is not None and read:
                self._noise.rest(q, self._clock(), publisher)
            return None, newer
        problem = self._joints.problem() or self._clock_problem()
        if q is not None and read:
            problem = problem or self._reading_problem(q, stamp)
        if not problem and q is not None and set_point is not None and self._stuck(q, set_point, self._clock()):
            problem = f"{self._joints.name}: frozen, the same values although the arm is commanded to move"
        return problem or None, newer

    def _reading_problem(self, q: Array, stamp: float) -> str:
        """Problem of what an armed arm is measured at, q (n,) [rad], by what its readings were before; or nothing."""
        now = self._clock()
        problem, stood = self._leap(q, stamp, now, self._noise.level), self._noise.stands(q, now)
        if stood:
            problem = f"frozen, the same values for {stood:.2f} s from encoders that had noise at rest"
        return problem and f"{self._joints.name}: {problem}"

    def _clock_problem(self) -> str:
        """Problem of the clock of the joint states, or nothing."""
        problem = self._sender_clock.problem()
        return problem and f"{self._joints.name}: {problem}"

    def contact(
        self, names: Sequence[str], values: ArrayLike, stamp: float, publisher: Hashable, positions: ArrayLike, *,
        armed: bool,
    ) -> str | None:  # fmt: skip
        """Contact values of the arm, by name. Returns the reason where they come from a second publisher."""
        assert self._contact is not None
        if not self._contact.concerns(names):
            return None
        believed = self._feelers.heard(publisher)
        if armed and not believed:
            return self._feelers.problem()
        arrays = (np.asarray(one, dtype=np.float64) for one in (values, positions))
        self._contact.update(names, next(arrays), stamp, next(arrays))
        return None

    def feels(self) -> tuple[str, str]:
        """The reason for which contact is not known, and that of an arm that meets something; or nothing."""
        if self._contact is None:
            return "", ""
        problem = self._contact.problem()
        return problem, "" if problem else self._contact.push()

    def condition(self, name: str, value: float) -> None:
        """The robot's controller reports a value of the contract's condition `name`."""
        self._conditions.heard(name, value)

    def conditions(self) -> str:
        """The reason for which the robot's controller takes no commands, or nothing."""
        return self._conditions.problem()

    def refusal(self, publishers: Collection[Hashable]) -> str:
        """Reason why arming is refused; empty when there is none. `publishers` are those of joint states that there
        are, heard or not."""
        if problem := self._conditions.problem():
            return problem
        problem = self._publishers.problem() or self._publishers.unheard(publishers)
        problem = problem or self._joints.problem() or self._clock_problem()
        if not problem and self._gripper is not None:
            problem = self._gripper.problem()
        if problem or self._contact is None:
            return problem
        return self._feelers.problem() or self._contact.problem() or self._contact.push()

    def begin(self) -> None:
        """The arm is about to be armed: what was measured before does not count."""
        self._stuck.begin()

    def bind(self) -> None:
        """The arm is armed, by those publishers that are heard."""
        self._publishers.bind()
        if self._gripper is not None:
            self._gripper.bind()
        self._feelers.bind()

    @property
    def opening(self) -> float | None:
        """Measured opening of a jaw in the arm's command [m], or None."""
        return None if self._gripper is None else self._gripper.width
