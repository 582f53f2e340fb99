"""``robolearn dataset edit drop``: a new set without some episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robolearn.cli.dataset.common import Edit, episode_list
from robolearn.core import BadInput

if TYPE_CHECKING:
    from robolearn.data.convert.source import EpisodeSource


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

    def opened(self) -> EpisodeSource:
        """The episodes that stay. Files of a damaged set in which none of them lies are not looked at."""
        from robolearn.data.convert.dataset_source import open_numbers
        from robolearn.data.convert.formats import ReadOptions, lerobot_v30
        from robolearn.data.lerobot import layout
        from robolearn.io.missing import no_such_folder

        if bool(self.keep) == bool(self.episodes or self.failed):
            got = "--keep with other flags" if self.keep else "no episodes"
            raise BadInput("drop", got=got, expected="--episodes, --failed or --keep")
        if not self.data.is_dir():
            raise BadInput(f"data set {self.data}: {no_such_folder(self.data)}", hint=layout.A_SET)
        count = int(layout.read_info(self.data)["total_episodes"])
        if self.keep:
            kept = episode_list(self.keep, count, "--keep")
        else:
            gone = set(episode_list(self.episodes, count)) if self.episodes else set()
            if self.failed:
                dataset = open_numbers(self.data)
                if not dataset.outcomes:
                    got = "no word on which episodes succeeded"
                    raise BadInput(f"data set {self.data}", got=got, expected="it for --failed")
                gone |= {index for index, success in enumerate(dataset.success) if not success}
            kept = [index for index in range(count) if index not in gone]
        if not kept:
            raise BadInput(f"data set {self.data}", got="no episode left", expected="at least one")
        return lerobot_v30.read(self.data, ReadOptions(), kept)
