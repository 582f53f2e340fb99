"""The account of a conversion: what was read, left out and changed, a line each, on the screen and in the JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Account:
    """Three lists that grow while episodes are read: what became what, what did not come, what came otherwise.

    Beside them `age_s`: feature → ``{"p50", "p99", "worst"}``, age of its messages in the frames of a bag [s].
    """

    read: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    age_s: dict[str, dict[str, float]] = field(default_factory=dict)

    def became(self, feature: str, names: Iterable[str], detail: object = "") -> None:
        """Note that `names` of the file are `feature` here."""
        there = " + ".join(names)
        self.read.append(f"{there} → {feature}" if there != feature else feature)
        if detail:
            self.read[-1] += f" ({detail})"
