"""Recovery of what a killed recording left of the episode at hand, and of lost rows of ``meta/episodes``.

Finished episodes need no repair. The running one is in ``.running/`` (or, where a recording was resumed without a
repair, in ``.unfinished/<number>/``): the journal of its steps, and for every camera a video that was never closed
with the index of its packets. A saved episode has as many steps as are whole in all of them; the encoders hold back
the last dozen frames. It is stored as truncated and not a success.

Finished episodes that ``meta/info.json`` does not count, because it is older than they are, are counted again; the
rest of incomplete ones is kept in ``.unfinished/beyond-<number>/``. Rows of ``meta/episodes`` that a damaged file held
are made again from the frames, the videos and the tasks, which hold all of it; all rows are then written anew, so that
their files are numbered without a hole.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import (
    INTERFACE_KEY,
    SUCCESS,
    camera_name,
    image_keys,
    interface_of,
    schema_of,
    stamp_name,
    text_names,
)
from robolearn.data.lerobot.statistics import describe, describe_frames, split
from robolearn.data.lerobot.tables import (
    ROW_PLACE,
    array_of,
    conformed,
    episode_row,
    episodes_schema,
    row_facts,
    tasks_of,
)
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.encoder import EpisodeVideo, VideoConfig, remux
from robolearn.data.video.segments import VideoSegment
from robolearn.data.video.segments import frames as images
from robolearn.data.writing import locked_dataset
from robolearn.data.writing.locked_dataset import CheckedEpisode, LockedDataset
from robolearn.data.writing.steps import RecoveredEpisode, episode_of, read_journal
from robolearn.data.writing.uncommitted import unfinished_folder
from robolearn.io.atomic import move, write_text

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Repaired:
    """Content of a data set after a repair.

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
        root, interface, resume=True, stamps=stamps, video=VideoConfig(), outcomes=outcomes,
        texts=text_names(info["features"]), adopt=True,
    )  # fmt: skip
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
    same = journal.interface == locked.interface and sorted(journal.stamps) == sorted(locked.stamps)
    return same and not locked.texts  # steps have none


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
    """True where a repair that was killed before it removed the folder had committed it as episode `index`."""
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
    path, (height, width, _) = folder / f"{camera_name(key)}.whole.mp4", journal.interface.observation[key].shape
    segment = VideoSegment(path, frames, journal.interface.control_hz, name=key, size=(height, width))
    return EpisodeVideo(path, frames, describe_frames(images(segment)))


def rebuild_rows(root: Path, info: Mapping[str, Any]) -> list[int]:
    """Make the rows again that the set `root` lacks; returns their episodes.

    Args:
      info: its ``meta/info.json``; it counts the episodes that there are.

    Raises:
      BadInput: of an episode without a row the frames, a video or the tasks are not whole, either; it is named, and
        nothing has changed.
    """
    schema = episodes_schema(info["features"])
    found, damaged = _found(root, schema)
    lacking = [index for index in range(info["total_episodes"]) if index not in found]
    if not lacking and not damaged:
        return []
    if lacking:
        found |= _made(root, info, schema, set(lacking))
    rows = [found[index] for index in sorted(found)]
    commit = layout.commit(root, ".again.tmp")
    count = -(-len(rows) // locked_dataset.META_ROWS)
    for number in range(count):
        table = pa.concat_tables(rows[number * locked_dataset.META_ROWS : (number + 1) * locked_dataset.META_ROWS])
        for name, value in zip(ROW_PLACE, divmod(number, layout.CHUNKS_SIZE), strict=True):
            table = table.set_column(table.column_names.index(name), name, pa.array([value] * len(table), pa.int64()))
        commit.stage(layout.numbered(layout.EPISODES_PATH, number), layout.parquet_bytes(table.combine_chunks()))
    if count:
        commit.publish()
    # Only now: until here whoever is killed finds the rows that were there, some of them twice.
    kept = {layout.numbered(layout.EPISODES_PATH, number) for number in range(count)}
    for name in layout.row_files(root):
        if name not in kept:
            (root / name).unlink()
    return lacking


def _found(root: Path, schema: pa.Schema) -> tuple[dict[int, pa.Table], bool]:
    """Episode → its row, of those that can be read; and whether a file of rows is damaged or rows are there twice."""
    found: dict[int, pa.Table] = {}
    damaged = False
    for name in layout.row_files(root):
        try:
            table = conformed(layout.read_parquet(root, name), schema, what=f"data set {root}: {name}")
        except BadInput:
            damaged = True
            continue
        for i, index in enumerate(table["episode_index"].to_pylist()):
            damaged |= index in found
            found[index] = table.slice(i, 1)
    return found, damaged


def _made(root: Path, info: Mapping[str, Any], schema: pa.Schema, lacking: set[int]) -> dict[int, pa.Table]:
    """Episode → its row, of those that are `lacking`."""
    features = info["features"]
    sizes = {name: int(np.prod(f["shape"])) for name, f in features.items() if f["dtype"] not in ("video", "string")}
    cameras = [name for name, feature in features.items() if feature["dtype"] == "video"]
    words = tasks_of(layout.read_parquet(root, layout.TASKS_PATH), what=f"data set {root}: {layout.TASKS_PATH}")
    files = _frames(root, info)
    made: dict[int, pa.Table] = {}
    first = 0
    for index in range(info["total_episodes"]):
        what = f"data set {root}: episode {index}, which has no row in meta/episodes"
        if index not in files:
            raise BadInput(what, got="no frames", expected="them, to make its row again")
        number, table = files[index]
        length = table.num_rows
        start, first = first, first + length
        if index not in lacking:
            continue
        if table["index"].to_pylist() != list(range(start, first)):
            raise BadInput(what, got="frames with a hole", expected=f"frames from {start} on, to make its row again")
        columns = [
            array_of(table[name], (size,), features[name]["dtype"], what=f"{what}: {name}").astype(np.float64)
            for name, size in sizes.items()
        ]
        stats = split(describe(np.concatenate(columns, axis=1)), sizes)
        facts = row_facts(index, range(start, first), number, 0, cameras, float(info["fps"]))
        for name in cameras:
            (height, width, _), path = features[name]["shape"], root / layout.video_path(name, index)
            named = f"episode {index}, {name}"
            segment = VideoSegment(path, length, float(info["fps"]), name=named, size=(height, width))
            stats[name] = describe_frames(images(segment))
        spoken = dict.fromkeys(table["task_index"].to_pylist())
        if not all(0 <= task < len(words) for task in spoken):
            raise BadInput(what, got=f"tasks {list(spoken)}", expected=f"0 to {len(words) - 1}")
        made[index] = episode_row(schema, facts, [words[task] for task in spoken], stats)
    return made


def _frames(root: Path, info: Mapping[str, Any]) -> dict[int, tuple[int, pa.Table]]:
    """Episode → the number of its data file, and its frames."""
    schema = schema_of(info["features"])
    found: dict[int, tuple[int, pa.Table]] = {}
    for number in itertools.count():
        name = layout.numbered(layout.DATA_PATH, number)
        if not (root / name).exists():
            return found
        table = conformed(layout.read_parquet(root, name), schema, what=f"data set {root}: {name}")
        indices = table["episode_index"].to_numpy()
        edges = np.flatnonzero(np.diff(indices, prepend=-1))
        for start, end in itertools.pairwise([*edges.tolist(), len(indices)]):
            found[int(indices[start])] = number, table.slice(start, end - start)
    raise AssertionError
