"""One goal of an action, from the request to the result, with a driver behind it that may die or hang at any moment.

A server that was killed counts as there until its lease ends, 20 s with DDS's defaults; and a goal that it had taken
never ends. So each question has its time: who does not answer is given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rclpy.action.client import ActionClient

ANSWER_S = 2.0  # for taking or refusing a goal, and for ending one that was cancelled


class ActionGoal:
    """A goal that is sent at once. The motion itself may take as long as it takes.

    Args:
      client: of the action.
      goal: its message.
      ended: called once, with whether the goal had been taken; not after `forget`.
      clock: steady time [s].
    """

    def __init__(
        self,
        client: ActionClient,
        goal: Any,
        ended: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ended: Callable[[bool], None] | None = ended
        self._clock = clock
        self._asked: float | None = clock()
        self._handle: Any = None
        self._cancelling = False
        self._future = _send(client, goal)
        self._future.add_done_callback(self._answered)

    @property
    def silent(self) -> bool:
        """Whether the server owes an answer for too long."""
        return self._asked is not None and self._clock() - self._asked > ANSWER_S

    def cancel(self) -> None:
        """Ask for its end, once; before it is taken there is nothing to cancel."""
        if self._handle is not None and not self._cancelling:
            self._cancelling, self._asked = True, self._clock()
            self._handle.cancel_goal_async()

    def forget(self) -> None:
        """Whatever comes of it is passed over."""
        self._ended = None
        self._future.cancel()  # and so rclpy forgets it, too

    def _answered(self, future: Any) -> None:
        if self._ended is None:
            return
        self._handle, self._asked = future.result(), None
        if not self._handle.accepted:
            self._end(False)
            return
        self._future = self._handle.get_result_async()
        self._future.add_done_callback(lambda _: self._end(True))

    def _end(self, taken: bool) -> None:
        ended, self._ended, self._asked = self._ended, None, None
        if ended is not None:
            ended(taken)


def _send(client: ActionClient, goal: Any) -> Any:
    """`send_goal_async`, and no more than its future stays with the client.

    That of rclpy 9 makes two futures and keeps the one that never ends; and its executor goes through all that it keeps
    at each message of the action.
    """
    known = {id(one) for one in getattr(client, "_futures", ())}
    future = client.send_goal_async(goal)
    for other in list(getattr(client, "_futures", ())):
        if id(other) not in known and other is not future:
            client.remove_future(other)
    return future
