"""Actions of one arm ↔ its joint set-points: what the streamer and the teleoperation node send to the safety filter."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hardware.execution.workspace_clamp import Border
from robots import make_control
from robots.control import GRIPPER
from robots.ik import solve
from robots.stations import Contract

Array = NDArray[np.float64]


class SetPoints:
    """The control of a contract, for one arm.

    Attributes:
      names: (n + 1,) what a target's numbers are: the contract's joints [rad], then the gripper's opening [m].
      spec: of an action.
      relative: whether actions are displacements, but for the gripper's.
    """

    def __init__(self, contract: Contract) -> None:
        self._control = make_control(contract.action_kind, contract.robot, contract.control_hz)
        self.relative = contract.action_kind == "tcp_delta"
        self._robot, self._border = contract.robot, Border(contract)
        self.names = (*contract.joints, GRIPPER)
        self.spec = self._control.spec
        # Compile now, not while the arm moves.
        home = np.array(contract.robot.home)
        self.action(home, self.target(home, np.zeros(self.spec.size)))

    def wanted(self, q: Array, action: NDArray) -> Array:
        """(n + 1,) where `action` (Da,) leads from the measured joints `q` (n,) [rad], whatever stands there."""
        goal, width = self._control.targets(q[None], self._robot.chain.forward(q[None]), action[None])
        return np.concatenate([goal[0], width])

    def target(self, q: Array, action: NDArray) -> Array:
        """As `wanted`, but not over the border."""
        chain, wanted = self._robot.chain, self.wanted(q, action)
        if not self.relative:  # joint positions are wanted as such
            return wanted
        now, (pos, rot) = chain.forward(q[None]), chain.forward(wanted[None, :-1])
        inside = self._border.inside(pos[0], rot[0], (now[0][0], now[1][0]))
        if np.array_equal(inside, pos[0]):
            return wanted
        goal = solve(chain, q[None], inside[None], rot, rest=np.asarray(self._robot.home))
        return np.concatenate([goal[0], wanted[-1:]])

    def at_rest(self, action: NDArray) -> bool:
        """Whether `action` (Da,) is no motion of the arm."""
        return self.relative and not np.any(action[:-1])

    def action(self, q: Array, target: Array) -> Array:
        """(Da,) in [-1, 1]: the action that leads from `q` (n,) to `target` (n + 1,), or as near as any does."""
        return self._control.actions(q[None], target[None, :-1], target[-1:])[0]
