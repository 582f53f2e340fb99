"""Joints of the arms and grippers of a station, out of joint states."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from hardware.observing.timing import Freshness
from hardware.safety.senders import Publishers
from robots.stations import AnyContract, Contract

Array = NDArray[np.float64]

GRIPPER_AGES = 10.0  # a gripper with a publisher of its own may be so many times as old as the arm's joints


def pick(
    freshness: Freshness, names: Sequence[str], values: Sequence[float] | Array, wanted: Sequence[str], what: str = ""
) -> Array | None:
    """(n,) values of `wanted` in a message; None, and the fault of `freshness`, where it is not whole or not finite."""
    index = {name: i for i, name in enumerate(names)}
    if len(values) != len(names) or len(index) != len(names):
        freshness.fault = f"{len(names)} names and {len(values)} values, or a name twice"
    elif missing := [name for name in wanted if name not in index]:
        freshness.fault = f"no {what}{missing[0]!r} among {', '.join(names) or 'no names'}"
    else:
        found = np.array([values[index[name]] for name in wanted], dtype=np.float64)
        if np.isfinite(found).all():
            return found
        freshness.fault = "not finite"
    return None


class JointReader:
    """The arm's joints and its gripper's out of joint states, whatever their order and company. Messages that name no
    joint of the arm are another device's and passed over; a gripper may have its own. A joint of the gripper comes from
    one publisher: while two report it, neither is believed.

    Attributes:
      describe: the name of a publisher, for reasons.
    """

    def __init__(
        self,
        contract: Contract,
        clock: Callable[[], float] = time.monotonic,
        describe: Callable[[Hashable], str] = str,
    ) -> None:
        topic = contract.joint_states
        self.contract = contract
        self.freshness = Freshness(f"joint states on {topic.topic}", topic.max_age_s, clock)
        self.q: Array | None = None
        self._gripper = dict.fromkeys(contract.gripper_joints, np.nan)
        self._gripper_heard = dict.fromkeys(contract.gripper_joints, 0.0)  # when each last arrived
        self.describe = describe
        self._apart = False  # the gripper's joints come on a topic of their own
        self._listen(topic.topic)

    def _listen(self, topic: str) -> None:
        self._second: tuple[Publishers, Hashable] | None = None  # another publisher than the bound one
        self._publishers = {
            name: Publishers(f"gripper joint {name!r} on {topic}", self.freshness.clock, lambda one: self.describe(one))
            for name in self._gripper
        }

    def update(
        self, names: Sequence[str], positions: Sequence[float] | Array, stamp: float, publisher: Hashable = None
    ) -> bool:
        """Take a message of `publisher` in; True where it is the arm's, whole and newer than the last."""
        if not self._apart:
            self._take_gripper(names, positions, publisher)
        if not any(name in names for name in self.contract.joints):
            return False
        q = pick(self.freshness, names, positions, self.contract.joints, "joint ")
        if q is None or not self.freshness.update(stamp):
            return False
        self.q = q
        return True

    def gripper(self, names: Sequence[str], positions: Sequence[float] | Array, publisher: Hashable = None) -> None:
        """Take a message of the gripper's own topic in. From the first one on its joints count nowhere else."""
        topic = self.contract.gripper_states
        if topic is not None and not self._apart and any(name in self._gripper for name in names):
            self._apart = True
            self._listen(topic.topic)
        self._take_gripper(names, positions, publisher)

    def _take_gripper(self, names: Sequence[str], positions: Sequence[float] | Array, publisher: Hashable) -> None:
        if not len(positions) == len(names) == len(set(names)):
            return
        for name, position in zip(names, positions, strict=True):
            if name not in self._gripper:
                continue
            publishers = self._publishers[name]
            if not publishers.heard(publisher):
                self._second = publishers, publisher
            if publishers.alone:
                self._gripper[name], self._gripper_heard[name] = float(position), self.freshness.clock()

    def bind(self) -> None:
        """The arm is armed: another publisher of the gripper's joints than the one that is heard is
        a `second_publisher`."""
        self._second = None
        for publishers in self._publishers.values():
            publishers.bind()

    def second_publisher(self) -> str:
        """Reason to stop an arm that was armed by one publisher of the gripper's joints; empty where it is alone."""
        if self._second is None:
            return ""
        publishers, second = self._second
        return publishers.against(second)

    @property
    def width(self) -> float:
        """Opening of the gripper [m]; NaN before it was heard of, 0 without one."""
        if not self._gripper:
            return 0.0
        return self.contract.gripper_width(list(self._gripper.values()))

    def problem(self) -> str:
        """The problem, or nothing."""
        if problem := self.freshness.problem():
            return problem
        if found := [problem for one in self._publishers.values() if (problem := one.problem())]:
            return found[0]
        silent = [name for name, value in self._gripper.items() if not np.isfinite(value)]
        if silent:
            return f"{self.freshness.name}: no gripper joint {silent[0]!r}"
        now = self.freshness.clock()
        for name, heard in self._gripper_heard.items():
            if now - heard > GRIPPER_AGES * self.freshness.max_age_s:
                return f"{self.freshness.name}: gripper joint {name!r} silent for {now - heard:.2f} s"
        return ""


class StationJoints:
    """The joints of the arms of a station, one after the other, and of their grippers.

    Attributes:
      arms: arm → the reader of its joint states.
    """

    def __init__(self, contract: AnyContract, clock: Callable[[], float] = time.monotonic) -> None:
        self.arms = {name: JointReader(arm, clock) for name, arm in contract.arms.items()}

    def update(
        self, names: Sequence[str], positions: Sequence[float] | Array, stamp: float, publisher: Hashable = None,
        arm: str = "",
    ) -> bool:  # fmt: skip
        """A message on the topic of `arm`, see `JointReader.update`."""
        return self.arms[arm].update(names, positions, stamp, publisher)

    @property
    def q(self) -> Array | None:
        """(n,) newest positions [rad]; None before those of every arm have come."""
        found = [reader.q for reader in self.arms.values() if reader.q is not None]
        return np.concatenate(found) if len(found) == len(self.arms) else None

    @property
    def widths(self) -> Array:
        """(arms,) openings of the grippers [m], see `JointReader.width`."""
        return np.array([reader.width for reader in self.arms.values()])

    @property
    def openings(self) -> Array:
        """The same as robots and controls have them: (1,), of two arms (1, 2)."""
        return self.widths if len(self.arms) == 1 else self.widths[None]

    @property
    def stamp(self) -> float:
        """Of the older one of the arms' newest joint states [s]."""
        return min(reader.freshness.stamp for reader in self.arms.values())

    @property
    def apart(self) -> float:
        """Difference of the stamps of two arms' newest joint states [s]."""
        return max(reader.freshness.stamp for reader in self.arms.values()) - self.stamp

    def problem(self) -> str:
        """The problem of the first arm that has one, or nothing."""
        return next((problem for reader in self.arms.values() if (problem := reader.problem())), "")
