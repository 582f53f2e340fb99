"""Callback groups of what an executor waits for seldom, or never: it builds its wait set anew in every turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.event_handler import EventHandler, QoSPublisherEventType, QoSSubscriptionEventType
from rclpy.subscription import Subscription

MISMATCHES = (
    QoSPublisherEventType.RCL_PUBLISHER_OFFERED_INCOMPATIBLE_QOS,
    QoSPublisherEventType.RCL_PUBLISHER_INCOMPATIBLE_TYPE,
    QoSSubscriptionEventType.RCL_SUBSCRIPTION_REQUESTED_INCOMPATIBLE_QOS,
    QoSSubscriptionEventType.RCL_SUBSCRIPTION_INCOMPATIBLE_TYPE,
)


class SeldomGroup(ReentrantCallbackGroup):
    """Entities that an executor waits for in few of its turns. A node of an arm has a dozen services and two dozen
    events that no motion depends on, and each of them costs every turn a little.

    Attributes:
      open: its entities are waited for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open = True

    def take(self, entities: Iterable[Any]) -> None:
        """Put `entities` here in place of where they are."""
        for one in entities:
            one.callback_group = self
            self.add_entity(one)

    def take_mismatches(self, handlers: Iterable[EventHandler]) -> None:
        """The same of those events that report a QoS or a type that does not match."""
        self.take(one for one in handlers if one.event_type in MISMATCHES)

    def can_execute(self, entity: Any) -> bool:
        return self.open


class Unasked(ReentrantCallbackGroup):
    """Its subscriptions are left alone by executors; their events are not."""

    def can_execute(self, entity: Any) -> bool:
        return not isinstance(entity, Subscription)
