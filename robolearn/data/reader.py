"""Read a LeRobotDataset v3.0 into contiguous arrays, and refuse one that does not add up.

Sets that LeRobot itself wrote are read too: without our interface one is derived from their features, and video
and image features are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import layout
from robolearn.data.features import column, interface_of
from robolearn.data.statistics import Stats, describe_many
from robolearn.data.tables import array_of, tasks_of

log = logging.getLogger(__name__)

_EPISODE_COLUMNS = [
    "episode_index",
    "length",
    "data/chunk_index",
    "data/file_index",
    "dataset_from_index",
    "dataset_to_index",
]


@dataclass(frozen=True)
class Dataset:
    """E episodes of N frames in all, in memory.

    Attributes:
      path: the folder.
      info: ``meta/info.json``.
      interface: what an observation and an action are.
      tasks: the tasks in words, by task index.
      stats: ``meta/stats.json``, or computed where that is missing or was not brought up to date by a writer
        that was killed: feature → statistic → (D,). Its quantiles are LeRobot's approximation; `statistics`
        has the exact ones.
      lengths: (E,) steps per episode; `starts` (E,) their first frames.
      observation: feature → (N, …) float32.
      action: (N, Da) float32; reward: (N,) float32.
      task_index: (N,) int64.
      success, terminated, truncated: (E,) bool. Where a set does not say, an episode is not a success, and
        has been truncated.
    """

    path: Path
    info: Mapping[str, Any]
    interface: Interface
    tasks: list[str]
    stats: dict[str, Stats]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    observation: dict[str, NDArray[np.float32]]
    action: NDArray[np.float32]
    reward: NDArray[np.float32]
    task_index: NDArray[np.int64]
    success: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    @staticmethod
    def open(path: str | Path) -> Dataset:
        """Read and check the data set in the folder `path`.

        Raises:
          BadInput: not a data set, no episodes, a missing or corrupt file, counts that do not add up, or a
            number that is not finite; the message names the file, or the episode and the frame.
        """
        return _open(Path(path))

    @property
    def features(self) -> Mapping[str, Mapping[str, Any]]:
        """LeRobot's feature dictionary."""
        return self.info["features"]

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.lengths)

    @property
    def frames(self) -> int:
        """Number of frames."""
        return len(self.action)

    def __len__(self) -> int:
        return self.episodes

    def episode(self, index: int) -> Episode:
        """Episode `index`; its arrays are views of the data set's."""
        if not 0 <= index < self.episodes:
            raise BadInput(f"episode of {self.path}", got=index, expected=f"0 to {self.episodes - 1}")
        start = int(self.starts[index])
        rows = slice(start, start + int(self.lengths[index]))
        return Episode(
            observation={key: array[rows] for key, array in self.observation.items()},
            action=self.action[rows],
            reward=self.reward[rows],
            success=bool(self.success[index]),
            terminated=bool(self.terminated[index]),
            truncated=bool(self.truncated[index]),
            task=self.tasks[int(self.task_index[start])],
        )

    def frames_of(self, episodes: Sequence[int] | None = None) -> NDArray[np.int64]:
        """The frame numbers of `episodes` (default all), in order."""
        if episodes is None:
            return np.arange(self.frames)
        chosen = [int(e) for e in episodes]
        for index in chosen:
            if not 0 <= index < self.episodes:
                raise BadInput(f"episode of {self.path}", got=index, expected=f"0 to {self.episodes - 1}")
        ranges = [np.arange(self.starts[e], self.starts[e] + self.lengths[e]) for e in chosen]
        return np.concatenate(ranges) if ranges else np.zeros(0, np.int64)

    def statistics(self, episodes: Sequence[int] | None = None) -> dict[str, Stats]:
        """Exact statistics over the frames of `episodes` (default all): observation key or ``action`` → stats."""
        rows = self.frames_of(episodes)
        return describe_many({**{key: a[rows] for key, a in self.observation.items()}, "action": self.action[rows]})


def _open(root: Path) -> Dataset:
    what = f"data set {root}"
    if not root.is_dir():
        raise BadInput(what, got="no such folder", expected="a LeRobotDataset v3.0 folder")
    info = layout.read_info(root)
    if not str(info["codebase_version"]).startswith("v3."):
        raise BadInput(what, got=f"format {info['codebase_version']}", expected=layout.VERSION)
    interface = interface_of(info, what=what)
    if not info["total_episodes"]:
        raise BadInput(what, got="no episodes", expected="at least one")
    episodes = _episodes(root, info)
    frames = _frames(root, info, episodes, interface)

    lengths = episodes["length"].to_numpy().astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    _check_frames(root, frames, lengths, starts, interface)
    tasks = tasks_of(layout.read_parquet(root, layout.TASKS_PATH), what=f"{what}: {layout.TASKS_PATH}")
    task_index = frames["task_index"]
    if task_index.min() < 0 or task_index.max() >= len(tasks):
        raise BadInput(f"{what}: task_index", got=int(task_index.max()), expected=f"0 to {len(tasks) - 1}")

    def flagged(name: str) -> NDArray[np.bool_] | None:
        return np.logical_or.reduceat(frames[name], starts) if name in frames else None

    success = flagged("next.success")
    success = np.zeros(len(lengths), bool) if success is None else success
    terminated = flagged("next.terminated")
    truncated = flagged("next.truncated")
    terminated = np.zeros(len(lengths), bool) if terminated is None else terminated
    truncated = ~terminated if truncated is None else truncated
    observation = {key: frames[column(key)] for key in interface.observation}
    reward = frames.get("next.reward")
    return Dataset(
        path=root,
        info=info,
        interface=interface,
        tasks=tasks,
        stats=_stats(root, interface, frames),
        lengths=lengths,
        starts=starts,
        observation=observation,
        action=frames["action"],
        reward=np.zeros(len(task_index), np.float32) if reward is None else reward,
        task_index=task_index,
        success=success,
        terminated=terminated,
        truncated=truncated,
    )


def _episodes(root: Path, info: Mapping[str, Any]) -> pa.Table:
    """The committed rows of ``meta/episodes``, checked."""
    what = f"data set {root}"
    names = sorted(str(path.relative_to(root)) for path in root.glob("meta/episodes/*/*.parquet"))
    if not names:
        raise BadInput(what, got="no meta/episodes/*/*.parquet", expected="a LeRobotDataset v3.0 folder")
    tables = []
    for name in names:
        table = layout.read_parquet(root, name, _EPISODE_COLUMNS)
        lacking = [key for key in _EPISODE_COLUMNS if key not in table.column_names]
        if lacking:
            raise BadInput(f"{what}: {name}", got=f"no column {lacking[0]!r}", expected="it")
        tables.append(table.select(_EPISODE_COLUMNS))
    table = pa.concat_tables(tables)
    count = int(info["total_episodes"])
    # A writer that was killed may leave the row of an episode that was never committed.
    table = table.filter(layout.less(table["episode_index"], count)).combine_chunks()
    if table.num_rows != count or not np.array_equal(table["episode_index"].to_numpy(), np.arange(count)):
        raise BadInput(f"{what}: meta/episodes", got=f"{table.num_rows} rows", expected=f"episodes 0 to {count - 1}")
    lengths = table["length"].to_numpy()
    if lengths.min() < 1:
        raise BadInput(f"{what}: episode {int(lengths.argmin())}", got=f"length {lengths.min()}", expected="at least 1")
    ends = np.cumsum(lengths)
    for name, expected in (("dataset_to_index", ends), ("dataset_from_index", ends - lengths)):
        wrong = np.flatnonzero(table[name].to_numpy() != expected)
        if len(wrong):
            e = int(wrong[0])
            raise BadInput(f"{what}: {name} of episode {e}", got=table[name][e].as_py(), expected=int(expected[e]))
    if ends[-1] != info["total_frames"]:
        raise BadInput(f"{what}: sum of episode lengths", got=int(ends[-1]), expected=f"{info['total_frames']} frames")
    return table


def _frames(root: Path, info: Mapping[str, Any], episodes: pa.Table, interface: Interface) -> dict[str, NDArray]:
    """Column → (N, …) for the committed frames."""
    what = f"data set {root}"
    specs = {column(key): spec for key, spec in interface.observation.items()} | {"action": interface.action}
    plain = {"frame_index": "int64", "episode_index": "int64", "index": "int64", "task_index": "int64"}
    optional = {"next.reward": "float32", "next.success": "bool", "next.terminated": "bool", "next.truncated": "bool"}
    wanted = {name: (spec, "float32") for name, spec in specs.items()}
    wanted |= {name: (ArraySpec(()), kind) for name, kind in (plain | optional).items()}
    pattern = str(info.get("data_path") or layout.DATA_PATH)
    chunks, files = episodes["data/chunk_index"].to_pylist(), episodes["data/file_index"].to_pylist()
    count = int(info["total_episodes"])
    parts: dict[str, list[NDArray]] = {}
    for chunk, file in dict.fromkeys(zip(chunks, files, strict=True)):
        name = pattern.format(chunk_index=chunk, file_index=file)
        table = layout.read_parquet(root, name, list(wanted))
        lacking = [key for key in wanted if key not in table.column_names and key not in optional]
        if lacking:
            found = table.column_names
            raise BadInput(f"{what}: {name}", got=f"no column {lacking[0]!r}", expected="it", available=found)
        table = table.filter(layout.less(table["episode_index"], count))
        for key in table.column_names:
            spec, kind = wanted[key]
            parts.setdefault(key, []).append(array_of(table[key], spec.shape, kind, what=f"{what}: {name}, {key}"))
    frames = {key: np.concatenate(arrays) for key, arrays in parts.items()}
    total = int(info["total_frames"])
    for key, array in list(frames.items()):
        if len(array) != total:
            if key in optional and len(frames["index"]) == total:
                del frames[key]  # some files have it, some do not
                continue
            raise BadInput(f"{what}: data", got=f"{len(array)} frames", expected=f"{total} frames")
    return frames


def _check_frames(
    root: Path,
    frames: Mapping[str, NDArray],
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    interface: Interface,
) -> None:
    """Frames in order, and every number finite."""
    total = int(lengths.sum())
    episode = np.repeat(np.arange(len(lengths)), lengths)
    frame = np.arange(total) - np.repeat(starts, lengths)

    def fail(row: int, name: str, got: Any, expected: Any) -> None:
        where = f"data set {root}: episode {episode[row]}, frame {frame[row]}, {name}"
        raise BadInput(where, got=got, expected=expected)

    for name, expected in (("episode_index", episode), ("frame_index", frame), ("index", np.arange(total))):
        wrong = np.flatnonzero(frames[name] != expected)
        if len(wrong):
            fail(int(wrong[0]), name, int(frames[name][wrong[0]]), int(expected[wrong[0]]))
    for name in [*(column(key) for key in interface.observation), "action", "next.reward"]:
        if name in frames and not np.isfinite(frames[name]).all():
            row = int(np.argwhere(~np.isfinite(frames[name]))[0][0])
            fail(row, name, "NaN or infinity", "finite numbers")


def _stats(root: Path, interface: Interface, frames: Mapping[str, NDArray]) -> dict[str, Stats]:
    if (root / layout.STATS_PATH).exists():
        stored = layout.read_json(root, layout.STATS_PATH)
        try:
            stats = {feature: {name: _array(name, v) for name, v in part.items()} for feature, part in stored.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise BadInput(f"data set {root}: {layout.STATS_PATH}", got=f"unreadable statistics ({error})") from None
        if "action" in stats and stats["action"].get("count") == len(frames["action"]):
            return stats
    names = [*(column(key) for key in interface.observation), "action"]
    return describe_many({name: frames[name] for name in names})


def _array(name: str, value: Any) -> NDArray:
    return np.asarray(value, np.int64 if name == "count" else np.float64)
