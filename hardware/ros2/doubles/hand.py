"""The Franka Hand's action servers, as a double: `move` and `grasp` take their time, and one goal ends the one before.

The fingers go to the width at the speed of the goal. `move` succeeds when they are there; `grasp` when they stand, and
not farther from the width than its epsilon; a cancelled goal stops them where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hardware.ros2.doubles.goals import Goals
from hardware.ros2.messages import installed_type
from robots.stations import FRANKA_GRASP

THERE_M = 0.001
STANDS_S = 0.2  # after which fingers that do not move have met something


class Hand:
    """The action servers of a hand.

    Args:
      node: that they belong to.
      name: of the gripper's node, e.g. ``"/franka_gripper"``.
      most: greatest opening [m].
      width: measures the opening [m].
      follow: sets the opening that the fingers hold [m].

    Attributes:
      goals: kind, width, force and epsilon of every goal that came.
    """

    def __init__(
        self, node: Any, name: str, most: float, width: Callable[[], float], follow: Callable[[float], None]
    ) -> None:
        self._most, self._width, self._follow = most, width, follow
        self._goal: Any = None
        self._stood = 0.0
        self._held: float | None = None
        self.goals: list[tuple[str, float, float, float]] = []
        self._kinds = {
            f"{name}/move": installed_type(FRANKA_GRASP.replace("Grasp", "Move")),
            f"{name}/grasp": installed_type(FRANKA_GRASP),
        }
        self._server = Goals(node, self._kinds, self._begin, lambda name: self._result(name, "another goal came"))

    def close(self) -> None:
        """The driver ends."""
        self._server.close()

    def _begin(self, name: str, goal: Any) -> None:
        word = name.rpartition("/")[2]
        outer = goal.epsilon.outer if word == "grasp" else 0.0
        self.goals.append((word, goal.width, getattr(goal, "force", 0.0), outer))
        self._goal, self._stood = goal, 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        goal, measured = self._goal, self._width()
        if goal is None:
            return
        held = measured if self._held is None else self._held
        if self._server.cancelled:
            self._end("cancelled", "canceled")
            self._hold(measured)
            return
        width = min(max(goal.width, 0.0), self._most)
        most = goal.speed * seconds
        self._hold(held + min(max(width - held, -most), most))
        if self._held != width:
            return
        self._stood += seconds
        away = abs(measured - width)
        if hasattr(goal, "epsilon"):
            if self._stood >= STANDS_S:
                self._end("" if away <= goal.epsilon.outer else f"fingers stand {away:.3f} m away")
        elif away < THERE_M:
            self._end("")
        elif self._stood >= STANDS_S:
            self._end(f"fingers stand {away:.3f} m away")

    def _hold(self, width: float) -> None:
        self._held = width
        self._follow(width)

    def _end(self, error: str, how: str = "") -> None:
        self._goal = None
        self._server.end(how or ("abort" if error else "succeed"), self._result(self._server.name, error))

    def _result(self, name: str, error: str) -> Any:
        return self._kinds[name].Result(success=not error, error=error)

    def restarted(self) -> None:
        """The scene was put back."""
        self._held = None
        if self._goal is not None:
            self._end("another scene")
