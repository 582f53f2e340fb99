"""LeRobotDataset v3.0 of any maker, and what the formats v2 and v3 share: features, frames, tasks, images in parquet.

Sets of LeRobot itself differ from ours in that actions may have any unit, vectors any number type, and images may
lie in the table as PNG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robolearn.data.convert.formats.config import COMMON, ForeignSet, FormatConfig, imported, outcome, stored_episode
from robolearn.data.convert.options import SKIPS, Account, ReadOptions
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource, segments_of
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.columns import GRID_S, clock_faults
from robolearn.data.lerobot.features import (
    INDEX,
    INTERVENTION,
    OUTCOME,
    SUCCESS,
    TAKEN,
    camera_name,
    interface_of,
    is_reserved,
    observed,
    stamp_name,
    text_names,
)
from robolearn.data.lerobot.layout import check_version
from robolearn.data.lerobot.tables import array_of, numbered_tasks
from robolearn.data.lerobot.texts import strings_of, texts_in
from robolearn.data.reading.loading import episode_files
from robolearn.data.video.readers import PictureCells, picture_in
from robolearn.data.video.segments import Images, PictureStream, VideoSegment

TASK_HINT = "With --task WORDS, which are those of all episodes, that file is not needed"


@dataclass(frozen=True)
class EpisodeRows:
    """The frames of one episode in a file of a set.

    Attributes:
      what: names file and episode in messages.
      table: their rows, pictures apart.
      pictures: column → its encoded pictures in these rows, in their order.
    """

    what: str
    table: pa.Table
    pictures: Callable[[str], Iterator[bytes]]

    def __len__(self) -> int:
        return self.table.num_rows

    def array(self, name: str, shape: tuple[int, ...] = (), dtype: str = "float32") -> NDArray:
        """(T, *shape) column `name`; raises `BadInput` where there is none, or as `array_of`."""
        if name not in self.table.column_names:
            raise BadInput(self.what, got=f"no column {name!r}", expected="it", available=self.table.column_names)
        return array_of(self.table[name], shape, dtype, what=f"{self.what}, {name}")

    def plain(self, name: str, dtype: str) -> NDArray | None:
        """(T,) column `name`, or None where there is none."""
        return self.array(name, (), dtype) if name in self.table.column_names else None


@dataclass(frozen=True)
class ColumnMap:
    """Mapping of the columns of a set to the features of an episode.

    Attributes:
      interface: with cameras; actions as in the file.
      vectors: our feature → column.
      videos, pictures: ``images.<camera>`` → feature, in mp4 files or as encoded images in the table.
      stamps: name → column.
      texts: features of text.
      account: what is read, left out and changed.
    """

    interface: Interface
    vectors: Mapping[str, str]
    videos: Mapping[str, str]
    pictures: Mapping[str, str]
    stamps: Mapping[str, str]
    texts: tuple[str, ...]
    account: Account

    @property
    def columns(self) -> list[str]:
        """All columns that an episode is read from, pictures apart."""
        return [*INDEX, *OUTCOME, INTERVENTION, "action", *self.vectors.values(), *self.stamps.values(), *self.texts]

    def source(
        self,
        info: Mapping[str, Any],
        names: Sequence[str],
        table: Callable[[int, list[str]], EpisodeRows],
        video: Callable[[int, str, str, int], VideoSegment],
        tasks: Mapping[int, str],
        options: ReadOptions,
    ) -> EpisodeSource:
        """The episodes that `options` takes.

        Args:
          names: of all episodes.
          table: (number, columns) → its rows, with those of the columns that there are.
          video: (number, our feature, column, length) → its pictures.
          tasks: task index → the task in words.
        """

        def action(index: int) -> NDArray:
            rows = table(index, ["action", "episode_index"])
            return rows.array("action", self.interface.action.shape, "float32")

        def episode(index: int) -> EpisodeDraft:
            rows = table(index, self.columns)
            videos = {key: replace(video(index, key, feature, len(rows)), tolerance_s=options.tolerance_s)
                      for key, feature in self.videos.items()}  # fmt: skip
            return draft(self, float(info["fps"]), rows, tasks, videos, options)

        # The set, or else the user, names the episodes that succeeded.
        outcomes = SUCCESS in info["features"] or options.success is not None
        found = ForeignSet(self.interface, names, action, episode, self.stamps, outcomes, self.account, self.texts)
        return imported(found, options)


def plan(
    info: Mapping[str, Any], what: str, options: ReadOptions, texts: tuple[tuple[str, ...], list[str]]
) -> ColumnMap:
    """The plan for a set with this ``meta/info.json``, and with `texts` as `texts_in` finds them. Raises `BadInput`: no
    actions, or no frame rate."""
    interface = options.applied(interface_of(info, what=what))
    features = info["features"]
    found, left_out = observed(features)
    columns = {key: name for key, (name, _) in found.items() if key in interface.observation}
    kinds = {key: str(features[name]["dtype"]) for key, name in columns.items()}
    account = Account(left_out=[*left_out, *texts[1], *(f"{name}: not asked for" for key, (name, _) in found.items()
                                             if key not in columns)])  # fmt: skip
    account.became("action", ["action"], interface.action.size)
    for key, name in columns.items():
        account.became(key, [name], "×".join(map(str, interface.observation[key].shape)))
        if kinds[key] in ("video", "image") and is_reserved(camera_name(key).removesuffix("_")) and name[-1] != "_":
            account.changed.append(f"the camera of {name} is called {camera_name(key)}: {TAKEN}")
        if kinds[key] not in ("video", "image") and len(features[name]["shape"]) > 1:
            account.changed.append(f"{name} is stored row by row, as one vector")
    for name in texts[0]:
        account.became(name, [name], "text")
    if (kind := str(features["action"]["dtype"])) not in ("float16", "float32"):
        account.changed.append(f"the actions, which are {kind}, are stored as float32")
    return ColumnMap(
        interface,
        {key: name for key, name in columns.items() if kinds[key] not in ("video", "image")},
        {key: name for key, name in columns.items() if kinds[key] == "video"},
        {key: name for key, name in columns.items() if kinds[key] == "image"},
        {stamp: name for name in features if (stamp := stamp_name(name)) is not None},
        texts[0],
        account,
    )


def draft(
    plan: ColumnMap,
    fps: float,
    rows: EpisodeRows,
    tasks: Mapping[int, str],
    videos: Mapping[str, Images],
    options: ReadOptions,
) -> EpisodeDraft:
    """The episode whose frames are `rows`, in their order.

    Args:
      fps: of the set [Hz].
      tasks: task index → the task in words.
      videos: ``images.<camera>`` → its images, for the features of `plan.videos`.
    """
    what, length, column, plain = rows.what, len(rows), rows.array, rows.plain
    if not length:
        raise BadInput(what, got="no frames", expected="at least one")
    frame = plain("frame_index", "int64")
    if frame is not None and not np.array_equal(frame, np.arange(length)):
        at = int(np.flatnonzero(frame != np.arange(length))[0])
        raise BadInput(f"{what}, row {at}: frame_index", got=int(frame[at]), expected=at)
    if (stamped := plain("timestamp", "float64")) is not None:
        for fault in clock_faults(stamped, fps, options.tolerance_s):
            hint = f"{SKIPS}, --tolerance-s SECONDS puts its frames onto the grid"
            got = f"{fault.check} ({fault.what})"
            raise BadInput(f"{what}, frame {fault.first}", got=got, expected=f"frame / {fps:g} Hz", hint=hint)
        if (off := np.abs(stamped - np.arange(length) / fps).max()) > max(GRID_S, 1e-6 * length / fps):
            plan.account.changed.append(f"{what}: its timestamps, up to {off:.3g} s off, are put onto the grid")
    interface = plan.interface
    specs = interface.observation
    numbers = {key: column(name, specs[key].shape, specs[key].dtype) for key, name in plan.vectors.items()}
    images: dict[str, Images] = dict(videos)
    for key, name in plan.pictures.items():
        images[key] = PictureStream(length, partial(_decoded, rows, name))

    def flag(name: str) -> bool | None:
        return None if (values := plain(name, "bool")) is None else bool(values.any())

    task, success = plain("task_index", "int64"), flag("next.success")
    words = [options.task or _task(tasks, int(index), what) for index in (task if task is not None else ())]
    episode = stored_episode(
        numbers,
        column("action", interface.action.shape),
        plain("next.reward", "float32"),
        outcome(success, options, None, None),
        flag("next.terminated"),
        flag("next.truncated"),
        words or [options.task],
        plain("is_intervention", "bool"),
        {key: column(name, (), "float64") for key, name in plan.stamps.items()},
    )
    texts = {name: strings_of(rows.table, name, what) for name in plan.texts}
    return EpisodeDraft(replace(episode, texts=texts), images, what)


def _task(tasks: Mapping[int, str], index: int, what: str) -> str:
    if index not in tasks:
        raise BadInput(f"{what}: task_index", got=index, available=tasks)
    return tasks[index]


def _decoded(rows: EpisodeRows, name: str) -> Iterator[NDArray[np.uint8]]:
    """The pictures in column `name`, one at a time in memory."""
    for t, content in enumerate(rows.pictures(name)):
        if (picture := picture_in(content)) is None:
            got = "no image in the table that decodes"
            raise BadInput(f"{rows.what}, {name} at frame {t}", got=got, expected="an encoded image")
        yield picture


def here(path: Path) -> bool:
    return version(path) != "" and not version(path).startswith("v2.")  # `read` says what is too new


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The episodes of the folder `path`.

    Files in which none of those lies that `options` takes are not looked at, so what is sound can be taken out of a
    damaged set. Raises `BadInput`: not such a set, a missing or damaged file, or counts that do not add up.
    """
    info = layout.read_info(path)
    what = f"data set {path}"
    check_version(info, what)
    if not info["total_episodes"]:
        raise BadInput(what, got="no episodes", expected="at least one")
    tasks = {} if options.task else _tasks(path)
    rows = _rows(path, info)
    texts = texts_in(path, (layout.file_of(info, row) for row in rows.values()), text_names(info["features"]))
    chosen = plan(info, what, options, texts)
    segments = segments_of(path, info) if chosen.videos else {}
    newest: dict[tuple[str, ...], pa.Table] = {}
    cells: dict[tuple[str, str], PictureCells] = {}

    def table(index: int, columns: list[str]) -> EpisodeRows:
        if index not in rows:
            raise BadInput(f"{what}: episode {index}", got="no row in meta/episodes", expected="one")
        name = layout.file_of(info, rows[index])
        if (place := (name, *columns)) not in newest:
            newest.clear()  # one file at a time in memory
            cells.clear()
            newest[place] = layout.read_parquet(path, name, columns)
        where = f"{what}: episode {index} ({name})"
        numbers = layout.whole_numbers(newest[place], ["episode_index"], where)["episode_index"].to_numpy()
        mine = np.flatnonzero(numbers == index)
        if len(mine) != rows[index]["length"]:
            raise BadInput(where, got=f"{len(mine)} frames", expected=f"{rows[index]['length']} by meta/episodes")

        def pictures(column: str) -> Iterator[bytes]:
            if (name, column) not in cells:
                cells[name, column] = PictureCells(path, name, column)
            return cells[name, column].at(mine.tolist())

        return EpisodeRows(where, newest[place].take(mine), pictures)

    def video(index: int, key: str, feature: str, length: int) -> VideoSegment:
        return segments[feature][index]

    names = [f"{what}: episode {index}" for index in range(info["total_episodes"])]
    return chosen.source(info, names, table, video, tasks, options)


def _tasks(path: Path) -> dict[int, str]:
    try:
        return numbered_tasks(
            layout.read_parquet(path, layout.TASKS_PATH), what=f"data set {path}: {layout.TASKS_PATH}"
        )
    except BadInput as error:
        raise BadInput(str(error), hint=TASK_HINT) from None


def _rows(path: Path, info: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Number of an episode → its row of ``meta/episodes``, for the committed ones."""
    wanted = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    rows: dict[int, dict[str, Any]] = {}
    for name, table in episode_files(path, info, wanted):
        if lacking := [key for key in wanted if key not in table.column_names]:
            raise BadInput(f"data set {path}: {name}", got=f"no column {lacking[0]!r}", expected="it")
        for row in layout.whole_numbers(table, wanted, f"data set {path}: {name}").to_pylist():
            index = row["episode_index"]
            if index in rows:
                raise BadInput(f"data set {path}: {name}", got=f"episode {index} again", expected="each once")
            if index < info["total_episodes"]:
                rows[index] = row
    return rows


def version(path: Path) -> str:
    """The format of the LeRobot set in `path`, such as ``"v3.0"``, or nothing."""
    try:  # of a damaged set, too: its reader raises with what is wrong
        return str(layout.read_json(path, layout.INFO_PATH).get("codebase_version", "")) if path.is_dir() else ""
    except BadInput:
        return ""


OPTIONS = (*COMMON, "tolerance_s")
FORMAT = FormatConfig("lerobot-v3.0", "LeRobotDataset v3.0 of any maker", here, read, options=OPTIONS)
