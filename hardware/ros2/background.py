"""Several nodes in one process, spun by a thread: for clients such as the operator's, and for tests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import rclpy
from rclpy.context import Context
from rclpy.exceptions import InvalidHandle
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from robolearn.core import RobolearnError

log = logging.getLogger(__name__)


class Background:
    """An rclpy context of its own with an executor that spins in a thread.

    As a context manager it ends in the order that DDS needs: executor, thread, nodes, context.
    """

    def __init__(self, domain_id: int | None = None, args: Sequence[str] = ()) -> None:
        self.context = Context()
        rclpy.init(
            args=list(args), context=self.context, domain_id=domain_id, signal_handler_options=SignalHandlerOptions.NO
        )
        self.executor = SingleThreadedExecutor(context=self.context)
        self.errors: list[Exception] = []
        self._nodes: list[Any] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._spin, name="ros", daemon=True)
        self._thread.start()

    def add(self, node: Any) -> Any:
        """Spin `node` too; it is destroyed at the end."""
        self._nodes.append(node)
        self.executor.add_node(node)
        return node

    def close(self) -> None:
        """End everything; may be called twice."""
        if self._ended.is_set():
            return
        self._ended.set()
        self.executor.wake()
        self._thread.join(5.0)
        self.executor.shutdown()
        for node in self._nodes:
            node.destroy_node()
        rclpy.try_shutdown(context=self.context)

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spin(self) -> None:
        while not self._ended.is_set():
            try:
                self.executor.spin_once(timeout_sec=0.05)
            except ExternalShutdownException:
                return
            except InvalidHandle:  # what was being waited for was destroyed, which is allowed
                continue
            except Exception as error:
                log.exception("a callback failed")
                self.errors.append(error)


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Poll `condition` until it is true, and return what it returned. Raises `RobolearnError`: it was not within
    `timeout_s`; names `what`."""
    end = time.monotonic() + timeout_s
    while True:
        if found := condition():
            return found
        if time.monotonic() > end:
            raise RobolearnError(f"waited {timeout_s:g} s for {what}")
        time.sleep(0.01)
