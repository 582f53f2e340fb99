"""Who publishes the arm's joint states: one publisher, or the arm is not where it seems to be.

A second one (a joint_state_publisher that somebody forgot, the driver of another arm with the same joint names) says
something else about the same joints, and whoever spoke last would be believed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from time import monotonic

SILENT_S = 1.0  # a publisher that was silent for so long has ended, e.g. a driver that was started again


class Publishers:
    """The publishers of one topic, by any keys that differ between them.

    Args:
      name: of the topic's content, for reasons.
      clock: steady time [s].
      describe: the name of a publisher, for reasons.
    """

    def __init__(
        self, name: str, clock: Callable[[], float] = monotonic, describe: Callable[[Hashable], str] = str
    ) -> None:
        self._name, self._clock, self._describe = name, clock, describe
        self._heard: dict[Hashable, float] = {}  # about the arm: publisher → when last
        self._others: set[Hashable] = set()  # heard about something else only
        self._bound: Hashable | None = None

    def heard(self, publisher: Hashable, *, arm: bool = True) -> bool:
        """A message came from `publisher`; whether it may say where the arm is: any may, until one is bound.

        Args:
          arm: whether it names the arm's joints.
        """
        if not arm:
            self._others.add(publisher)
            return False
        self._heard[publisher] = self._clock()
        return self._bound is None or publisher == self._bound

    def bind(self) -> None:
        """The arm is armed: from now on the one publisher that is heard is believed, and no other."""
        found = self._speaking()
        self._bound = found[-1] if found else None

    def problem(self) -> str:
        """Why the arm must not be armed, or must be stopped; empty when only one is heard."""
        found = self._speaking()
        if len(found) < 2:
            return ""
        return f"{self._name}: {len(found)} publishers at once, {' and '.join(map(self._describe, found))}"

    def unheard(self, there: Collection[Hashable]) -> str:
        """The same for publishers that are `there`, but of which nothing was heard; one that is alone may be late."""
        silent = [one for one in there if one not in self._heard and one not in self._others]
        if len(there) < 2 or not silent:
            return ""
        names = " and ".join(map(self._describe, silent))
        if None in self._heard:
            return f"{self._name}: published by {names}; this ROS does not report from whom a message is"
        return f"{self._name}: {len(there)} publishers, and nothing was heard of {names}"

    def _speaking(self) -> list[Hashable]:
        """Heard about the arm a moment ago, the newest last."""
        now = self._clock()
        fresh = [one for one, at in self._heard.items() if now - at <= SILENT_S]
        return sorted(fresh, key=lambda one: self._heard[one])
