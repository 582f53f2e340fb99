"""Actions ↔ joint set-points of one arm or of two, as the streamer and the teleoperation node send them to the filter.

Targets that would lead the tool out of the workspace or too near to a plane are clamped: moved back along the normal,
so that the motion along the limit remains. The safety filter alone would stop the arm there until a target leads
inside, which is in the way of a hand that works just above the table. It judges clamped targets as all others.

Clamped is what the last link carries: the gripper at every opening, the tool, what it holds. For the other links, for
boxes, and where a joint is at its limit, the filter alone stands.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robots import RobotSpec, make_control
from robots.chunk_execution import ActionParts
from robots.control import Array
from robots.ik import solve
from robots.limits import Plane
from robots.stations import AnyContract, Contract

# An arm that is so little beyond the margin goes back to it: held where it is, it would be led outside step by step, by
# noise. One that is farther outside is not moved.
AT_IT_M = 0.002
MARGIN_M = 0.001  # inside the limit: set-points on the way to a target sag below it


class WorkspaceClamp:
    """Workspace and planes of a station, which the tool is kept inside of.

    Args:
      contract: its workspace and planes.
    """

    def __init__(self, contract: Contract) -> None:
        chain, limits = contract.robot.chain, contract.limits
        self._box = limits.workspace
        self._planes = [obstacle for obstacle in limits.obstacles if isinstance(obstacle, Plane)]
        self._distance = limits.obstacle_distance + MARGIN_M
        carried = [piece for piece in contract.robot.pieces if piece.link == chain.n]
        points = np.concatenate([(piece.points - chain.tcp_pos) @ chain.tcp_rot for piece in carried])
        radii = np.concatenate([np.full(len(piece.points), piece.radius) for piece in carried])
        if limits.held is not None:
            corners = np.stack(np.meshgrid(*limits.held.T, indexing="ij"), -1).reshape(-1, 3)
            points, radii = np.concatenate([points, corners]), np.concatenate([radii, np.zeros(8)])
        self._points, self._radii = points, radii

    def inside(self, pos: Array, rot: Array, now: tuple[Array, Array]) -> NDArray[np.float64]:
        """The position of the tcp inside, as near to `pos` as can be.

        Args:
          pos, rot: wanted pose of the tcp, (3,) [m] and (3, 3), base frame.
          now: its pose. An arm that is outside goes no farther.

        Returns:
          (3,) [m].
        """
        pos = np.array(pos, dtype=np.float64)
        for plane in self._planes:
            here = self._gap(plane, *now)
            allowed = self._distance if here > self._distance - AT_IT_M else here
            pos += max(allowed - self._gap(plane, pos, rot), 0.0) * plane.normal
        if self._box is not None:
            low, high = self._box[0] + MARGIN_M, self._box[1] - MARGIN_M
            low = np.where(now[0] > low - AT_IT_M, low, now[0])
            pos = np.clip(pos, low, np.where(now[0] < high + AT_IT_M, high, now[0]))
        return pos

    def _gap(self, plane: Plane, pos: Array, rot: Array) -> float:
        """Between the plane and what the last link carries [m]."""
        nearest = np.min(self._points @ (rot.T @ plane.normal) - self._radii)
        return float(nearest + plane.normal @ pos - plane.offset)


class SetPoints:
    """The control of a contract, for one arm or for two.

    Attributes:
      names: (n + arms,) of a target's numbers: all joints [rad], then the opening of each gripper [m].
      spec: of an action.
      relative: actions are displacements, but for the grippers'.
    """

    def __init__(self, contract: AnyContract) -> None:
        self._control = make_control(contract.action_kind, contract.robot, contract.control_hz)
        self.relative = contract.action_kind == "tcp_delta"
        self._n, arms = len(contract.joints), zip(contract.robot.slices, contract.arms.values(), strict=True)
        self._arms = [(at, arm.robot, WorkspaceClamp(arm)) for at, arm in arms]
        self.names = (*contract.joints, *contract.grippers)
        self.spec = self._control.spec
        self._moves = ~ActionParts.named(self.spec.names, displacements=self.relative).opening
        # Compile now, not while the arm moves.
        home = np.array(contract.robot.home)
        self.action(home, self.target(home, np.zeros(self.spec.size)))

    def wanted(self, q: Array, action: NDArray) -> Array:
        """(n + arms,) the target that `action` (Da,) leads to from the measured joints `q` (n,) [rad], unclamped."""
        goal, widths = self._control.targets(q[None], None, action[None])
        return np.concatenate([goal[0], widths.ravel()])

    def target(self, q: Array, action: NDArray) -> Array:
        """As `wanted`, clamped to the workspace of each arm."""
        wanted = self.wanted(q, action)
        if self.relative:  # joint positions are wanted as such
            for at, robot, clamp in self._arms:
                wanted[at] = _clamped(robot, clamp, q[at], wanted[at])
        return wanted

    def at_rest(self, action: NDArray) -> bool:
        """True where `action` (Da,) is no motion of an arm."""
        return self.relative and not np.any(action[self._moves])

    def action(self, q: Array, target: Array) -> Array:
        """(Da,) in [-1, 1]: the action that leads from `q` (n,) to `target` (n + arms,), or as near as any does."""
        goal, widths = np.split(target, [self._n])
        return self._control.actions(q[None], goal[None], widths if len(self._arms) == 1 else widths[None])[0]


def _clamped(robot: RobotSpec, clamp: WorkspaceClamp, q: Array, wanted: Array) -> Array:
    """(n,) joints [rad] of one arm at `q` (n,) that keep the tool inside, as near to `wanted` (n,) as can be."""
    chain = robot.chain
    now, (pos, rot) = chain.forward(q[None]), chain.forward(wanted[None])
    inside = clamp.inside(pos[0], rot[0], (now[0][0], now[1][0]))
    if np.array_equal(inside, pos[0]):
        return wanted
    return solve(chain, q[None], inside[None], rot, rest=np.asarray(robot.home))[0]
