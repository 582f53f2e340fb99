"""A scripted expert of two arms: a waypoint for each, and both go on together.

A phase ends when both tcps are where it wants them: neither lifts before the other has grasped.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sim.experts.waypoints import Array, ScriptedExpert, View, Waypoint

Waypoints = tuple[Waypoint, Waypoint]
"""Of the left arm and of the right one."""


@runtime_checkable
class PairScript(Protocol):
    """One task's knowledge for two arms, see `Script`; positions are in the frame of the station."""

    phases: int
    strategies: int

    def plan_both(
        self, phase: int, views: tuple[View, ...], strategy: NDArray[np.int64], bias: Array, memory: Array
    ) -> Waypoints:
        """The waypoints of `phase`; `memory` (N, 2, 3) are the tcps when it began."""
        ...


class PairExpert(ScriptedExpert):
    """A `ScriptedExpert` of two arms. `interface`: of a world with a pair of ours."""

    def _plan(self, phase: int, views: tuple[View, ...]) -> tuple[Waypoint, ...]:
        return self._script.plan_both(phase, views, self._strategy, self._bias, self._memory)
