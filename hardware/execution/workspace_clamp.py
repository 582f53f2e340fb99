"""Targets that slide along the border of the workspace and along planes, where they would lead the tool outside.

The safety filter stops an arm whose way leads outside, and the arm then stands until a target leads inside: right for
what nobody meant, and in the way of a hand that works just above the table. So targets are moved back to the border
before they get there, at right angles to it; what remains is the motion along it. The filter judges them as all others.

Looked at is what the last link carries: the gripper at every opening, the tool, what it holds. For the other links, for
boxes, and where a joint is at its limit, the filter alone stands.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robots.control import Array
from robots.obstacles import Plane
from robots.stations import Contract

# An arm that is so little beyond the margin goes back to it: held where it is, it would be led outside step by step, by
# noise. One that is farther outside is not moved.
AT_IT_M = 0.002
MARGIN_M = 0.001  # inside the border: set-points on the way to a target sag below it


class Border:
    """The border of a station.

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
        """Where the tcp may go, as near to `pos` as can be.

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
