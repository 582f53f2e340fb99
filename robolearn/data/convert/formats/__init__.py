"""Other formats of demonstrations: how each is read into an `EpisodeSource`, and how a data set is written as one.

To add a format, write a module with a reader or a writer (or both) and put it into `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robolearn.core import BadInput
from robolearn.data.convert.formats import lerobot_v21, lerobot_v30, npz, robomimic
from robolearn.data.convert.formats.options import ReadOptions
from robolearn.data.convert.source import EpisodeSource, Progress
from robolearn.data.reading.reader import Dataset

__all__ = ["FORMATS", "Format", "ReadOptions", "guess", "lerobot_v30", "reader", "writer"]

Reader = Callable[[Path, ReadOptions], EpisodeSource]
Writer = Callable[[Dataset, Path, "Progress | None"], None]


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
      summary: half a line for people.
      here: whether a path looks like it.
      read: a path → its episodes.
      write: a data set → a new file or folder, whole or not at all.
    """

    summary: str
    here: Callable[[Path], bool]
    read: Reader | None = None
    write: Writer | None = None


FORMATS: dict[str, Format] = {
    "lerobot-v2.1": Format(
        "LeRobotDataset v2.0 and v2.1: a parquet file and an mp4 per episode",
        lerobot_v21.here,
        lerobot_v21.read,
        lerobot_v21.write,
    ),
    "lerobot-v3.0": Format("LeRobotDataset v3.0 of any maker", lerobot_v30.here, lerobot_v30.read),
    "robomimic": Format("robomimic's HDF5", robomimic.here, robomimic.read, robomimic.write),
    "npz": Format("a folder with one .npz per episode", npz.here, npz.read, npz.write),
}


def guess(path: Path) -> str | None:
    """The format that `path` looks like."""
    return next((name for name, form in FORMATS.items() if form.here(path)), None)


def reader(name: str) -> Reader:
    """The reader of format `name`."""
    form = FORMATS.get(name)
    if form is None or form.read is None:
        raise BadInput("--format", got=name, available=[key for key, f in FORMATS.items() if f.read])
    return form.read


def writer(name: str) -> Writer:
    """The writer of format `name`."""
    form = FORMATS.get(name)
    if form is None or form.write is None:
        raise BadInput("--format", got=name, available=[key for key, f in FORMATS.items() if f.write])
    return form.write
