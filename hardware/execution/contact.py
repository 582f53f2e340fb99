"""What the world does to the arm, as its driver reports it: the newest, its age, and whether it is too much.

Judged are the magnitudes that come, without a tare: one would hide what the arm already pushes against when it is
armed. What a sensor shows of its tool's weight belongs to the driver (UR: payload and `zero_ftsensor`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hardware.observing.freshness import Freshness
from robots.stations import Contract
from robots.stations.parts import WRENCH_NAMES

Array = NDArray[np.float64]


class ContactReader:
    """External torques of the joints, or the wrench at the tool, out of messages.

    Args:
      contract: a station that has a `contact` topic.
      clock: steady time [s].

    Attributes:
      feature: name as an observation.
      name: of the input, for reasons.
      freshness: of the messages.
      values: (n,) torques [Nm] in the order of the contract's joints, or (6,) force [N] and moment [Nm]; None at first.
    """

    def __init__(self, contract: Contract, clock: Callable[[], float] = time.monotonic) -> None:
        assert contract.contact is not None
        self._sensing = contract.contact
        wrench = contract.contact.feature == "wrench"
        self._names = WRENCH_NAMES if wrench else contract.joints
        self._parts = ("force", "moment") if wrench else contract.joints
        # Raw torques of motors: what carries the arm where it is has to be taken from them.
        self._gravity = contract.robot.gravity if contract.contact.gravity else None
        self._units = ("N", "Nm") if wrench else ("Nm",) * len(contract.joints)
        self.feature = contract.contact.feature
        self.name = f"contact on {contract.contact.topic}"
        self.freshness = Freshness(self.name, contract.contact.max_age_s, clock)
        self.values: Array | None = None

    def update(
        self,
        names: Sequence[str],
        values: Sequence[float] | Array,
        stamp: float,
        positions: Sequence[float] | Array = (),
    ) -> bool:
        """Take a message in, with positions [rad] beside raw torques; whether it is whole and newer than the last."""
        if not self.concerns(names):
            return False
        index = {name: i for i, name in enumerate(names)}
        missing = [name for name in self._names if name not in index]
        if missing or len(index) != len(values):
            got = f"{len(values)} values for {', '.join(names) or 'no names'}"
            self.freshness.fault = f"no {missing[0]!r}: {got}" if missing else got
            return False
        found = np.array([values[index[name]] for name in self._names], dtype=np.float64)
        if not np.isfinite(found).all():
            self.freshness.fault = "not finite"
            return False
        if self._gravity is not None:
            if len(positions) != len(values):
                self.freshness.fault = f"{len(positions)} positions beside {len(values)} torques"
                return False
            q = np.array([positions[index[name]] for name in self._names], dtype=np.float64)
            if not np.isfinite(q).all():
                self.freshness.fault = "positions that are not finite"
                return False
            found = self._gravity.external(q, found)
        if not self.freshness.update(stamp):
            return False
        self.values = found
        return True

    def concerns(self, names: Sequence[str]) -> bool:
        """Whether a message with these names is about the arm: joint states may be another device's, too."""
        return self._gravity is None or any(name in names for name in self._names)

    def problem(self) -> str:
        """What is wrong with the messages, or nothing."""
        return self.freshness.problem()

    def push(self) -> str:
        """What is more than the contract permits, or nothing."""
        if self.values is None:
            return ""
        felt = self.values.reshape(2, 3) if len(self._parts) == 2 else self.values[:, None]
        sizes = np.linalg.norm(felt, axis=1)
        over = sizes / np.array(self._sensing.most)
        i = int(np.argmax(over))
        if over[i] <= 1.0:
            return ""
        return f"{self.name}: {self._parts[i]} {sizes[i]:.1f} {self._units[i]}, allowed {self._sensing.most[i]:g}"
