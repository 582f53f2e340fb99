"""The base class of our nodes: lifecycle nodes of a station that configure and activate themselves.

Parameters are fixed while a node is configured; the contract is one, or comes from the program. A node with work to
finish before it ends (the safety node brakes) overrides `begin_stop` and `stopped`. Nodes log through `logging`:
rclpy's loggers look their caller up, which can take 0.1 s the first time.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, cast

import rclpy.node
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.context import Context
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.subscription import MessageInfo, Subscription
from rclpy.timer import Timer

from hardware.node_parameters import NODES, NodeParameters
from hardware.ros2.callback_groups import SeldomGroup, Unasked
from hardware.ros2.topics import NAMESPACE, namespace_of_nodes, namespace_of_station
from robolearn.core import BadInput, RobolearnError, check_choice
from robolearn.core.machine import own_schedule, set_schedule, threads
from robots.stations import AnyContract, Contract, load_any_contract

log = logging.getLogger(__name__)


_background_threads: set[int] = set()  # ids of those that have stepped back


def realtime(priority: int, other_threads: Collection[int] = ()) -> bool:
    """Request SCHED_FIFO at `priority` (1 to 99; 0: nothing) for all threads; those with ids in `other_threads`, and
    those that have stepped back before, get what `step_back` leaves. True where it was granted."""
    if priority <= 0:
        return False
    found, background = threads(), {*other_threads, *_background_threads}  # those of the middleware too
    try:
        for thread in found:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                set_schedule(thread, (os.SCHED_FIFO, _background(priority) if thread in background else priority))
    except OSError:
        found = []
    if not found:
        log.warning("no real-time priority %d: allow it with `ulimit -r`, or run as a user who may", priority)
    return bool(found)


@contextmanager
def in_realtime(priority: int) -> Iterator[None]:
    """All threads at `priority`, see `realtime`; at the end all of them are as ordinary ones again."""
    realtime(priority)
    try:
        yield
    finally:
        for thread in threads() if priority > 0 else ():
            with suppress(OSError):
                set_schedule(thread, (os.SCHED_OTHER, 0))


def step_back() -> None:
    """This thread, and those that it starts, do not drive the arm: half the real-time priority that it has inherited,
    or that its process is to have. Not none: a thread that holds the interpreter's lock could be kept from running, and
    with it the one that drives the arm, for half a second."""
    _background_threads.add(threading.get_native_id())
    own = own_schedule()
    if own is not None and own[0] == os.SCHED_FIFO:
        with suppress(OSError):
            set_schedule(threading.get_native_id(), (os.SCHED_FIFO, _background(own[1])))


def _background(priority: int) -> int:
    return max(1, priority // 2)


Value = bool | int | float | str
OnMessage = Callable[[Any, MessageInfo], None]
Beat = Callable[[], float | None]
Events = SubscriptionEventCallbacks | None
STEADY = ClockType.STEADY_TIME
LOOK_S = 0.001  # between two polls of what is waited for: 50 µs each
SOON_S = 0.0004  # the same where it is about to come


class Node(LifecycleNode):
    """A lifecycle node whose parameters are fixed while it is configured.

    Args:
      name: node name; its namespace is that of the station's nodes unless remapped.
      defaults: its parameters, by default those of `NODES`; a default also fixes the type.
      contract: the station, in place of the parameter `contract`.
      context: the rclpy context, for several in one process.
      overrides: parameter values from the program, below those of the command line.

    Attributes:
      active: configured and activated.
      failure: of the last transition.
      done: the node has nothing left to do: set by itself, and `spin` ends it as a signal does.
      error: why it has, where something went wrong.
    """

    def __init__(
        self,
        name: str,
        defaults: NodeParameters | None = None,
        *,
        contract: AnyContract | None = None,
        context: Context | None = None,
        overrides: Mapping[str, Value] | None = None,
    ) -> None:
        self.seldom = SeldomGroup()
        self.defaults = defaults or NODES[name]()
        self._defaults, given = vars(self.defaults), dict(overrides or {})
        asked = {**self._defaults, **given}["contract"]
        with nullcontext(contract.namespace) if contract else _asked_for(name, str(asked), context) as station:
            super().__init__(name, namespace=namespace_of_nodes(station), context=context)
        self.seldom.take(self.services)  # parameters and lifecycle: the node's own come later
        self._given = contract
        self._steady = Clock(clock_type=STEADY)
        self._fixed = False
        self.active = self.done = False
        self._inputs: list[tuple[str, Callable[[], None]]] = []  # topic → takes what has come there
        self.other_threads: frozenset[int] = frozenset()  # threads that were there before the node
        self.hosted = False  # by `spin`
        self.heart: tuple[float, Beat] | None = None
        self.failure: Exception | None = None
        self.error: RobolearnError | None = None
        for key in given:
            check_choice(f"parameter of {name}", key, self._defaults)
        for key, value in self._defaults.items():
            # Dynamic, because `-p policy:=2024` arrives as an integer; `value` converts.
            self.declare_parameter(key, given.get(key, value), ParameterDescriptor(dynamic_typing=True))
        self.add_on_set_parameters_callback(self._on_set_parameters)

    def station(self) -> Contract:
        """The contract, of one arm. Raises `BadInput`: there is none of that name, it breaks the schema or is of two
        arms, or this node is in another namespace."""
        found = self.any_station()
        if len(found.arms) > 1:
            what = f"contract {found.name} for the node {self.get_name()}"
            raise BadInput(what, got="a station with two arms", expected="a contract of one arm")
        return found.arms[""]

    def any_station(self) -> AnyContract:
        """The contract, of one arm or of two. Raises `BadInput`: as `station` does."""
        here = namespace_of_station(self.get_namespace())
        return self.placed(self._given or load_any_contract(self.value("contract"), here))

    def placed(self, contract: AnyContract) -> AnyContract:
        """`contract`, if this node is where its nodes are. Raises `BadInput`: it is elsewhere, where it is not
        received."""
        if contract.namespace != namespace_of_station(self.get_namespace()):
            expected = f"{namespace_of_nodes(contract.namespace)}, as contract {contract.name} has it"
            raise BadInput(f"namespace of node {self.get_name()}", got=self.get_namespace(), expected=expected)
        return contract

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
        """The process is to end: begin to finish what must be finished."""

    def stopped(self) -> bool:
        """True where that is finished; waited for at most `stop_limit_s`."""
        return True

    stop_limit_s = 1.0

    def on_fault(self, error: Exception) -> bool:
        """A callback raised `error`. Returns True where the node goes on; by default it ends."""
        return False

    @property
    def parameters(self) -> Any:
        """The values of all parameters, as the dataclass of `defaults`. Raises `BadInput`: one cannot be converted."""
        return dataclasses.replace(self.defaults, **{name: self.value(name) for name in self._defaults})

    def value(self, name: str) -> Any:
        """Parameter `name`, in the type of its default. Raises `BadInput`: it cannot be converted."""
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

    def create_publisher(self, *args: Any, **options: Any) -> Publisher[Any]:
        """See rclpy."""
        made = super().create_publisher(*args, **options)
        self.seldom.take_mismatches(made.event_handlers)
        return made

    def create_subscription(self, *args: Any, **options: Any) -> Subscription[Any]:
        """See rclpy."""
        made = super().create_subscription(*args, **options)
        self.seldom.take_mismatches(made.event_handlers)
        return made

    def every(self, period_s: float, callback: Callable[[], None]) -> Timer:
        """A timer on the steady clock: neither a frozen `/clock` nor a jump of the time of day stops it."""
        return self.create_timer(period_s, callback, clock=self._steady)

    def poll(
        self, kind: Any, topic: str, callback: OnMessage, profile: QoSProfile, events: Events = None
    ) -> Callable[[], None]:
        """A subscription whose messages wait until they are asked for; the function that hands them to `callback`."""
        subscription = self.create_subscription(
            kind, topic, callback, profile, event_callbacks=events, callback_group=Unasked()
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

    def hear(self, kind: Any, topic: str, callback: OnMessage, profile: QoSProfile, events: Events = None) -> None:
        """A subscription whose messages wait for `take_all`; see `poll`."""
        self._inputs.append((topic, self.poll(kind, topic, callback, profile, events)))

    def take_all(self) -> None:
        """Call back with what has come on all topics that are heard."""
        for _, take in self._inputs:
            take()

    def unhear(self, *topics: str) -> None:
        """No more messages of these topics, which are absolute."""
        self._inputs = [(topic, take) for topic, take in self._inputs if topic not in topics]
        for subscription in [one for one in self.subscriptions if one.topic_name in topics]:
            self.destroy_subscription(subscription)

    def beat(self, period_s: float, callback: Beat) -> Callable[[], object]:
        """Call back once a period, by `spin` itself or elsewhere by a timer. Returns a function that ends it. By
        `spin`, the callback may return by how much the next beat is later than a period [s].

        rclpy's executors build what they wait for anew each time, 0.7 ms for the services, timers and events of one of
        our nodes. Woken by 200 ticks and 400 messages a second that is half a core. So streams are polled when the
        node's heart beats, and the executor has its turn a hundred times a second, for what is `seldom` twenty times.
        """
        if self.hosted:
            self.heart = (period_s, callback)
            return lambda: setattr(self, "heart", None)
        return partial(self.destroy_timer, self.every(period_s, cast(Callable[[], None], callback)))

    def quick(self, period_s: float) -> float:
        """The period of a heart that looks often for what is handed on at once: `LOOK_S`; where an executor would beat
        it, `period_s`."""
        return min(LOOK_S, period_s) if self.hosted else period_s

    def sooner(self, expected: bool) -> float:
        """By how much a `quick` beat is later [s] where a message is `expected` now: it is sooner."""
        return SOON_S - LOOK_S if expected else 0.0

    # --- lifecycle -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Configure and activate, if `autostart`. Raises `RobolearnError`: one of them failed; the cause."""
        if not self.value("autostart"):
            return
        for trigger in (self.trigger_configure, self.trigger_activate):
            if trigger() != TransitionCallbackReturn.SUCCESS:
                raise self.failure or RobolearnError(f"{self.get_name()} did not start")

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._fixed, self._inputs = True, []
        self._fixed = self._attempt(self.configure)
        # rclpy's logger looks for its caller in all modules: 70 ms for the first warning, in which an arm stands.
        inspect.getframeinfo(sys._getframe())
        return super().on_configure(state) if self._fixed else TransitionCallbackReturn.FAILURE

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        if self.hosted:
            # Not before: loading a policy or compiling takes a core for seconds, and drives no arm.
            realtime(self.value("realtime_priority"), self.other_threads)
        done = super().on_activate(state)
        self.active = done == TransitionCallbackReturn.SUCCESS and self._attempt(self.activate)
        return done if self.active or done != TransitionCallbackReturn.SUCCESS else TransitionCallbackReturn.FAILURE

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.active = False
        return super().on_deactivate(state) if self._attempt(self.deactivate) else TransitionCallbackReturn.FAILURE

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._fixed = not self._attempt(self.cleanup)
        return TransitionCallbackReturn.FAILURE if self._fixed else super().on_cleanup(state)

    def _attempt(self, work: Callable[[], None]) -> bool:
        # rclpy swallows what a transition raises.
        try:
            work()
        except Exception as error:
            self.failure, expected = error, isinstance(error, RobolearnError)
            log.error("%s: %s: %s", self.get_name(), work.__name__, error, exc_info=not expected)
            return False
        return True

    def _on_set_parameters(self, parameters: Sequence[Any]) -> SetParametersResult:
        fixed = [one.name for one in parameters if self._fixed and one.name in self._defaults]
        why = (
            f"{fixed[0]} is fixed while {self.get_name()} is configured: deactivate and clean up first" if fixed else ""
        )
        return SetParametersResult(successful=not fixed, reason=why)


@contextmanager
def _asked_for(name: str, contract: str, context: Context | None) -> Iterator[str]:
    """The namespace of the contract that the parameter `contract` of the node that is made inside names.

    The parameter is known once the node is there, and then the node cannot be moved any more: so one that does nothing
    is there before. It goes when the other has come: a process whose last node goes takes its DDS participant down,
    which then is made twice, and Fast DDS has crashed in that. A contract that cannot be read is refused later.
    """
    scout = rclpy.node.Node(
        name,
        namespace=NAMESPACE,
        context=context,
        start_parameter_services=False,
        enable_rosout=False,
        automatically_declare_parameters_from_overrides=True,
    )
    try:
        robot = scout.get_parameter("contract").value if scout.has_parameter("contract") else contract
        try:
            namespace = load_any_contract(str(robot)).namespace
        except BadInput:
            namespace = ""
        yield namespace
    finally:
        scout.destroy_node()
