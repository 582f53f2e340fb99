"""Quality of service per kind of topic: a newest-only stream never queues what is already out of date.

Deadlines and liveliness leases are what the *publisher* offers and the *subscriber* asks for; the middleware then
reports within the lease that a process is gone, even one killed with SIGKILL.
"""

from __future__ import annotations

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, HistoryPolicy, LivelinessPolicy, QoSProfile, ReliabilityPolicy

LEASE_S = 0.25  # a second line behind heartbeats: the middleware renews it at two thirds, late on a busy machine
COMMAND_LEASE_S = 0.2


def sensor(depth: int = 1) -> QoSProfile:
    """Best effort, the newest `depth` messages: joint states and images."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.VOLATILE,
    )  # fmt: skip


def stream(*, deadline_s: float | None = None, lease_s: float | None = LEASE_S, depth: int = 1) -> QoSProfile:
    """Reliable, the newest message only by default, watched: action chunks and targets."""
    profile = QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.VOLATILE,
        liveliness=LivelinessPolicy.AUTOMATIC,
    )
    if lease_s is not None:
        profile.liveliness_lease_duration = Duration(seconds=lease_s)
    if deadline_s is not None:
        profile.deadline = Duration(seconds=deadline_s)
    return profile


CHUNK = stream()
ALIVE = stream()
TARGET = stream(deadline_s=0.1)
DEADMAN = stream(deadline_s=0.1)
DEADMAN_HEARD = stream(deadline_s=0.1, depth=10)
"""No heartbeat may be overwritten by another node's before it is read."""
COMMAND = stream(lease_s=COMMAND_LEASE_S, depth=100)
"""Offered to controllers, which ask for less and so match. A controller that keeps the newest gets the newest; one that
was held up and reads them all finds none missing: a set-point left out is a step."""
ACCEPTED = stream(lease_s=None, depth=50)
"""A recording must not miss one while it is held up."""
SET_POINT = stream(lease_s=None, depth=500)
"""A second of them: a motion is not identified from what was missed."""
CONTROLLER = stream(lease_s=None)
"""As controllers ask for."""


def latched(depth: int = 1) -> QoSProfile:
    """Reliable and kept for later subscribers: states and results."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL,
    )  # fmt: skip
