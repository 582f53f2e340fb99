"""Whose dead-man's switch counts: one, from arming until the arm is at rest.

Everybody may publish heartbeats of a switch that is not held: a terminal beside a running deployment is no fault. Two
that are held are one too many, because letting one go would no longer stop the arm; and when the one that the arm was
armed by is silent, no other keeps the arm moving. Nobody arms, or resets what has latched, while another holds it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable


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
        """Whether the heartbeats of `publisher` count for the armed arm."""
        return publisher in self._bound

    @property
    def held(self) -> bool:
        """Whether any switch is held."""
        return bool(self._holders())

    def problem(self) -> str:
        """Why the arm must not be armed, or must be stopped; empty unless two are held."""
        found = self._holders()
        if len(found) < 2:
            return ""
        return f"{len(found)} dead-man's switches are held at once, by {' and '.join(map(self._describe, found))}"

    def unauthorised(self, caller: Hashable) -> str:
        """Why `caller` may neither arm nor reset: somebody else holds the switch. Empty where nobody does."""
        found = self._holders()
        if not found or any(self._same(caller, one) for one in found):
            return ""
        return f"{self._describe(found[0])} holds the dead-man's switch, and somebody else asks: only who holds it may"

    def _holders(self) -> list[Hashable]:
        now = self._clock()
        return [one for one, at in self._held.items() if now - at <= self._timeout]
