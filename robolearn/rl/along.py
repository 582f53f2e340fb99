"""Training episodes that begin along demonstrations: their share, and where along them.

    c(p) = min(p / P, 1)                 p: share of the budget that is spent;  P: --along-until
    share(p) = s (1 − c)                 of the episodes that begin;  s: --along-share
    position(p) in [0.9 (1 − c), 0.9)    share of a demonstration's length, uniform

At first such episodes begin near the end of a demonstration, later anywhere along it, and after P all begin as the task
has them. None of them counts as a success or failure of the task.
"""

from __future__ import annotations

from dataclasses import dataclass
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

    along_share: float = 0.5
    """Share of the training episodes that begin along --begin-along at first; it falls to 0."""
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


class Starts:
    """The starts of training episodes in `env`; without `config` all are the task's own."""

    def __init__(self, env: Any, config: AlongConfig | None) -> None:
        self._env, self._config = env, config

    def schedule(self, progress: float) -> None:
        """Set share and position after the share `progress` of the budget."""
        if self._config is not None:
            self._env.begin_along(*self._config.at(progress))

    def own(self, turn: Turn) -> NDArray[np.bool_]:
        """(N,) the episodes that end with `turn` had begun at a start of the task's own."""
        return np.ones(len(turn.worlds), np.bool_) if self._config is None else ~self._env.ended_along

    def split(self, ended: Sequence[T], turn: Turn) -> tuple[list[T], list[T]]:
        """The episodes that ended with `turn`, world by world: those of the task's own starts, and the others."""
        if self._config is None:
            return list(ended), []
        own = self.own(turn)[turn.worlds & turn.ended]
        pairs = list(zip(ended, own, strict=True))
        return [one for one, is_own in pairs if is_own], [one for one, is_own in pairs if not is_own]
