"""Training episodes that begin along demonstrations: their share, and where along them.

    c(p) = min(p / P, 1)                 p: share of the budget that is spent;  P: --along-until
    share(p) = s (1 − c)                 of the episodes that begin;  s: --along-share
    position(p) in [0.9 (1 − c), 0.9)    share of a demonstration's length, uniform

At first such episodes begin near the end of a demonstration, later anywhere along it, and after P all begin as the task
has them. None of them counts as a success or failure of the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robolearn.rollout import Turn

T = TypeVar("T")

LATEST = 0.9  # share of a demonstration's length: the rest of it is over before much is learned


@dataclass(frozen=True)
class AlongConfig:
    """Settings of episodes that begin along demonstrations."""

    begin_along: Path | None = None
    """Demonstrations that `collect` made of one of our tasks: a share of the training episodes begins in states along
    them, from near the end back to the start. These do not count in the success that is shown, and every evaluation
    begins as the task has it."""
    along_share: float = 0.5
    """Share of the training episodes that begin so at first; it falls to 0."""
    along_until: float = 0.6
    """Share of the budget after which all episodes begin as the task has them."""

    def __post_init__(self) -> None:
        for name in ("along_share", "along_until"):
            if not 0.0 < getattr(self, name) <= 1.0:
                flag = f"--{name.replace('_', '-')}"
                raise BadInput(flag, got=getattr(self, name), expected="a share above 0, at most 1")

    def at(self, progress: float) -> tuple[float, float, float]:
        """(share, earliest and latest position) after the share `progress` of the budget."""
        left = 1.0 - min(progress / self.along_until, 1.0)
        return self.along_share * left, LATEST * left, LATEST

    def build(self, env: Any) -> AlongStarts:
        """The starts of `env`."""
        return AlongStarts(env, self)


class Starts:
    """Training episodes as the task has them, and what is counted of others.

    Attributes:
      altered: of the episodes that are not as the task has them, a word for the names of metrics; empty where all are.
    """

    altered = ""

    def schedule(self, progress: float) -> None:
        """Set what episodes begin with after the share `progress` of the budget."""

    def own(self, turn: Turn) -> NDArray[np.bool_]:
        """(N,) the episodes that end with `turn` were as the task has them; to be called once for each turn."""
        return np.ones(len(turn.worlds), np.bool_)

    def split(self, ended: Sequence[T], turn: Turn) -> tuple[list[T], list[T]]:
        """The episodes that ended with `turn`, world by world: those as the task has them, and the others."""
        if not self.altered:
            return list(ended), []
        own = self.own(turn)[turn.worlds & turn.ended]
        pairs = list(zip(ended, own, strict=True))
        return [one for one, is_own in pairs if is_own], [one for one, is_own in pairs if not is_own]

    def metrics(self, others: int) -> dict[str, float]:
        """Metrics of an iteration in which so many other episodes ended."""
        return {f"{self.altered}_episodes": float(others)} if self.altered else {}

    def state(self) -> dict[str, NDArray[np.float64]]:
        """All that the next `schedule` depends on."""
        return {}

    def load_state(self, state: dict[str, NDArray[np.float64]]) -> None:
        """The inverse of `state`."""


class AlongStarts(Starts):
    """Episodes of `env` of which a share begins along demonstrations."""

    altered = "along"

    def __init__(self, env: Any, config: AlongConfig) -> None:
        self._env, self._config = env, config

    def schedule(self, progress: float) -> None:
        self._env.begin_along(*self._config.at(progress))

    def own(self, turn: Turn) -> NDArray[np.bool_]:
        return ~self._env.ended_along
