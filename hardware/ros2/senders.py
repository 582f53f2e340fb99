"""Callers of a service, the time at which a message was sent, and how many publishers are alive; rclpy hands the first
two to no callback, and the last not always.

The middleware reports them. Service introspection publishes an event for each request that is taken, with the
identifier of the client, before the callback runs; a subscription in the same node reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from rclpy.qos import QoSProfile
from rclpy.service_introspection import ServiceIntrospectionState
from rclpy.utilities import get_rmw_implementation_identifier

from hardware.ros2.runtime import Node

PARTICIPANT = 12  # leading bytes of an identifier that all endpoints of one program share
PATIENCE_S = 0.05  # the event is there before the callback runs; should it not be, the arm is at rest and can wait
EVENTS = QoSProfile(depth=20)


class Callers:
    """The callers of one `service` of `node`."""

    def __init__(self, node: Node, service: Any) -> None:
        service.configure_introspection(node.get_clock(), EVENTS, ServiceIntrospectionState.METADATA)
        self._newest: bytes | None = None
        self._taken = self._asked = 0
        self._take: Callable[[], None] = node.poll(
            service.srv_type.Event, f"{service.service_name}/_service_event", self._on_event, EVENTS
        )

    def caller(self) -> bytes | None:
        """The client of the request that is being answered: called once in each callback. None: not known."""
        self._asked += 1
        end = time.monotonic() + PATIENCE_S
        while True:
            self._take()
            if self._taken >= self._asked:
                break
            if time.monotonic() > end:
                self._asked = self._taken
                return None
            time.sleep(0.001)
        # More events than requests: one came after its request was given up. Whose this one is, is not certain.
        certain, self._asked = self._taken == self._asked, self._taken
        return self._newest if certain else None

    def _on_event(self, event: Any, info: Any) -> None:
        if event.info.event_type == event.info.REQUEST_RECEIVED:
            self._newest, self._taken = bytes(event.info.client_gid), self._taken + 1


class Alive:
    """Counts the publishers of a topic that are alive, by their leases.

    Of one publisher in a hundred that a busy subscriber finds no lease is ever reported, although its messages arrive
    (Fast DDS 3.2 by rclpy 9.1): one that is matched counts until its first lease is. That such a one was killed may be
    noticed by its silence alone.
    """

    def __init__(self, changed: Callable[[int], object]) -> None:
        self._changed = changed
        self._alive = self._lost = self._unreported = 0

    @property
    def events(self) -> dict[str, Any]:
        """The event callbacks of its subscription; they call `changed` with the number."""
        return {"liveliness": self._on_liveliness, "matched": self._on_matched}

    def _on_liveliness(self, event: Any) -> None:
        more = event.alive_count + event.not_alive_count - self._alive - self._lost
        self._unreported = max(0, self._unreported - max(0, more))
        self._alive, self._lost = event.alive_count, event.not_alive_count
        self._changed(self._alive + self._unreported)

    def _on_matched(self, event: Any) -> None:
        # One that was killed stays matched for 20 s; its lease is lost.
        self._unreported = max(0, event.current_count - self._alive - self._lost)
        self._changed(self._alive + self._unreported)


def comparable() -> bool:
    """True where identifiers of messages, endpoints and callers can be compared: in Fast DDS they are of one kind."""
    return get_rmw_implementation_identifier().startswith("rmw_fastrtps")


def same_program(first: object, second: object) -> bool:
    """True where two identifiers belong to endpoints of one program."""
    both = isinstance(first, bytes) and isinstance(second, bytes)
    return both and first[:PARTICIPANT] == second[:PARTICIPANT]  # type: ignore[index]


def endpoint_name(info: Any) -> str:
    """The full name of the node of an endpoint."""
    if "UNKNOWN" in info.node_name:
        return "a node whose name is not discovered yet"
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


def publisher_name(node: Any, topics: Iterable[str], gid: Hashable) -> str:
    """The node that publishes one of `topics` under this identifier, as `node` sees it."""
    for topic in topics:
        for info in node.get_publishers_info_by_topic(topic):
            if bytes(info.endpoint_gid) == gid:
                return endpoint_name(info)
    return "one that has gone"


LONGEST_S = 5.0  # messages do not wait for longer; the time of day jumped
EXACT_NS = 200_000
TRIES = 20


def sent_at(info: Any) -> float:
    """Steady time [s] at which the middleware sent a message with this `MessageInfo`. The stamp is the sender's time of
    day, on the same machine or one whose clock is disciplined to it."""
    wall, steady = _now()
    since = 1e-9 * (wall - int(info["source_timestamp"]))
    return 1e-9 * steady - min(max(since, 0.0), LONGEST_S)


def _now() -> tuple[int, int]:
    """Time of day and steady time of one moment [ns]. A process that is held up between the two readings would take
    that for the sender's delay."""
    best: tuple[int, int, int] | None = None
    for _ in range(TRIES):
        before = time.monotonic_ns()
        wall = time.time_ns()
        took = time.monotonic_ns() - before
        if best is None or took < best[0]:
            best = took, wall, before + took // 2
        if took < EXACT_NS:
            break
    assert best is not None
    return best[1:]
