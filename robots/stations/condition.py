"""What a robot's controller has to report before its arm may move: a program that plays, no protective stop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Condition:
    """One number that a driver publishes, and which of its values permit motion.

    Attributes:
      name: in the contract.
      topic: its absolute name.
      type: its message type in full; any that is installed.
      field: of the message.
      latched: whether it is published on change only, and kept for those who come later; else it has to keep coming.
      max_age_s: how old it may be [s], where it is not latched.
      allowed: the values that permit motion; empty: all from `least` on.
      least: the least that does.
      words: value → what it means, for reasons.
      mend: what somebody has to do.
    """

    name: str
    topic: str
    type: str
    field: str = "data"
    latched: bool = False
    max_age_s: float = 0.5
    allowed: tuple[int, ...] = ()
    least: float = -math.inf
    words: Mapping[int, str] = dataclasses.field(default_factory=dict)
    mend: str = ""

    def permits(self, value: float) -> bool:
        """Whether the arm may move at that value; never at one that is not finite."""
        return math.isfinite(value) and (value in self.allowed if self.allowed else value >= self.least)

    def report(self, value: float) -> str:
        """The value in words, with what to do about it."""
        word = self.words.get(int(value)) if math.isfinite(value) and value == int(value) else None
        expected = " or ".join(self.words.get(v, str(v)) for v in self.allowed) or f"at least {self.least:g}"
        return self._mended(f"the {self.name} is {word or f'{value:g}'}, expected {expected}")

    def silent(self, seconds: float) -> str:
        """What to report when nothing came, ever (infinite) or for `seconds`."""
        what = "nothing arrived yet" if math.isinf(seconds) else f"silent for {seconds:.2f} s"
        return self._mended(f"the {self.name} on {self.topic}: {what}")

    def _mended(self, text: str) -> str:
        return f"{text}: {self.mend}" if self.mend else text
