"""A damaged data set, read as far as possible, and the findings on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.columns import GRID_S
from robolearn.data.lerobot.features import INTERFACE_KEY, NUMBERS, text_names
from robolearn.data.lerobot.layout import check_version
from robolearn.data.lerobot.tables import flat_values, tasks_of
from robolearn.data.lerobot.texts import is_text
from robolearn.data.writing.uncommitted import is_torn
from robolearn.io.locks import is_locked


@dataclass(frozen=True)
class Defect:
    """A fault.

    Attributes:
      check: the kind of fault, such as ``"nan"`` or ``"frozen camera"``.
      what: the fault in words, with what was found and what was expected.
      file: relative to the set, where one file is at fault.
      episode, frame: where it begins.
    """

    check: str
    what: str
    file: str = ""
    episode: int | None = None
    frame: int | None = None

    @property
    def where(self) -> str:
        """Place in words: ``episode 3, frame 17, data/chunk-000/file-000.parquet``."""
        parts = [] if self.episode is None else [f"episode {self.episode}"]
        parts += [] if self.frame is None else [f"frame {self.frame}"]
        return ", ".join([*parts, *([self.file] if self.file else [])]) or "the set"


@dataclass(frozen=True)
class Tolerances:
    """Tolerances of the checks.

    Attributes:
      decode: whether videos are decoded, every frame of them.
      frozen_s: a camera may show one picture for this long while the arm moves [s].
      gap_s: a raw timestamp may stand still, or jump, by this much [s], and by three periods at least.
      picture_age_s: a picture may be this old at a step [s], as `max_age_s` of the cameras of our stations permits: its
        stamp may stand still or jump by that and three periods.
      back_s: a raw timestamp may be this much before the one of the frame before [s]: where a stamp of one clock is
        stored by another, the time between two readings comes in.
      grid_s: a timestamp may be off the frame rate's grid by this much [s]; LeRobot's own tolerance.
    """

    decode: bool = True
    frozen_s: float = 1.0
    gap_s: float = 0.25
    picture_age_s: float = 0.5
    back_s: float = 1e-3
    grid_s: float = GRID_S


def frames_text(first: int, last: int) -> str:
    """``""`` for one frame, ``" (until frame 40)"`` for more."""
    return "" if first == last else f" (until frame {last})"


@dataclass(frozen=True)
class Rows:
    """The frames of one episode as they stand in its table.

    Attributes:
      index: of the episode.
      file: relative to the set.
      columns: name → (T,) or (T, D) of whatever numbers are there.
    """

    index: int
    file: str
    columns: dict[str, NDArray]

    @property
    def length(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0


@dataclass(frozen=True)
class Opened:
    """The readable part of a set.

    Attributes:
      root: the folder.
      info: ``meta/info.json``.
      rows: of ``meta/episodes``, those of committed episodes, in order of their index.
      tasks: in words, by index; None where they cannot be read.
      stats: ``meta/stats.json``; None where it is not there or cannot be read.
      episodes: by index, those whose table can be read.
      lost_rows: whether a file of ``meta/episodes`` cannot be read; then it is the fault, not what was in it.
      uncommitted: how many episodes ``meta/episodes`` has that are not counted, those of a killed commit apart.
      live: whether a writer is at work in it.
      findings: what went wrong on the way.
      seen: called with the name of every video that has been checked.
    """

    root: Path
    info: dict[str, Any]
    rows: list[dict[str, Any]]
    tasks: list[str] | None
    stats: dict[str, Any] | None
    episodes: dict[int, Rows]
    lost_rows: bool = False
    uncommitted: int = 0
    live: bool = False
    findings: list[Defect] = field(default_factory=list)
    seen: Callable[[str], None] = lambda name: None

    @property
    def ours(self) -> bool:
        """True where robolearn wrote it, and so can repair it."""
        return INTERFACE_KEY in self.info

    @property
    def fps(self) -> float:
        return float(self.info["fps"])

    @property
    def videos(self) -> list[str]:
        """The features that are videos."""
        return [name for name, feature in self.info["features"].items() if feature.get("dtype") == "video"]


def opened(root: Path, seen: Callable[[str], None] | None = None) -> Opened:
    """Read what there is. Raises `BadInput`: ``meta/info.json`` is missing or unreadable: this is no data set."""
    info = layout.read_info(root)
    check_version(info, f"data set {root}")
    findings: list[Defect] = []
    count = int(info["total_episodes"])
    rows = _rows(root, count, INTERFACE_KEY in info, findings)
    lost = bool(findings)
    newest = max((row["episode_index"] for row in rows), default=-1)
    uncommitted = 0 if is_torn(root, count, newest) else sum(row["episode_index"] >= count for row in rows)
    rows = [row for row in rows if row["episode_index"] < count]
    live = is_locked(root / layout.LOCK_PATH)
    tasks = stats = None
    try:
        tasks = tasks_of(layout.read_parquet(root, layout.TASKS_PATH), what=layout.TASKS_PATH)
    except BadInput as error:
        findings.append(Defect("tasks", _short(error, root), layout.TASKS_PATH))
    try:
        stats = layout.read_json(root, layout.STATS_PATH)
    except BadInput as error:
        findings.append(Defect("stats", _short(error, root), layout.STATS_PATH))
    episodes = dict(_tables(root, info, rows, findings))
    uncommitted = 0 if live else uncommitted
    return Opened(
        root, info, rows, tasks, stats, episodes, lost, uncommitted, live, findings, seen or (lambda name: None)
    )


def _rows(root: Path, count: int, ours: bool, findings: list[Defect]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in layout.row_files(root):
        try:
            table = layout.read_parquet(root, name)
        except BadInput as error:
            hint = "; robolearn dataset repair makes its rows again from the frames and the videos" if ours else ""
            findings.append(Defect("corrupt file", _short(error, root) + hint, name))
            continue
        needed = ("episode_index", "length", "data/chunk_index", "data/file_index")
        lacking = [key for key in needed if key not in table.column_names]
        if lacking:
            findings.append(Defect("episodes", f"no column {lacking[0]!r}", name))
            continue
        for row in table.to_pylist():
            strange = [key for key in needed if not _whole(row[key])]
            if strange:
                what = f"{strange[0]} is {row[strange[0]]!r}, no whole number"
                episode = row["episode_index"] if _whole(row["episode_index"]) else None
                findings.append(Defect("episodes", what, name, episode))
                continue
            rows.append({**row, **{key: int(row[key]) for key in needed}, "file": name})
    if not rows and not findings and count:
        findings.append(Defect("episodes", f"no rows in meta/episodes, expected {count}"))
    return sorted(rows, key=lambda row: row["episode_index"])


def _whole(value: Any) -> bool:
    return (isinstance(value, int) or (isinstance(value, float) and value.is_integer())) and abs(value) < 2**40


def _tables(
    root: Path, info: dict[str, Any], rows: list[dict[str, Any]], findings: list[Defect]
) -> Iterator[tuple[int, Rows]]:
    files: dict[str, list[int]] = {}
    for row in rows:
        files.setdefault(layout.file_of(info, row), []).append(row["episode_index"])
    for name, indices in files.items():
        span = f"episodes {indices[0]} to {indices[-1]}" if len(indices) > 1 else f"episode {indices[0]}"
        try:
            table = layout.read_parquet(root, name)
        except BadInput as error:
            findings.append(Defect("corrupt file", f"{_short(error, root)}; {span} cannot be read", name, indices[0]))
            continue
        if "episode_index" not in table.column_names:
            findings.append(Defect("corrupt file", f"no column 'episode_index'; {span} cannot be read", name))
            continue
        if not kinds.is_integer(table["episode_index"].type) and not kinds.is_floating(table["episode_index"].type):
            what = f"episode_index is of type {table['episode_index'].type}; {span} cannot be read"
            findings.append(Defect("corrupt file", what, name))
            continue
        columns = {key: values for key in table.column_names if (values := _numbers(table[key])) is not None}
        for key in info["features"]:
            if info["features"][key].get("dtype") in NUMBERS and key not in columns:
                findings.append(Defect("features", f"no column {key!r} of numbers, which info.json has", name))
        for key in text_names(info["features"]):
            if key not in table.column_names or not is_text(table[key].type):
                findings.append(Defect("features", f"no column {key!r} of text, which info.json has", name))
        for index in indices:
            mine = columns["episode_index"] == index
            yield index, Rows(index, name, {key: values[mine] for key, values in columns.items()})


def _numbers(column: pa.ChunkedArray) -> NDArray | None:
    """(N,) or (N, D), or None for what is neither or has rows of different lengths."""
    flat, size = flat_values(column), len(column)
    if not (kinds.is_integer(flat.type) or kinds.is_floating(flat.type) or kinds.is_boolean(flat.type)):
        return None
    if size and len(flat) % size:
        return None
    values = flat.to_numpy(zero_copy_only=False)
    return values if len(flat) == size else values.reshape(size, -1)


def _short(error: BadInput, root: Path) -> str:
    """The message of `error`, without the name of the set."""
    return str(error).removeprefix(f"data set {root}").removeprefix(": ")
