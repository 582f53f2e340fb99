"""Save what a killed recording left of the episode at hand.

Finished episodes need no repair. The running one is in ``.running/`` (or, where a recording was resumed without a
repair, in ``.unfinished/<number>/``): the journal of its steps, and for every camera a video that was never closed
with the index of its packets. A saved episode has as many steps as are whole in all of them; the encoders hold back
the last dozen frames. It is stored as truncated and not a success.

Finished episodes that ``meta/info.json`` does not count, because it is older than they are, are counted again. What
is left of such episodes where something lacks is kept in ``.unfinished/beyond-<number>/``. Rows of ``meta/episodes``
that a damaged file held are made again from all else.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import INTERFACE_KEY, SUCCESS, camera_name, image_keys, interface_of, stamp_name
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.encoder import EpisodeVideo, VideoConfig, remux
from robolearn.data.video.pixels import describe_frames
from robolearn.data.video.readers import VideoReader
from robolearn.data.writing.cleanup import unfinished_folder
from robolearn.data.writing.locked_dataset import CheckedEpisode, LockedDataset
from robolearn.data.writing.rebuild import rebuild_rows
from robolearn.data.writing.steps import RecoveredEpisode, episode_of, read_journal
from robolearn.io.atomic import move, write_text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Repaired:
    """What a data set has after a repair.

    Attributes:
      episodes, frames: in all.
      saved: (episode, frames) of every unfinished episode that was saved.
      lost: steps of unfinished episodes that could not be saved: their images were still with the encoder.
      adopted: (episode, frames) of every finished episode that ``meta/info.json`` did not count.
      rebuilt: the episodes whose rows in ``meta/episodes`` were made again.
    """

    episodes: int
    frames: int
    saved: list[tuple[int, int]]
    lost: int
    adopted: list[tuple[int, int]] = field(default_factory=list)
    rebuilt: list[int] = field(default_factory=list)


def repair(path: str | Path) -> Repaired:
    """Append the unfinished episodes of the data set `path`, remove what killed commits left, and make lost rows again.

    Raises:
      BadInput: not a data set of robolearn's, a writer is at work in it, or an episode is not whole; it is named.
      RobolearnError: the disk is full; then nothing has changed.
    """
    root = Path(path)
    info = layout.read_info(root)
    if INTERFACE_KEY not in info:
        raise BadInput(f"data set {root}", got="one that robolearn did not write", expected="one of its own to repair")
    interface = interface_of(info, what=f"data set {root}")
    stamps = [stamp for name in info["features"] if (stamp := stamp_name(name)) is not None]
    outcomes = SUCCESS in info["features"]
    with layout.lock(root):
        rebuilt = rebuild_rows(root, info)
    # This sets .running/ aside.
    locked = LockedDataset(
        root, interface, resume=True, stamps=stamps, video=VideoConfig(), outcomes=outcomes, adopt=True
    )
    try:
        saved, lost = [], 0
        for episode, frames in locked.adopted:
            log.info("%s: episode %d of %d steps is counted again", root, episode, frames)
        unfinished = root / layout.UNFINISHED_PATH
        for folder in sorted(path for path in unfinished.glob("*") if path.name.isdigit()):
            journal = read_journal(folder)
            if journal is not None and not _fits(journal, locked):
                aside = unfinished_folder(root, layout.UNCOMMITTED)
                move(folder, aside)
                log.warning("%s: the episode of another interface in %s is set aside in %s", root, folder.name, aside)
                continue
            kept, steps = _save(locked, folder, journal)
            lost += steps - kept
            if kept:
                saved.append((locked.episodes - 1, kept))
                log.info("%s: %d of %d steps saved as episode %d", root, kept, steps, locked.episodes - 1)
            shutil.rmtree(folder)
        if unfinished.exists() and not any(unfinished.iterdir()):
            unfinished.rmdir()
        return Repaired(locked.episodes, locked.frames, saved, lost, locked.adopted, rebuilt)
    finally:
        locked.close()


def _fits(journal: RecoveredEpisode, locked: LockedDataset) -> bool:
    return journal.interface == locked.interface and sorted(journal.stamps) == sorted(locked.stamps)


def _save(locked: LockedDataset, folder: Path, journal: RecoveredEpisode | None) -> tuple[int, int]:
    """Commit the episode in `folder`; returns how many steps are stored, and how many it had."""
    if journal is None or not journal.steps:
        return 0, 0
    kept, steps = len(journal.steps), len(journal.steps)
    keys = image_keys(locked.interface)
    for key in keys:
        kept = min(kept, _remux(journal, folder, key, None))
    if not kept:
        return 0, steps
    videos = {}
    for key in keys:
        _remux(journal, folder, key, kept)
        videos[key] = _video(journal, folder, key, kept)
    task = journal.task or (locked.tasks[-1] if locked.tasks else "")
    marker = folder / "episode"
    noted = marker.read_text() if marker.exists() else ""
    if noted.isdigit() and _stored(locked, int(noted), journal):
        return 0, 0
    write_text(marker, str(locked.episodes))
    episode = episode_of(
        journal.steps[:kept], journal.interface, success=False, terminated=False, truncated=True, task=task
    )
    locked.commit([CheckedEpisode(episode, videos)])
    return kept, steps


def _stored(locked: LockedDataset, index: int, journal: RecoveredEpisode) -> bool:
    """Whether a repair that was killed before it removed the folder had committed it as episode `index`."""
    if index >= locked.episodes:
        return False
    action = Dataset.open(locked.root, images=False).episode(index).action
    return np.array_equal(action, np.stack([step.action for step in journal.steps])[: len(action)])


def _remux(journal: RecoveredEpisode, folder: Path, key: str, most: int | None) -> int:
    name = camera_name(key)
    spec, hz = journal.interface.observation[key], journal.interface.control_hz
    source, index = folder / f"{name}.mp4", folder / f"{name}.journal"
    if not source.exists():  # a kill before the encoder had begun
        return 0
    return remux(source, index, folder / f"{name}.whole.mp4", spec, hz, journal.video, most)


def _video(journal: RecoveredEpisode, folder: Path, key: str, frames: int) -> EpisodeVideo:
    height, width, channels = journal.interface.observation[key].shape
    name = f"{camera_name(key)}.whole.mp4"
    reader = VideoReader(
        folder, key, (height, width, channels), np.array([frames]), [name], np.zeros(1), journal.interface.control_hz
    )
    return EpisodeVideo(folder / name, frames, describe_frames(reader.decode(0)))
