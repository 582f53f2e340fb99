"""Action servers of grippers: the Franka FrankaHand, and ros2_control's GripperActionController of a Robotiq gripper.

A new goal ends the one before, and goals run while the driver's time passes. No coroutine waits for a goal's end:
rclpy's executor resumes those that wait at each turn, and does little else then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rclpy.action.server import ActionServer, CancelResponse

from hardware.ros2.messages import installed_type
from robots.stations import FRANKA_GRASP, GRIPPER_COMMAND

THERE_M = 0.001
STANDS_S = 0.2  # after which fingers that do not move have met something
GOAL_TOLERANCE = 0.01  # [rad]
STALL_VELOCITY = 0.001  # [rad/s]
STALL_S = 1.0


class GoalServer:
    """One goal at a time.

    Args:
      node: that the servers belong to.
      actions: name of the action → its type.
      began: called with the name and the message of a goal that was taken.
      preempted: name → the result of one that another ended.

    Attributes:
      name: of the action whose goal is under way; empty: none is.
    """

    def __init__(
        self, node: Any, actions: Mapping[str, Any], began: Callable[[str, Any], None], preempted: Callable[[str], Any]
    ) -> None:
        self._began, self._preempted = began, preempted
        self._handle: Any = None
        self.name = ""
        self._servers = [
            ActionServer(
                node, kind, name, execute_callback=_never,
                handle_accepted_callback=lambda handle, name=name: self._accept(name, handle),
                cancel_callback=lambda handle: CancelResponse.ACCEPT,
            )
            for name, kind in actions.items()
        ]  # fmt: skip

    def close(self) -> None:
        """The driver ends."""
        for server in self._servers:
            server.destroy()

    @property
    def cancelled(self) -> bool:
        """True where the end of the goal under way was asked for."""
        return self._handle is not None and self._handle.is_cancel_requested

    def end(self, how: str, result: Any) -> None:
        """End the goal under way: ``"succeed"``, ``"abort"`` or ``"canceled"``."""
        handle, self._handle, self.name = self._handle, None, ""

        def finish(goal: Any) -> Any:
            getattr(goal, how)()
            return result

        handle.execute(finish)

    def _accept(self, name: str, handle: Any) -> None:
        if self._handle is not None:
            self.end("canceled" if self.cancelled else "abort", self._preempted(self.name))
        self._handle, self.name = handle, name
        self._began(name, handle.request)


def _never(handle: Any) -> Any:
    raise AssertionError("goals are ended by `GoalServer.end`")


class FrankaHand:
    """The Franka FrankaHand: `move` and `grasp` take their time.

    The fingers go to the width at the speed of the goal. `move` succeeds when they are there; `grasp` when they stand,
    and not farther from the width than its epsilon; a cancelled goal stops them where they are.

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
        self._server = GoalServer(node, self._kinds, self._begin, lambda name: self._result(name, "another goal came"))

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


class GripperController:
    """GripperActionController, as read in ros2_controllers and in the configuration of ros2_robotiq_gripper.

    Every goal is taken. A goal succeeds within `goal_tolerance` of its position, and is aborted, `stalled`, when the
    joint has stood for `stall_timeout`; the position goes on being held, so that a thing between the fingers is.
    Cancelling holds the joint where it is.

    Args:
      node: that it belongs to.
      name: of the action, e.g. ``"/robotiq_gripper_controller/gripper_cmd"``.
      measured: the joint's position [rad].
      follow: sets the position that the joint holds [rad].

    Attributes:
      goals: position and effort of every goal that came.
      ended: how each of them ended, in order: succeed, abort or canceled.
    """

    def __init__(self, node: Any, name: str, measured: Callable[[], float], follow: Callable[[float], None]) -> None:
        self._kind = installed_type(GRIPPER_COMMAND)
        self._measured, self._follow = measured, follow
        self._target: float | None = None
        self._last, self._stood = measured(), 0.0
        self.goals: list[tuple[float, float]] = []
        self.ended: list[str] = []
        self._server = GoalServer(node, {name: self._kind}, self._begin, self._preempted)

    def close(self) -> None:
        """The driver ends."""
        self._server.close()

    def _begin(self, name: str, goal: Any) -> None:
        self.goals.append((goal.command.position, goal.command.max_effort))
        self._target, self._stood = goal.command.position, 0.0
        self._follow(goal.command.position)

    def _preempted(self, name: str) -> Any:
        self.ended.append("canceled" if self._server.cancelled else "abort")
        return self._kind.Result()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        position = self._measured()
        moving = abs(position - self._last) > STALL_VELOCITY * seconds
        self._last, self._stood = position, 0.0 if moving else self._stood + seconds
        if self._target is None:
            return
        reached = abs(self._target - position) < GOAL_TOLERANCE
        if self._server.cancelled:
            self._follow(position)
            self._end("canceled", self._kind.Result())
        elif reached or self._stood > STALL_S:
            result = self._kind.Result(position=position, reached_goal=reached, stalled=not reached)
            self._end("succeed" if reached else "abort", result)

    def _end(self, how: str, result: Any) -> None:
        self._target = None
        self.ended.append(how)
        self._server.end(how, result)

    def restarted(self) -> None:
        """The scene was put back."""
        if self._target is not None:
            self._end("abort", self._kind.Result())
