"""``robolearn dataset edit subsample``: every n-th frame, at a lower rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from robolearn.cli.dataset.common import Edit

if TYPE_CHECKING:
    from robolearn.data.convert.source import EpisodeSource
    from robolearn.data.reading.reader import Dataset


@dataclass(frozen=True, kw_only=True)
class Subsample(Edit):
    """Write a new set with every n-th frame; its rate is lower by as much.

    Example: robolearn dataset edit subsample data/lift --every 2 --out data/lift-10hz
    """

    every: int
    """Which frames stay: 2 for every second."""
    action: Literal["auto", "first", "last", "mean", "sum"] = "auto"
    """The action that stands for those of the frames between: auto takes the mean of small motions (tcp_delta) and
    the last target of joint positions, else the first."""

    def source(self, dataset: Dataset) -> EpisodeSource:
        from robolearn.data.convert import edit

        return edit.subsample(dataset, self.every, self.action)
