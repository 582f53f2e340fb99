"""``robolearn dataset edit rename-task``: other words for a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robolearn.cli.dataset.common import Edit

if TYPE_CHECKING:
    from robolearn.data.convert.source import EpisodeSource
    from robolearn.data.reading.reader import Dataset


@dataclass(frozen=True, kw_only=True)
class RenameTask(Edit):
    """Write a new set in which a task has other words.

    Example: robolearn dataset edit rename-task data/lift --to "lift the red cube" --out data/lift-red
    """

    to: str
    """The new words."""
    task: str | None = None
    """The old words; without it every episode gets the new ones."""

    def source(self, dataset: Dataset) -> EpisodeSource:
        from robolearn.data.convert import edit

        return edit.rename_task(dataset, self.task, self.to)
