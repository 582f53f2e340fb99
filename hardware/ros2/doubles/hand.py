"""The Franka Hand's action servers, as a double: `move` and `grasp` take their time, and one goal ends the one before.

The fingers go to the width at the speed of the goal. `move` succeeds when they are there; `grasp` when they stand, and
not farther from the width than its epsilon; a cancelled goal stops them where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.action.server import ActionServer, CancelResponse
from rclpy.task import Future

from hardware.ros2.messages import installed_type
from robots.stations import FRANKA_GRASP

THERE_M = 0.001
STANDS_S = 0.2  # after which fingers that do not move have met something


class _Task:
    def __init__(self, handle: Any, done: Future) -> None:
        self.handle, self.done, self.stood = handle, done, 0.0


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
        self._node, self._task = node, None
        self._held: float | None = None
        self.goals: list[tuple[str, float, float, float]] = []
        self._kinds = {
            "grasp": installed_type(FRANKA_GRASP),
            "move": installed_type(FRANKA_GRASP.replace("Grasp", "Move")),
        }
        self._servers = [
            ActionServer(
                node,
                self._kinds[word],
                f"{name}/{word}",
                execute_callback=execute,
                cancel_callback=lambda handle: CancelResponse.ACCEPT,
            )
            for word, execute in (("move", self._move), ("grasp", self._grasp))
        ]

    def close(self) -> None:
        """The driver ends."""
        for server in self._servers:
            server.destroy()

    async def _move(self, handle: Any) -> Any:
        return await self._execute(handle, "move")

    async def _grasp(self, handle: Any) -> Any:
        return await self._execute(handle, "grasp")

    async def _execute(self, handle: Any, word: str) -> Any:
        goal = handle.request
        outer = goal.epsilon.outer if word == "grasp" else 0.0
        self.goals.append((word, goal.width, getattr(goal, "force", 0.0), outer))
        if self._task is not None:
            self._task.done.set_result("another goal came")
        self._task = _Task(handle, Future(executor=self._node.executor))
        error = await self._task.done
        if error == "cancelled":
            handle.canceled()
        elif error:
            handle.abort()
        else:
            handle.succeed()
        return self._kinds[word].Result(success=not error, error=error)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        task = self._task
        if task is None:
            return
        goal, measured = task.handle.request, self._width()
        held = measured if self._held is None else self._held
        if task.handle.is_cancel_requested:
            self._end(task, "cancelled")
            self._hold(measured)
            return
        width = min(max(goal.width, 0.0), self._most)
        most = goal.speed * seconds
        self._hold(held + min(max(width - held, -most), most))
        if self._held != width:
            return
        task.stood += seconds
        away = abs(measured - width)
        if hasattr(goal, "epsilon"):
            if task.stood >= STANDS_S:
                self._end(task, "" if away <= goal.epsilon.outer else f"fingers stand {away:.3f} m away")
        elif away < THERE_M:
            self._end(task, "")
        elif task.stood >= STANDS_S:
            self._end(task, f"fingers stand {away:.3f} m away")

    def _hold(self, width: float) -> None:
        self._held = width
        self._follow(width)

    def _end(self, task: _Task, error: str) -> None:
        self._task = None
        task.done.set_result(error)

    def restarted(self) -> None:
        """The scene was put back."""
        self._held = None
        if self._task is not None:
            self._end(self._task, "another scene")
