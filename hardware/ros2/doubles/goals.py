"""Action servers of which a new goal ends the one before, whose goals run while the driver's time passes.

No coroutine waits for a goal's end: rclpy's executor resumes those that wait at each turn, and does little else then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rclpy.action.server import ActionServer, CancelResponse


class Goals:
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
        """Whether the end of the goal under way was asked for."""
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
    raise AssertionError("goals are ended by `Goals.end`")
