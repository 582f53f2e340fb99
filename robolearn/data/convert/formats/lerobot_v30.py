"""LeRobotDataset v3.0 of any maker: several episodes to a file, in parquet and in mp4.

Sets of LeRobot itself differ from ours in that actions may have any unit, vectors any number type, and images may
lie in the table as PNG.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from robolearn.core import BadInput
from robolearn.data.convert.dataset_source import segments_of
from robolearn.data.convert.formats.lerobot import draft, plan, says_success
from robolearn.data.convert.formats.options import ReadOptions, outcome_note
from robolearn.data.convert.formats.scaling import note, scale_for, scaled, with_scale
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.info import check_version
from robolearn.data.lerobot.tables import array_of, tasks_of


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
            name = str(info.get("data_path") or layout.DATA_PATH).format(
                chunk_index=row["data/chunk_index"], file_index=row["data/file_index"]
            )
            if name != newest or table is None:
                newest, table = name, layout.read_parquet(path, name, columns)
            mine = table.filter(pc.call_function("equal", [table["episode_index"], pa.scalar(index, pa.int64())]))
            where = f"{what}: episode {index} ({name})"
            if mine.num_rows != row["length"]:
                raise BadInput(where, got=f"{mine.num_rows} frames", expected=f"{row['length']} by meta/episodes")
            yield index, where, mine

    shape = chosen.interface.action.shape
    scale = scale_for(
        (where, array_of(part["action"], shape, "float32", what=where))
        for _, where, part in tables(["action", "episode_index"])
    )
    segments = segments_of(path, info) if chosen.videos else {}

    def read_drafts() -> Iterator[EpisodeDraft]:
        for index, where, part in tables():
            videos = {
                key: replace(segments[feature][index], tolerance_s=options.tolerance_s)
                for key, feature in chosen.videos.items()
            }
            yield scaled(draft(chosen, part, tasks, videos, options, where), scale)

    outcomes = says_success(info, options)
    notes = (*chosen.notes, *outcome_note(outcomes), *note(scale))
    return EpisodeSource(
        with_scale(chosen.interface, scale), read_drafts(), len(rows), tuple(chosen.stamps), notes, outcomes
    )


def _rows(path: Path, info: dict[str, Any]) -> list[dict[str, Any]]:
    """The committed rows of ``meta/episodes``."""
    wanted = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    rows: list[dict[str, Any]] = []
    for file in sorted(path.glob("meta/episodes/*/*.parquet")):
        rows += layout.read_parquet(path, str(file.relative_to(path)), wanted).to_pylist()
    rows = sorted((row for row in rows if row["episode_index"] < info["total_episodes"]), key=_index)
    if [row["episode_index"] for row in rows] != list(range(info["total_episodes"])):
        expected = f"episodes 0 to {info['total_episodes'] - 1}"
        raise BadInput(f"data set {path}: meta/episodes", got=f"{len(rows)} rows", expected=expected)
    return rows


def _index(row: dict[str, Any]) -> int:
    return row["episode_index"]


def version(path: Path) -> str:
    """The format of the LeRobot set in `path`, such as ``"v3.0"``, or nothing."""
    try:  # of a damaged set, too: its reader raises with what is wrong
        return str(layout.read_json(path, layout.INFO_PATH).get("codebase_version", "")) if path.is_dir() else ""
    except BadInput:
        return ""
