"""``robolearn dataset edit drop``: a new set without some episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robolearn.cli.dataset.common import Edit, episode_list
from robolearn.core import BadInput

if TYPE_CHECKING:
    from robolearn.data.reader import Dataset
    from robolearn.data.source import Source


@dataclass(frozen=True, kw_only=True)
class Drop(Edit):
    """Write a new set without some episodes.

    Example: robolearn dataset edit drop data/lift --episodes 3,7,10-19 --failed --out data/lift-clean
    """

    episodes: str = ""
    """Which episodes go, such as 3,7,10-19."""
    failed: bool = False
    """Every episode that is not a success goes."""
    keep: str = ""
    """In place of the others: which episodes stay; all others go."""

    def source(self, dataset: Dataset) -> Source:
        from robolearn.data import edit

        if bool(self.keep) == bool(self.episodes or self.failed):
            raise BadInput("drop", got="no episodes" if not self.keep else "--keep with other flags",
                           expected="--episodes, --failed or --keep")  # fmt: skip
        if self.keep:
            return edit.keep(dataset, episode_list(self.keep, dataset.episodes, "--keep"))
        gone = set(episode_list(self.episodes, dataset.episodes)) if self.episodes else set()
        if self.failed:
            gone |= {index for index in range(dataset.episodes) if not dataset.success[index]}
        return edit.drop(dataset, sorted(gone))
