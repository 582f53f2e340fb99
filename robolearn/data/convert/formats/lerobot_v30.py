"""LeRobotDataset v3.0 of any maker, and what the formats v2 and v3 share: features, frames, tasks, images in parquet.

Sets of LeRobot itself differ from ours in that actions may have any unit, vectors any number type, and images may
lie in the table as PNG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robolearn.data.convert.formats.config import (
    FormatConfig,
    ReadOptions,
    Scale,
    imported,
    scale_for,
    stored_episode,
)
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource, segments_of
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import SUCCESS, interface_of, observed, stamp_name
from robolearn.data.lerobot.layout import check_version
from robolearn.data.lerobot.tables import array_of, tasks_of
from robolearn.data.reading.loading import episode_files
from robolearn.data.video.readers import picture_in
from robolearn.data.video.segments import Images


@dataclass(frozen=True)
class ColumnMap:
    """Mapping of the columns of a set to the features of an episode.

    Attributes:
      interface: with cameras; actions as in the file.
      vectors: our feature → column.
      videos, pictures: ``images.<camera>`` → feature, in mp4 files or as PNG in the table.
      stamps: name → column.
      notes: what is left out, and why.
    """

    interface: Interface
    vectors: Mapping[str, str]
    videos: Mapping[str, str]
    pictures: Mapping[str, str]
    stamps: Mapping[str, str]
    notes: tuple[str, ...]

    def source(
        self,
        scale: Scale | None,
        drafts: Iterator[EpisodeDraft],
        count: int,
        info: Mapping[str, Any],
        opts: ReadOptions,
    ) -> EpisodeSource:
        """The source of `count` drafts; the set, or else the user, names the episodes that succeeded."""
        outcomes = SUCCESS in info["features"] or opts.success is not None
        return imported(self.interface, scale, drafts, count, stamps=self.stamps, outcomes=outcomes, notes=self.notes)


def plan(info: Mapping[str, Any], what: str, options: ReadOptions) -> ColumnMap:
    """The plan for a set with this ``meta/info.json``.

    Raises:
      BadInput: no actions, or no frame rate.
    """
    interface = options.applied(interface_of(info, what=what))
    found, notes = observed(info["features"])
    columns = {key: name for key, (name, _) in found.items() if key in interface.observation}
    kinds = {key: str(info["features"][name]["dtype"]) for key, name in columns.items()}
    lost = [f"{name} is stored row by row, as one vector" for key, name in columns.items()
            if kinds[key] not in ("video", "image") and len(info["features"][name]["shape"]) > 1]  # fmt: skip
    if (kind := str(info["features"]["action"]["dtype"])) not in ("float16", "float32"):
        lost.append(f"the actions, which are {kind}, are stored as float32")
    return ColumnMap(
        interface,
        {key: name for key, name in columns.items() if kinds[key] not in ("video", "image")},
        {key: name for key, name in columns.items() if kinds[key] == "video"},
        {key: name for key, name in columns.items() if kinds[key] == "image"},
        {stamp: name for name in info["features"] if (stamp := stamp_name(name)) is not None},
        (*notes, *lost),
    )


def draft(
    plan: ColumnMap,
    table: pa.Table,
    tasks: Mapping[int, str],
    videos: Mapping[str, Images],
    options: ReadOptions,
    what: str,
) -> EpisodeDraft:
    """The episode whose frames are the rows of `table`, in their order.

    Args:
      tasks: task index → the task in words.
      videos: ``images.<camera>`` → its images, for the features of `plan.videos`.
      what: names file and episode in messages.
    """
    length = table.num_rows
    if not length:
        raise BadInput(what, got="no frames", expected="at least one")

    def column(name: str, shape: tuple[int, ...] = (), dtype: str = "float32") -> NDArray:
        if name not in table.column_names:
            raise BadInput(what, got=f"no column {name!r}", expected="it", available=table.column_names)
        return array_of(table[name], shape, dtype, what=f"{what}, {name}")

    def plain(name: str, dtype: str) -> NDArray | None:
        return column(name, (), dtype) if name in table.column_names else None

    frame = plain("frame_index", "int64")
    if frame is not None and not np.array_equal(frame, np.arange(length)):
        at = int(np.flatnonzero(frame != np.arange(length))[0])
        raise BadInput(f"{what}, row {at}: frame_index", got=int(frame[at]), expected=at)
    interface = plan.interface
    specs = interface.observation
    numbers = {key: column(name, specs[key].shape, specs[key].dtype) for key, name in plan.vectors.items()}
    images: dict[str, Images] = dict(videos)
    for key, name in plan.pictures.items():
        images[key] = np.stack(
            [_picture(cell, f"{what}, frame {t}, {name}") for t, cell in enumerate(table[name].to_pylist())]
        )

    def flag(name: str) -> bool | None:
        return None if (values := plain(name, "bool")) is None else bool(values.any())

    task, success = plain("task_index", "int64"), flag("next.success")
    words = [options.task or _task(tasks, int(index), what) for index in (task if task is not None else ())]
    episode = stored_episode(
        numbers,
        column("action", interface.action.shape),
        plain("next.reward", "float32"),
        bool(options.success) if success is None else success,
        flag("next.terminated"),
        flag("next.truncated"),
        words or [options.task],
        plain("is_intervention", "bool"),
        {key: column(name, (), "float64") for key, name in plan.stamps.items()},
    )
    return EpisodeDraft(episode, images, what)


def _task(tasks: Mapping[int, str], index: int, what: str) -> str:
    if index not in tasks:
        raise BadInput(f"{what}: task_index", got=index, available=tasks)
    return tasks[index]


def _picture(cell: Any, what: str) -> NDArray[np.uint8]:
    if (picture := picture_in(cell)) is None:
        raise BadInput(what, got="no image in the table that decodes", expected="an encoded image")
    return picture


def here(path: Path) -> bool:
    return version(path) != "" and not version(path).startswith("v2.")  # `read` says what is too new


def read(path: Path, options: ReadOptions, episodes: Sequence[int] | None = None) -> EpisodeSource:
    """`episodes` (default all) of the folder `path`, in that order.

    Files in which none of them lies are not looked at, so what is sound can be taken out of a damaged set.

    Raises:
      BadInput: not such a set, a missing or damaged file, or counts that do not add up.
    """
    info = layout.read_info(path)
    what = f"data set {path}"
    check_version(info, what)
    if not info["total_episodes"]:
        raise BadInput(what, got="no episodes", expected="at least one")
    chosen = plan(info, what, options)
    words = tasks_of(layout.read_parquet(path, layout.TASKS_PATH), what=f"{what}: {layout.TASKS_PATH}")
    numbered = layout.read_parquet(path, layout.TASKS_PATH)["task_index"].to_pylist()
    tasks = dict(zip(sorted(numbered), words, strict=True))
    rows = _rows(path, info)
    for index in episodes or ():
        if not 0 <= index < len(rows):
            raise BadInput(f"episode of {path}", got=index, expected=f"0 to {len(rows) - 1}")
    rows = rows if episodes is None else [rows[index] for index in episodes]

    def tables(columns: list[str] | None = None) -> Iterator[tuple[int, str, pa.Table]]:
        newest, table = "", None
        for row in rows:
            index = row["episode_index"]
            name = layout.file_of(info, row)
            if name != newest or table is None:
                newest, table = name, layout.read_parquet(path, name, columns)
            mine, where = layout.rows_of(table, "equal", index), f"{what}: episode {index} ({name})"
            if mine.num_rows != row["length"]:
                raise BadInput(where, got=f"{mine.num_rows} frames", expected=f"{row['length']} by meta/episodes")
            yield index, where, mine

    shape = chosen.interface.action.shape
    actions = (
        (where, array_of(part["action"], shape, "float32", what=where))
        for _, where, part in tables(["action", "episode_index"])
    )
    scale = scale_for(actions, chosen.interface, options)
    segments = segments_of(path, info) if chosen.videos else {}

    def read_drafts() -> Iterator[EpisodeDraft]:
        for index, where, part in tables():
            videos = {
                key: replace(segments[feature][index], tolerance_s=options.tolerance_s)
                for key, feature in chosen.videos.items()
            }
            yield draft(chosen, part, tasks, videos, options, where)

    return chosen.source(scale, read_drafts(), len(rows), info, options)


def _rows(path: Path, info: dict[str, Any]) -> list[dict[str, Any]]:
    """The committed rows of ``meta/episodes``."""
    wanted = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    rows = [row for _, table in episode_files(path, info, wanted) for row in table.to_pylist()]
    rows = sorted(
        (row for row in rows if row["episode_index"] < info["total_episodes"]), key=lambda row: row["episode_index"]
    )
    if [row["episode_index"] for row in rows] != list(range(info["total_episodes"])):
        expected = f"episodes 0 to {info['total_episodes'] - 1}"
        raise BadInput(f"data set {path}: meta/episodes", got=f"{len(rows)} rows", expected=expected)
    return rows


def version(path: Path) -> str:
    """The format of the LeRobot set in `path`, such as ``"v3.0"``, or nothing."""
    try:  # of a damaged set, too: its reader raises with what is wrong
        return str(layout.read_json(path, layout.INFO_PATH).get("codebase_version", "")) if path.is_dir() else ""
    except BadInput:
        return ""


FORMAT = FormatConfig("lerobot-v3.0", "LeRobotDataset v3.0 of any maker", here, read)
