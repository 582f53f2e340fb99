"""Permitted senders to the safety filter: joint states, dead-man's switches, and the robot's own controller.

Joint states come from one publisher. A second one (a joint_state_publisher that was forgotten, the driver of another
arm with the same joint names) reports other positions of the same joints, and the last report would count.

Of dead-man's switches one counts, from arming until the arm is at rest. Heartbeats of switches that are not held are no
fault: a terminal beside a running deployment sends them. Two that are held are one too many, because letting one go
would no longer stop the arm; and when the one that the arm was armed by is silent, no other keeps the arm moving.
Arming and resetting are refused while another holds it.

The controller permits motion by the conditions of the contract. An arm whose program was stopped, or that is in a
protective stop, takes no commands: to send some means that it jumps when the program is started again. So arming is
refused, and an arm that is armed is stopped and latched.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Hashable
from time import monotonic

from robots.stations import Condition

SILENT_S = 1.0  # a publisher that was silent for so long has ended, e.g. a driver that was started again


class Publishers:
    """The publishers of one topic, by any keys that differ between them.

    Args:
      name, describe: of the topic's content, and of a publisher, for reasons.
      clock: steady time [s].
    """

    def __init__(
        self, name: str, clock: Callable[[], float] = monotonic, describe: Callable[[Hashable], str] = str
    ) -> None:
        self._name, self._clock, self._describe = name, clock, describe
        self._heard: dict[Hashable, float] = {}  # about the arm: publisher → when last
        self._others: set[Hashable] = set()  # heard about something else only
        self._bound: Hashable | None = None

    def heard(self, publisher: Hashable, *, arm: bool = True) -> bool:
        """A message came from `publisher`, which names the joints of the arm or not; true if it counts for its
        position: any may, until one is bound."""
        if not arm:
            self._others.add(publisher)
            return False
        self._heard[publisher] = self._clock()
        return self._bound is None or publisher == self._bound

    def bind(self) -> None:
        """The arm is armed: from now on the one publisher that is heard counts, and no other."""
        found = self._speaking()
        self._bound = found[-1] if found else None

    def problem(self) -> str:
        """Reason why the arm must not be armed, or must be stopped; empty when only one is heard."""
        return self.several(self._speaking())

    @property
    def alone(self) -> bool:
        """True while no two are heard."""
        return len(self._speaking()) < 2

    def against(self, publisher: Hashable) -> str:
        """The same for the one that the arm was armed by, however long it was silent, and `publisher`."""
        return self.several([self._bound, publisher])

    def several(self, found: Collection[Hashable]) -> str:
        """The same for publishers that are `found`, heard or not."""
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
            return f"{self._name}: published by {names}; this ROS does not report the sender of a message"
        return f"{self._name}: {len(there)} publishers, and nothing was heard of {names}"

    def _speaking(self) -> list[Hashable]:
        """Heard about the arm a moment ago, the newest last."""
        now = self._clock()
        fresh = [one for one, at in self._heard.items() if now - at <= SILENT_S]
        return sorted(fresh, key=lambda one: self._heard[one])


class Operators:
    """The publishers of the dead-man's switch, by any keys that differ between them.

    Args:
      timeout: age at which a heartbeat is stale [s].
      clock: steady time [s].
      describe: the name of a publisher, for reasons.
      same: whether a caller and a publisher are of one program.
    """

    def __init__(
        self,
        timeout: float,
        clock: Callable[[], float],
        describe: Callable[[Hashable], str] = str,
        same: Callable[[Hashable, Hashable], bool] = operator.eq,
    ) -> None:
        self._timeout, self._clock, self._describe, self._same = timeout, clock, describe, same
        self._held: dict[Hashable, float] = {}  # publisher → when it last said that its switch is held
        self._bound: tuple[Hashable, ...] = ()  # the one that the arm was armed by

    def beat(self, publisher: Hashable, held: bool) -> None:
        """A heartbeat arrived."""
        self._held.pop(publisher, None)
        if held:
            self._held[publisher] = self._clock()

    def bind(self) -> None:
        """The arm is armed by the one switch that is held."""
        self._bound = tuple(self._holders()[:1])

    def counts(self, publisher: Hashable) -> bool:
        """True if the heartbeats of `publisher` count for the armed arm."""
        return publisher in self._bound

    @property
    def held(self) -> bool:
        """True if any switch is held."""
        return bool(self._holders())

    def problem(self) -> str:
        """Reason why the arm must not be armed, or must be stopped; empty unless two are held."""
        found = self._holders()
        if len(found) < 2:
            return ""
        return f"{len(found)} dead-man's switches are held at once, by {' and '.join(map(self._describe, found))}"

    def unauthorised(self, caller: Hashable) -> str:
        """Reason why `caller` may neither arm nor reset: another node holds the switch. Empty where none does."""
        found = self._holders()
        if not found or any(self._same(caller, one) for one in found):
            return ""
        return f"{self._describe(found[0])} holds the dead-man's switch, and another node calls: only the holder may"

    def _holders(self) -> list[Hashable]:
        now = self._clock()
        return [one for one, at in self._held.items() if now - at <= self._timeout]


class Conditions:
    """The newest value of every condition of the contract, by the steady time [s] of `clock`."""

    def __init__(self, conditions: Collection[Condition], clock: Callable[[], float] = monotonic) -> None:
        self._conditions = {one.name: one for one in conditions}
        self._clock = clock
        self._values: dict[str, tuple[float, float]] = {}  # name → value and when it came

    def heard(self, name: str, value: float) -> None:
        """A value of the condition `name` arrived."""
        self._values[name] = (float(value), self._clock())

    def problem(self) -> str:
        """Reason why the arm must not move, and its remedy; empty when it may."""
        now = self._clock()
        silent = ""
        for name, condition in self._conditions.items():
            value, at = self._values.get(name, (math.nan, -math.inf))
            if math.isinf(at) or (not condition.latched and now - at > condition.max_age_s):
                silent = silent or condition.silent(now - at)
            elif not condition.permits(value):
                return condition.report(value)
        return silent
