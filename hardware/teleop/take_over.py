"""The moment in which a person takes over from a policy: the arm rests for one step, the gripper stays as it is.

A stick that is held askew, or a key that is down already, must not become a jump: the first action of the hand is no
motion, whatever the device says. The gripper stays as the policy left it until the person asks for something else.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.device import Sample
from robolearn.core import Interface


class TakeOver:
    """Who moves the arm, and what of the device's actions counts.

    Args:
      interface: whose action it is.

    Attributes:
      mine: the person's turn.
    """

    def __init__(self, interface: Interface) -> None:
        names = interface.action.names
        self._gripper = names.index("gripper") if "gripper" in names else None
        self._relative = interface.action_kind == "tcp_delta"
        self._grip: float | None = None  # what the policy asked of the gripper last
        self._found: float | None = None  # what the device asked of it when the person took over
        self.mine = False

    def begin(self) -> None:
        """An episode begins."""
        self._grip, self.mine = None, False

    def policy(self, action: NDArray[np.float32] | None) -> None:
        """The policy moves the arm, by this (Da,) action or by none."""
        self.mine = False
        if action is not None and self._gripper is not None:
            self._grip = float(action[self._gripper])

    def hand(self, theirs: Sample) -> Sample:
        """The person's sample as it is to be executed; `action` is None where the arm is to hold still."""
        taken, self.mine = not self.mine, True
        kept = self._kept_grip(theirs, taken)
        if not taken or kept.action is None:
            return kept
        if not self._relative:
            return replace(kept, action=None)
        still = np.zeros_like(kept.action)
        if self._gripper is not None:
            still[self._gripper] = kept.action[self._gripper]
        return replace(kept, action=still)

    def _kept_grip(self, theirs: Sample, taken: bool) -> Sample:
        if theirs.action is None or self._gripper is None:
            return theirs
        asked = float(theirs.action[self._gripper])
        if taken:
            self._found = asked
        if self._found is None or asked != self._found or self._grip is None:
            self._found = None  # the person has asked for something else, and is obeyed from now on
            return theirs
        action = np.array(theirs.action)
        action[self._gripper] = self._grip
        return replace(theirs, action=action)
