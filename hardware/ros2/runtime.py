"""How our nodes live: start, spin, end. Lifecycle nodes that start by themselves, signals that end them cleanly.

A node with work to finish when it is told to end (the safety node brakes) overrides `begin_stop` and `stopped`. Nodes
log through `logging`: rclpy's loggers look their caller up, which can take 0.1 s the first time.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import rclpy
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.context import Context
from rclpy.duration import Duration
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions
from rclpy.subscription import MessageInfo, Subscription
from rclpy.timer import Timer

from hardware.ros2.realtime import realtime
from hardware.ros2.topics import NAMESPACE
from robolearn.core import BadInput, RobolearnError
from robolearn.core.priority import make_ordinary, threads

log = logging.getLogger(__name__)

Value = bool | int | float | str
STEADY = ClockType.STEADY_TIME
PARENT = "ROBOLEARN_PARENT"  # in the environment: process id of the program that started this node and ends with it
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
EXECUTOR_S = 0.01  # the executor's turn, in nodes with a heart
HEARD_S = 0.5  # a node that has done its work waits at most so long until its last words are heard


class Node(LifecycleNode):
    """A lifecycle node whose parameters are fixed while it is configured.

    All have `autostart` (configure and activate by themselves; a lifecycle manager would set it false) and
    `realtime_priority` (1 to 99: SCHED_FIFO; 0: none).

    Args:
      name: node name; its namespace is `/robolearn` unless remapped.
      defaults: parameter name → default value, which also fixes its type.
      context: the rclpy context, for several in one process.
      overrides: parameter values from the program, below those of the command line.

    Attributes:
      active: whether the node may work: configured and activated.
      failure: what went wrong in the last transition.
      done: the node has nothing left to do: set by itself, and `spin` ends it as if it had been told to.
      error: why it has, where something went wrong.
    """

    def __init__(
        self,
        name: str,
        defaults: Mapping[str, Value],
        *,
        context: Context | None = None,
        namespace: str = NAMESPACE,
        overrides: Mapping[str, Value] | None = None,
    ) -> None:
        super().__init__(name, namespace=namespace, context=context)
        self._steady = Clock(clock_type=STEADY)
        self._defaults = {"autostart": True, "realtime_priority": 0, **defaults}
        self._fixed = False
        self.active = self.done = False
        self.strangers: frozenset[int] = frozenset()  # threads that were there before the node
        self.hosted = False  # by `spin`
        self.heart: tuple[float, Callable[[], None]] | None = None
        self.failure: Exception | None = None
        self.error: RobolearnError | None = None
        given = dict(overrides or {})
        for key in given:
            if key not in self._defaults:
                raise BadInput(f"parameter of {name}", got=key, available=self._defaults)
        for key, value in self._defaults.items():
            # Dynamic, because `-p policy:=2024` arrives as an integer; `value` converts.
            self.declare_parameter(key, given.get(key, value), ParameterDescriptor(dynamic_typing=True))
        self.add_on_set_parameters_callback(self._on_set_parameters)

    # --- for subclasses ------------------------------------------------------------------------------------

    def configure(self) -> None:
        """Create publishers, subscriptions and timers. Raise to refuse."""

    def activate(self) -> None:
        """Begin to work."""

    def deactivate(self) -> None:
        """Pause."""

    def cleanup(self) -> None:
        """Undo `configure`."""

    def begin_stop(self, reason: str) -> None:
        """The process is told to end: begin to finish what must be finished."""

    def stopped(self) -> bool:
        """Whether that is finished; waited for at most `stop_limit_s`."""
        return True

    stop_limit_s = 1.0

    def on_fault(self, error: Exception) -> bool:
        """A callback raised `error`. Returns whether the node goes on; by default it ends."""
        return False

    def value(self, name: str) -> Any:
        """Parameter `name`, in the type of its default.

        Raises:
          BadInput: it cannot be converted.
        """
        default, got = self._defaults[name], self.get_parameter(name).value
        kind = type(default)
        if kind is bool and isinstance(got, str):
            got = {"true": True, "false": False}.get(got.lower(), got)
        if kind is bool and not isinstance(got, bool):
            raise BadInput(f"parameter {name}", got=repr(got), expected="true or false")
        try:
            return kind(got)
        except (TypeError, ValueError):
            raise BadInput(f"parameter {name}", got=repr(got), expected=f"a {kind.__name__}") from None

    def every(self, period_s: float, callback: Callable[[], None]) -> Timer:
        """A timer on the steady clock: neither a frozen `/clock` nor a jump of the time of day stops it."""
        return self.create_timer(period_s, callback, clock=self._steady)

    def poll(
        self,
        kind: Any,
        topic: str,
        callback: Callable[[Any, MessageInfo], None],
        profile: QoSProfile,
        events: SubscriptionEventCallbacks | None = None,
    ) -> Callable[[], None]:
        """A subscription whose messages wait until they are asked for; the function that hands them to `callback`."""
        subscription = self.create_subscription(
            kind, topic, callback, profile, event_callbacks=events, callback_group=_Unasked()
        )

        def take() -> None:
            # No more than the queue holds: a flood of messages must not hold up the tick.
            for _ in range(profile.depth):
                with subscription.handle:
                    taken = subscription.handle.take_message(subscription.msg_type, subscription.raw)
                if taken is None:
                    return
                callback(*taken)

        return take

    def beat(self, period_s: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once a period: what the node is for. By `spin` itself, elsewhere by a timer. Returns what ends it.

        rclpy's executors build what they wait for anew each time, 0.7 ms for the services, timers and events of one of
        our nodes. Woken by 200 ticks and 400 messages a second that is half a core. So streams are polled when the
        node's heart beats, and the executor has its turn a hundred times a second.
        """
        if self.hosted:
            self.heart = (period_s, callback)
            return lambda: setattr(self, "heart", None)
        timer = self.every(period_s, callback)

        def still() -> None:
            self.destroy_timer(timer)

        return still

    # --- lifecycle -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Configure and activate, if `autostart`.

        Raises:
          RobolearnError: one of them failed; the cause.
        """
        if self.hosted:
            realtime(self.value("realtime_priority"), self.strangers)
        if not self.value("autostart"):
            return
        for trigger in (self.trigger_configure, self.trigger_activate):
            if trigger() != TransitionCallbackReturn.SUCCESS:
                raise self.failure or RobolearnError(f"{self.get_name()} did not start")

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._fixed = True
        done = self._attempt(self.configure)
        if done != TransitionCallbackReturn.SUCCESS:
            self._fixed = False
            return done
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        done = super().on_activate(state)
        if done == TransitionCallbackReturn.SUCCESS:
            done = self._attempt(self.activate)
        self.active = done == TransitionCallbackReturn.SUCCESS
        return done

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.active = False
        done = self._attempt(self.deactivate)
        return super().on_deactivate(state) if done == TransitionCallbackReturn.SUCCESS else done

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        done = self._attempt(self.cleanup)
        self._fixed = done != TransitionCallbackReturn.SUCCESS
        return super().on_cleanup(state) if done == TransitionCallbackReturn.SUCCESS else done

    def _attempt(self, work: Callable[[], None]) -> TransitionCallbackReturn:
        # rclpy swallows what a transition raises.
        try:
            work()
        except Exception as error:
            self.failure = error
            log.error(
                "%s: %s: %s", self.get_name(), work.__name__, error, exc_info=not isinstance(error, RobolearnError)
            )
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    def _on_set_parameters(self, parameters: Sequence[Any]) -> SetParametersResult:
        for parameter in parameters:
            if self._fixed and parameter.name in self._defaults:
                reason = (
                    f"{parameter.name} is fixed while {self.get_name()} is configured: deactivate and clean up first"
                )
                return SetParametersResult(successful=False, reason=reason)
        return SetParametersResult(successful=True)


class _Unasked(ReentrantCallbackGroup):
    """Its subscriptions are left alone by executors; their events are not."""

    def can_execute(self, entity: Any) -> bool:
        return not isinstance(entity, Subscription)


# --- one node per process ------------------------------------------------------------------------------------


def spin(factory: Callable[[], Node], args: Sequence[str] | None = None) -> int:
    """Run one node as `host` does, and say what was wrong; the exit code of the process.

    Returns:
      0 ended as told, 1 failed, 2 bad input.
    """
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stderr)
    try:
        return host(factory, args)
    except RobolearnError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def host(factory: Callable[[], Node], args: Sequence[str] | None = None) -> int:
    """Run one node until SIGINT, SIGTERM, the end of its context or of its work.

    Args:
      factory: makes the node, after `rclpy.init`.
      args: command line, `--ros-args …` included; `sys.argv` by default.

    Returns:
      0 ended as told, 1 a callback failed.

    Raises:
      RobolearnError: the node did not start, or ended because something went wrong.
    """
    stop = _Stop()
    strangers = frozenset(threads())
    with _signals(stop):
        _end_with_parent(stop)
        try:
            rclpy.init(args=None if args is None else list(args), signal_handler_options=SignalHandlerOptions.NO)
        except Exception as error:  # e.g. malformed --ros-args
            raise BadInput(str(error)) from error
        node = None
        executor = SingleThreadedExecutor()
        try:
            node = factory()
            node.hosted, node.strangers = True, strangers - {threading.get_native_id()}
            executor.add_node(node)
            node.start()
            gc.collect()
            gc.freeze()  # what lives as long as the node need not be looked through in mid-motion
            code = _spin(node, executor, stop)
        finally:
            gc.unfreeze()  # or the interpreter cannot take down what is frozen, and native modules complain of leaks
            executor.shutdown()
            if node is not None:
                _be_heard(node)
                node.destroy_node()
            rclpy.try_shutdown()
            make_ordinary()  # what comes after a node drives no arm
    return code


def _spin(node: Node, executor: SingleThreadedExecutor, stop: _Stop) -> int:
    limit = float("inf")
    code = 0
    failure: RobolearnError | None = None
    due = turn = time.monotonic()
    while (now := time.monotonic()) < limit:
        if (stop.wanted or node.done) and limit == float("inf"):
            node.begin_stop("told to end" if stop.wanted else "done")
            limit = now + node.stop_limit_s
        if limit < float("inf") and node.stopped():
            break
        try:
            if node.heart is None:
                executor.spin_once(timeout_sec=0.05)
                continue
            period, callback = node.heart
            time.sleep(max(0.0, due - now))
            # In step with the clock again after a beat that was late, but never two at once.
            due = max(due + period, time.monotonic() + 0.6 * period)
            callback()
            if time.monotonic() >= turn:
                turn = time.monotonic() + EXECUTOR_S
                executor.spin_once(timeout_sec=0.0)
        except ExternalShutdownException:
            break
        except Exception as error:
            expected = isinstance(error, RobolearnError)
            log.error("%s: a callback failed: %s", node.get_name(), error, exc_info=not expected)
            if not node.on_fault(error):
                code, failure = 1, failure or (error if expected else None)
                stop.wanted = True
    if failure := failure or node.error:
        raise failure
    return code


def _be_heard(node: Node) -> None:
    """Wait until all who listen have what the node said, the set-point at rest above all.

    The news that a publisher is gone goes another way than its messages, and those that it overtakes come from nobody
    and are dropped: of nodes that ended right after a message, three in ten lost it.
    """
    end = time.monotonic() + HEARD_S
    for publisher in node.publishers if node.context.ok() else ():
        try:
            publisher.wait_for_all_acked(Duration(seconds=max(0.0, end - time.monotonic())))
        except RuntimeError as error:  # of rcl: not every middleware can tell
            log.warning("cannot know whether the last words of %s are heard: %s", node.get_name(), error)
            time.sleep(max(0.0, end - time.monotonic()))
            return


class _Stop:
    """Whether to end. Not an `Event`: one signal that interrupts another's `set` would wait for its lock for ever."""

    def __init__(self) -> None:
        self.wanted = False


@contextmanager
def _signals(stop: _Stop) -> Iterator[None]:
    """SIGINT and SIGTERM want a stop, however often they come: launch systems send both, twice.

    Once told to end, the process ends: one more while the interpreter goes down must not kill it, with another exit
    code.
    """
    told = False

    def tell(*_: object) -> None:
        nonlocal told
        told = stop.wanted = True

    old = {s: signal.signal(s, tell) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, handler in old.items():
            signal.signal(s, signal.SIG_IGN if told else handler)


def _end_with_parent(stop: _Stop) -> None:
    """A node that `robolearn deploy` started is told to end when that is gone, however it went (Linux)."""
    parent = os.environ.get(PARENT)
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if str(os.getppid()) != parent:  # it was gone before
        stop.wanted = True


def ros_arguments(argv: Sequence[str], names: Sequence[str]) -> list[str]:
    """Flags as ROS parameters: `--contract sim --seed=3` → `--ros-args -p contract:=sim -p seed:=3`.

    What is already behind `--ros-args` stays as it is.

    Raises:
      BadInput: a flag that is none of `names`, or one without a value.
    """
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
