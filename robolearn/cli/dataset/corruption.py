"""``robolearn dataset edit corrupt``: a set with wrong steps, for tests of learning from such data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from robolearn.cli.dataset.common import Edit
from robolearn.core.switches import Seed

if TYPE_CHECKING:
    from robolearn.data.convert.source import EpisodeSource
    from robolearn.data.reading.reader import Dataset

Corruptible = Literal["rewards", "actions", "observations"]


@dataclass(frozen=True, kw_only=True)
class DatasetCorrupt(Edit):
    """Write a new set in which a share of the steps is wrong, to test learning from such data.

    Rewards are drawn from -SCALE to SCALE; to actions and observations up to SCALE of their standard deviations is
    added. Pictures, final observations, successes and ends stay.

    Example: robolearn dataset edit corrupt data/lift --share 0.33 --what actions --out data/lift-wrong
    """

    share: float
    """Share of the steps, above 0 and up to 1."""
    what: tuple[Corruptible, ...] = ("actions", "observations")
    """What of them is wrong: rewards, actions, observations."""
    scale: float = 1.0
    """Size of the errors."""
    seed: Seed = 0
    """Of the steps and the errors."""

    def source(self, dataset: Dataset) -> EpisodeSource:
        from robolearn.data.convert.corrupt import Corruption, corrupt

        return corrupt(dataset, Corruption(self.share, self.what, self.scale, self.seed))
