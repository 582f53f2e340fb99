"""The conditions of a contract as subscriptions: their types come with the arm's driver and may not be installed."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from hardware.ros2 import messages, qos
from robolearn.core import BadInput
from robots.stations import Condition, Contract

log = logging.getLogger(__name__)


def with_installed_conditions(contract: Contract) -> Contract:
    """The contract; of a simulated arm without the conditions whose message types are not installed here.

    Raises:
      BadInput: a type of a real arm is not installed.
    """
    found = []
    for condition in contract.conditions:
        try:
            messages.installed_type(condition.type)
        except BadInput as error:
            if not contract.simulated:
                raise
            log.warning("condition %s is not rehearsed: %s", condition.name, error)
        else:
            found.append(condition)
    return dataclasses.replace(contract, conditions=tuple(found))


def hear_conditions(
    contract: Contract, hear: Callable[..., Callable[[], None]], heard: Callable[[str, float], None]
) -> list[Callable[[], None]]:
    """Subscribe to all of them by `hear` (type, topic, callback, QoS); `heard` takes their names and values."""

    def subscribe(one: Condition) -> Callable[[], None]:
        def callback(message: Any, info: Any) -> None:
            # A field that is not there is no number, which permits nothing.
            heard(one.name, float(getattr(message, one.field, "nan")))

        profile = qos.latched() if one.latched else qos.sensor()
        return hear(messages.installed_type(one.type), one.topic, callback, profile)

    return [subscribe(condition) for condition in contract.conditions]
