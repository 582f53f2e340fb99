"""A node as `process.host` runs it, in a thread: its heart beats, and between two beats the executor has its turn.

Executors that wake for every message and every timer of four nodes keep one interpreter busy: the arm of such a station
stands still for no reason that a station of processes would have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

from hardware.ros2 import process
from robolearn.core import RobolearnError
from robolearn.core.machine import make_ordinary

WAIT_S = 20.0


class Hosted:
    """The node that `make` returns, running once this returns.

    Args:
      make: makes it in a context of its own.
      domain_id: of that context; by default the environment's.
    """

    def __init__(self, make: Callable[[Context], Any], domain_id: int | None = None) -> None:
        self.context = Context()
        rclpy.init(args=[], context=self.context, domain_id=domain_id)
        self.node = make(self.context)
        self.node.hosted = True
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.stop, self.codes = process.Stop(), list[int]()
        self._started = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        # One after the other: several nodes that make their entities at once wait for one another.
        assert self._started.wait(WAIT_S), self.node.get_name()

    def _run(self) -> None:
        try:
            self.node.start()
        finally:
            self._started.set()
        try:
            self.codes.append(process.serve(self.node, self.executor, self.stop))
        except RobolearnError as error:
            self.codes.append(error.exit_code)

    def close(self) -> None:
        """End it as Ctrl-C does."""
        self.stop.requested = True
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive() and self.codes == [1 if self.node.error else 0]
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)
        make_ordinary()  # all the tests that come after would go before everything else on this machine


def running(stack: ExitStack, make: Callable[[Context], Any], domain_id: int | None = None) -> Any:
    """The node that `make` returns, `Hosted` until the stack ends."""
    made = Hosted(make, domain_id)
    stack.callback(made.close)
    return made.node
