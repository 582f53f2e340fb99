"""Nodes in processes.

One as a process: flags as parameters, signals end it cleanly, it ends with its parent, last messages arrive. Several in
a thread of one: for clients such as the operator's, and for tests.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import rclpy
from rclpy.context import Context
from rclpy.duration import Duration
from rclpy.exceptions import InvalidHandle
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from robolearn.core import BadInput, RobolearnError
from robolearn.core.machine import make_ordinary, searched_before, threads
from robolearn.io.log_lines import LogLines

if TYPE_CHECKING:
    from hardware.ros2.runtime import Node

log = logging.getLogger(__name__)

PARENT = "ROBOLEARN_PARENT"  # in the environment: process id of the program that started this node and ends with it
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
EXECUTOR_S = 0.01  # the executor's turn, in nodes with a heart
SELDOM = 5  # turns, one of which looks at what is asked for seldom
ACKNOWLEDGE_S = 0.5  # a node that has done its work waits at most so long until its last messages are acknowledged


def spin(factory: Callable[[], Node], args: Sequence[str] | None = None) -> int:
    """Run one node as `host` does, and print errors; the exit code of the process. Returns 0 ended by a signal or done,
    1 failed, 2 bad input."""
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", handlers=[LogLines()])
    # MuJoCo brings PyOpenGL along, which says of every process that it lacks a module that is not needed here.
    logging.getLogger("OpenGL").setLevel(logging.WARNING)
    try:
        return host(factory, args)
    except RobolearnError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def host(factory: Callable[[], Node], args: Sequence[str] | None = None) -> int:
    """Run one node, made by `factory` after `rclpy.init`, until SIGINT, SIGTERM, the end of its context or of its work.
    `args` is the command line, `--ros-args …` included; `sys.argv` by default. Returns 0 ended by a signal or done, 1 a
    callback failed. Raises `RobolearnError`: the node did not start, or ended because something went wrong."""
    stop = Stop()
    other_threads = frozenset(threads())
    with _signals(stop):
        _end_with_parent(stop)
        _begin(None if args is None else list(args))
        node = None
        executor = SingleThreadedExecutor()
        try:
            node = factory()
            node.hosted, node.other_threads = True, other_threads - {threading.get_native_id()}
            executor.add_node(node)
            with searched_before():  # and before it opens a device
                node.start()
                gc.freeze()  # what lives as long as the node need not be looked through in mid-motion
                code = serve(node, executor, stop)
        finally:
            executor.shutdown()
            if node is not None:
                wait_acknowledged(node)
                node.destroy_node()
            rclpy.try_shutdown()
            make_ordinary()  # what comes after a node drives no arm
    return code


def serve(node: Node, executor: SingleThreadedExecutor, stop: Stop) -> int:
    limit = float("inf")
    code = 0
    failure: RobolearnError | None = None
    due = turn = time.monotonic()
    turns = 0
    while (now := time.monotonic()) < limit:
        if (stop.requested or node.done) and limit == float("inf"):
            node.begin_stop("signal to end" if stop.requested else "done")
            limit = now + node.stop_limit_s
        if limit < float("inf") and node.stopped():
            break
        try:
            if node.heart is None:
                node.seldom.open = True
                executor.spin_once(timeout_sec=0.05)
                continue
            period, callback = node.heart
            time.sleep(max(0.0, due - now))
            # In step with the clock again after a beat that was late, but never two at once.
            due = max(due + period, time.monotonic() + 0.6 * period)
            later = callback() or 0.0
            due += later
            # It takes 0.7 ms and can wait once: where a message is about to come, and so the next beat much sooner, or
            # where another thread is to have the interpreter, and so the next beat much later.
            if time.monotonic() >= turn + (EXECUTOR_S if abs(later) > 0.5 * period else 0.0):
                turn, turns = time.monotonic() + EXECUTOR_S, turns + 1
                node.seldom.open = turns % SELDOM == 0
                executor.spin_once(timeout_sec=0.0)
        except ExternalShutdownException:
            break
        except Exception as error:
            expected = isinstance(error, RobolearnError)
            log.error("%s: a callback failed: %s", node.get_name(), error, exc_info=not expected)
            if not node.on_fault(error):
                code, failure = 1, failure or (error if expected else None)
                stop.requested = True
    if failure := failure or node.error:
        raise failure
    return code


def wait_acknowledged(node: Node) -> None:
    """Wait until all subscriptions have acknowledged the last messages, the set-point at rest above all. The news that
    a publisher is gone goes another way than its messages, and those that it overtakes have no publisher and are
    dropped: of nodes that ended right after a message, three in ten lost it."""
    end = time.monotonic() + ACKNOWLEDGE_S
    for publisher in node.publishers if node.context.ok() else ():
        try:
            publisher.wait_for_all_acked(Duration(seconds=max(0.0, end - time.monotonic())))
        except RuntimeError as error:  # of rcl: not every middleware reports it
            log.warning("whether the last messages of %s arrive is not reported: %s", node.get_name(), error)
            time.sleep(max(0.0, end - time.monotonic()))
            return


class Stop:
    """A request to end. Not an `Event`: one signal that interrupts another's `set` would wait for its lock for ever."""

    def __init__(self) -> None:
        self.requested = False


@contextmanager
def _signals(stop: Stop) -> Iterator[None]:
    """SIGINT and SIGTERM request a stop, however often they come: launch systems send both, twice. After the first
    signal the process ends: one more while the interpreter goes down must not kill it, with another exit code."""
    signalled = False

    def request(*_: object) -> None:
        nonlocal signalled
        signalled = stop.requested = True

    old = {s: signal.signal(s, request) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, handler in old.items():
            signal.signal(s, signal.SIG_IGN if signalled else handler)


def _end_with_parent(stop: Stop) -> None:
    """A node that `robolearn deploy` started gets SIGTERM when that has ended, in whatever way (Linux)."""
    parent = os.environ.get(PARENT)
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if str(os.getppid()) != parent:  # it was gone before
        stop.requested = True


def ros_arguments(argv: Sequence[str], names: Sequence[str]) -> list[str]:
    """Flags as ROS parameters: `--contract sim --seed=3` → `--ros-args -p contract:=sim -p seed:=3`. What is already
    behind `--ros-args` stays as it is. Raises `BadInput`: a flag that is none of `names`, or one without a value."""
    argv = list(argv)
    split = argv.index("--ros-args") if "--ros-args" in argv else len(argv)
    flags, rest = argv[:split], argv[split:]
    out: list[str] = []
    while flags:
        flag = flags.pop(0)
        name, has_value, value = flag.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not flag.startswith("--") or name not in names:
            raise BadInput("flag", got=flag, available=[f"--{n.replace('_', '-')}" for n in names])
        if not has_value:
            if not flags:
                raise BadInput(f"flag {flag}", got="no value", expected="a value")
            value = flags.pop(0)
        out += ["-p", f"{name}:={value}"]
    return ([sys.argv[0], "--ros-args", *out, "--"] if out else [sys.argv[0]]) + rest


def _begin(args: list[str] | None, **more: Any) -> None:
    """`rclpy.init`; its errors, e.g. of malformed ``--ros-args``, are bad input."""
    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO, **more)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}".splitlines()[0]
        if "log directory" in wrong or "opening file" in wrong:  # after a sudo the folder belongs to root
            hint = "export ROS_LOG_DIR=FOLDER, or: sudo chown -R $USER ~/.ros"
            raise BadInput("ROS's logs", got=wrong, expected="a folder that this user may write", hint=hint) from error
        raise BadInput("ROS's start", got=wrong, expected="arguments that rclpy takes") from error


class Background:
    """An rclpy context of its own with an executor that spins in a thread. As a context manager it ends in the order
    that DDS needs: executor, thread, nodes, context."""

    def __init__(self, domain_id: int | None = None, args: Sequence[str] = ()) -> None:
        self.context = Context()
        _begin(list(args), context=self.context, domain_id=domain_id)
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
