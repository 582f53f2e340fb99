"""A set-point of the safety filter on its way to controllers that set-points are sent ahead to, see
`hardware.execution.horizon`: checked right before it is sent, and not sent where that is too late."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from hardware.execution.horizon import Horizon, Point

if TYPE_CHECKING:
    from hardware.safety.filter import SafetyFilter
    from hardware.safety.states import ArmCommand

log = logging.getLogger(__name__)


def send_ahead(
    horizon: Horizon,
    safety: SafetyFilter,
    command: ArmCommand,
    clock: Callable[[], float],
    make: Callable[[list[Point]], Callable[[], object]],
) -> None:
    """Send `command`, the last of `safety`, to controllers whose time is `clock` [s]. `make` makes messages of the
    points and returns what publishes them, which takes no time."""
    checked = safety.checked(command)
    if checked is None or _late(horizon, safety, clock):
        return
    due = horizon.points(checked.positions, checked.velocities, safety.knots_to_rest(), clock())
    if not due:
        return
    publish = make(due)
    if _late(horizon, safety, clock):
        return
    publish()
    horizon.sent()


def _late(horizon: Horizon, safety: SafetyFilter, clock: Callable[[], float]) -> bool:
    """True where it is too late to send more: the filter is told where the arm comes to rest."""
    now = clock()
    rest = horizon.late(now)
    if rest is not None:
        log.warning("commands come late: the controller brakes by itself, and the arm goes on from rest")
        safety.left_to_rest(rest.positions, max(rest.at - now, 0.0))
    return rest is not None
