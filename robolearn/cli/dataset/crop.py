"""``robolearn dataset edit crop``: cut steps at the start or the end of episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robolearn.cli.dataset.common import Edit, episode_list

if TYPE_CHECKING:
    from robolearn.data.convert.source import EpisodeSource
    from robolearn.data.reading.reader import Dataset


@dataclass(frozen=True, kw_only=True)
class Crop(Edit):
    """Write a new set whose episodes begin later or end sooner.

    Example: robolearn dataset edit crop data/lift --start 10 --episodes 4-6 --out data/lift-cropped
    """

    start: int = 0
    """Steps to cut at the start."""
    end: int = 0
    """Steps to cut at the end; the outcome moves to the new last step."""
    episodes: str = ""
    """Which episodes, such as 3,7,10-19; all of them if not given."""

    def source(self, dataset: Dataset) -> EpisodeSource:
        from robolearn.data.convert import edit

        chosen = episode_list(self.episodes, dataset.episodes) if self.episodes else None
        return edit.crop(dataset, self.start, self.end, chosen)
