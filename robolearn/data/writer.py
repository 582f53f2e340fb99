"""Write episodes as a LeRobotDataset v3.0, whole or not at all.

After every `end` or `write` the data set on disk is complete and valid, for LeRobot too; a process that is
killed loses at most the episode at hand. The frames of an episode join the newest data file, which is written
anew beside the old one and renamed over it, until it has grown to `DATA_BYTES`; then the next file begins. The
episode's row in ``meta/episodes`` goes the same way, and ``meta/info.json``, renamed last, is the commit point:
readers ignore what lies beyond its counts, and a writer that resumes removes it.

``meta/stats.json`` alone may lag by a tenth of the frames until `close`. A power cut, as opposed to a kill, can
undo the episodes of the last second (`SYNC_S`), whole. One commit costs some ten milliseconds, most of them for
the disk; `write_all` stores many episodes for the price of one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from robolearn.core import ArraySpec, BadInput, Episode, Interface, RobolearnError
from robolearn.data import layout
from robolearn.data.checks import bounded, checked, present
from robolearn.data.features import INTERFACE_KEY, column, features_of, schema_of
from robolearn.data.statistics import Stats, aggregate, describe, merge, split
from robolearn.data.tables import (
    conformed,
    episode_row,
    episodes_schema,
    frames_table,
    stacked_stats,
    tasks_of,
    tasks_table,
)
from robolearn.data.tail import Tail

log = logging.getLogger(__name__)

DATA_BYTES = 1 << 19  # a data file is closed at this size; bounds what one episode costs to write
META_ROWS = 64  # the same for a file of episode rows
SYNC_S = 1.0  # folders are synced at most this often, and at close
STATS_GROWTH = 1.1  # stats.json is written when the frames have grown by this factor, and at close


class EpisodeWriter:
    """Write episodes of `interface` into the folder `path`.

        with EpisodeWriter("data/lift", env.interface) as writer:
            writer.add(observation, action, reward)      # each step: the observation before the action
            writer.end(success=True, terminated=True, task="lift the cube")

    Args:
      path: a folder that is new or empty, or with `resume` one that a writer of the same interface made.
      interface: what an observation and an action are.
      resume: continue an existing data set.

    Raises:
      BadInput: `path` holds something else, another interface, or has a writer at work.
    """

    def __init__(self, path: str | Path, interface: Interface, *, resume: bool = False) -> None:
        self.path = Path(path)
        self.interface = interface
        self._features = features_of(interface)
        self._schema = schema_of(self._features)
        self._rows = episodes_schema(self._features)
        self._steps: list[tuple[dict[str, NDArray], NDArray, float]] = []
        self._episodes = 0
        self._frames = 0
        self._tasks: list[str] = []
        self._sizes = {name: feature["shape"][0] for name, feature in self._features.items()}
        self._stats: Stats = {}  # over all frames, the features side by side
        self._synced = 0.0  # when the folders were, by the monotonic clock
        self._stats_frames = 0  # frames that stats.json covers
        self._data = Tail(layout.DATA_PATH)
        self._meta = Tail(layout.EPISODES_PATH)

        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"data set {self.path}", got="a file", expected="a folder")
        self._check_path(resume)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = layout.lock(self.path)
        try:
            self._check_path(resume)
            if (self.path / layout.INFO_PATH).exists():
                self._resume()
            else:
                self._sweep()
                commit = layout.Commit(self.path)
                commit.stage(layout.INFO_PATH, layout.json_bytes(self._info(), indent=4))
                commit.publish()
        except BaseException:
            self._lock.close()
            raise

    @property
    def episodes(self) -> int:
        """Number of episodes in the data set, those of earlier writers included."""
        return self._episodes

    @property
    def frames(self) -> int:
        """Number of frames in the data set."""
        return self._frames

    def add(self, observation: Mapping[str, ArrayLike], action: ArrayLike, reward: float = 0.0) -> None:
        """One step: the observation *before* `action`, and the reward for it.

        Arrays have the shapes of the interface, with or without a leading axis of one world. Features that
        the interface does not name are ignored.

        Raises:
          BadInput: a missing feature, a wrong shape, NaN or infinity, an action outside [-1, 1]; the step is
            not added then.
        """
        step = len(self._steps)
        row = {}
        for key, spec in self.interface.observation.items():
            value = present(observation, key)
            row[key] = checked(np.asarray(value, np.float32), spec, (), f"observation {key!r}", step)
        executed = checked(np.asarray(action, np.float32), self.interface.action, (), "action", step)
        value = float(reward)
        if not np.isfinite(value):
            raise BadInput(f"reward at step {step}", got=value, expected="a finite number")
        self._steps.append((row, bounded(executed, step), value))

    def end(self, *, success: bool, terminated: bool = False, truncated: bool = False, task: str = "") -> int:
        """Store the steps added since the last `end`, durably; returns the episode's index.

        Args:
          success: whether the task was solved.
          terminated: the world ended the episode; `truncated`: the clock did.
          task: the task in words.
        """
        if not self._steps:
            raise BadInput("episode", got="no steps", expected="at least one before end()")
        rows, actions, rewards = zip(*self._steps, strict=True)
        episode = Episode(
            observation={key: np.stack([row[key] for row in rows]) for key in self.interface.observation},
            action=np.stack(actions),
            reward=np.asarray(rewards, np.float32),
            success=success,
            terminated=terminated,
            truncated=truncated,
            task=task,
        )
        self._store([episode])
        self._steps.clear()
        return self._episodes - 1

    def discard(self) -> None:
        """Forget the steps added since the last `end`."""
        self._steps.clear()

    def write(self, episode: Episode) -> int:
        """Store a whole episode, durably; returns its index. Raises as `add` does."""
        self.write_all([episode])
        return self._episodes - 1

    def write_all(self, episodes: Iterable[Episode]) -> None:
        """Store whole episodes in one commit: all of them or, if one is refused, none."""
        if self._steps:
            raise BadInput("episode", got=f"{len(self._steps)} steps begun by add()", expected="end() or discard()")
        ready = [self._checked_episode(episode) for episode in episodes]
        if ready:
            self._store(ready)

    def _checked_episode(self, episode: Episode) -> Episode:
        length = (len(episode),)
        if not length[0]:
            raise BadInput("episode", got="no steps", expected="at least one")
        observation = {}
        for key, spec in self.interface.observation.items():
            array = np.asarray(present(episode.observation, key), np.float32)
            observation[key] = checked(array, spec, length, f"observation {key!r}", 0)
        action = checked(np.asarray(episode.action, np.float32), self.interface.action, length, "action", 0)
        reward = checked(np.asarray(episode.reward, np.float32), ArraySpec(()), length, "reward", 0)
        return replace(episode, observation=observation, action=bounded(action, 0), reward=reward)

    def close(self) -> None:
        """Let go of the data set; steps without an `end` are forgotten."""
        if self._steps:
            log.warning("%s: %d steps without end() are not stored", self.path, len(self._steps))
            self._steps.clear()
        if self._lock.closed:
            return
        try:
            if self._stats_frames < self._frames:
                commit = layout.Commit(self.path)
                commit.stage(layout.STATS_PATH, self._stats_bytes(self._stats))
                commit.publish()
            layout.sync_folders(self.path)
        finally:
            self._lock.close()

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _store(self, episodes: list[Episode]) -> None:
        if self._lock.closed:
            raise RobolearnError(f"data set {self.path}: the writer is closed")
        data, meta, stats = self._data, self._meta, self._stats
        count, frames, tasks = self._episodes, self._frames, list(self._tasks)
        commit = layout.Commit(self.path)
        for episode in episodes:
            if episode.task not in tasks:
                tasks.append(episode.task)
            columns = self._columns(episode, count, frames, tasks.index(episode.task))
            side_by_side = [columns[name].reshape(len(episode), -1) for name in self._features]
            own = describe(np.concatenate(side_by_side, axis=1, dtype=np.float64))
            stats = merge(stats, own) if stats else own
            if data.full(DATA_BYTES):
                if data is not self._data:  # a file begun within this commit is complete now
                    commit.stage(data.path, data.content())
                data = data.next()
            if meta.full(rows=META_ROWS):
                if meta is not self._meta:
                    commit.stage(meta.path, meta.content())
                meta = meta.next()
            facts = {
                "episode_index": count,
                "length": len(episode),
                "data/chunk_index": data.number // layout.CHUNKS_SIZE,
                "data/file_index": data.number % layout.CHUNKS_SIZE,
                "dataset_from_index": frames,
                "dataset_to_index": frames + len(episode),
                "meta/episodes/chunk_index": meta.number // layout.CHUNKS_SIZE,
                "meta/episodes/file_index": meta.number % layout.CHUNKS_SIZE,
            }
            data = data.appended(frames_table(self._schema, columns))
            meta = meta.appended(episode_row(self._rows, facts, [episode.task], split(own, self._sizes)))
            count += 1
            frames += len(episode)

        commit.stage(data.path, data.content())
        if len(tasks) > len(self._tasks):
            commit.stage(layout.TASKS_PATH, layout.parquet_bytes(tasks_table(tasks)))
        fresh = frames >= STATS_GROWTH * self._stats_frames
        if fresh:
            commit.stage(layout.STATS_PATH, self._stats_bytes(stats))
        commit.stage(meta.path, meta.content())
        commit.stage(layout.INFO_PATH, layout.json_bytes(self._info(count, frames, len(tasks)), indent=4))
        commit.publish()
        now = time.monotonic()
        if now - self._synced > SYNC_S:
            layout.sync_folders(self.path)
            self._synced = now

        self._data, self._meta, self._stats, self._tasks = data, meta, stats, tasks
        self._episodes, self._frames = count, frames
        self._stats_frames = frames if fresh else self._stats_frames

    def _columns(self, episode: Episode, index: int, first: int, task: int) -> dict[str, NDArray]:
        """The frames of `episode`: column → (T, D) or (T,)."""
        length = len(episode)
        frame = np.arange(length, dtype=np.int64)
        last = frame == length - 1
        return {
            **{column(key): array.reshape(length, -1) for key, array in episode.observation.items()},
            "action": episode.action.reshape(length, -1),
            "next.reward": episode.reward,
            "next.done": last & bool(episode.terminated or episode.truncated),
            "next.terminated": last & bool(episode.terminated),
            "next.truncated": last & bool(episode.truncated),
            "next.success": last & bool(episode.success),
            "timestamp": (frame / self.interface.control_hz).astype(np.float32),
            "frame_index": frame,
            "episode_index": np.full(length, index, np.int64),
            "index": first + frame,
            "task_index": np.full(length, task, np.int64),
        }

    def _stats_bytes(self, stats: Stats) -> bytes:
        parts = split(stats, self._sizes)
        return layout.json_bytes(
            {feature: {name: value.tolist() for name, value in part.items()} for feature, part in parts.items()}
        )

    def _info(self, episodes: int = 0, frames: int = 0, tasks: int = 0) -> dict[str, Any]:
        hz = float(self.interface.control_hz)
        return {
            "codebase_version": layout.VERSION,
            "robot_type": self.interface.embodiment,
            "total_episodes": episodes,
            "total_frames": frames,
            "total_tasks": tasks,
            "chunks_size": layout.CHUNKS_SIZE,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": int(hz) if hz.is_integer() else hz,
            "splits": {"train": f"0:{episodes}"},
            "data_path": layout.DATA_PATH,
            "video_path": None,
            "features": self._features,
            INTERFACE_KEY: self.interface.to_json(),
        }

    def _check_path(self, resume: bool) -> None:
        """Refuse what must not be written to."""
        if (self.path / layout.INFO_PATH).exists():
            if not resume:
                hint = "Choose another folder, or resume"
                raise BadInput(f"data set {self.path}", got="an existing data set", expected="a new folder", hint=hint)
        elif self.path.exists():
            # A writer that was killed before its first commit leaves folders, its lock and .tmp files.
            strange = [
                name
                for name in self.path.rglob("*")
                if not name.is_dir() and name.name != layout.LOCK_PATH and name.suffix != ".tmp"
            ]
            if strange:
                raise BadInput(f"folder {self.path}", got=f"other files ({strange[0].name})", expected="a new folder")

    def _resume(self) -> None:
        """Take up the committed state and remove what a killed writer left beyond it."""
        what = f"data set {self.path}"
        info = layout.read_info(self.path)
        if INTERFACE_KEY not in info:
            raise BadInput(what, got="one that robolearn did not write", expected="one of its own to resume")
        ours = self._info(info["total_episodes"], info["total_frames"], info["total_tasks"])
        # Compared as JSON text, in which tuples and lists are the same.
        for key, value in ours[INTERFACE_KEY].items():
            stored = info[INTERFACE_KEY].get(key)
            if layout.json_bytes(stored) != layout.json_bytes(value):
                raise BadInput(f"{what}: interface, {key}", got=value, expected=stored)
        for key in ("codebase_version", "chunks_size", "data_path"):
            if info.get(key) != ours[key]:
                raise BadInput(f"{what}: {key}", got=info.get(key), expected=ours[key])
        self._episodes, self._frames = info["total_episodes"], info["total_frames"]
        if not self._episodes:
            self._sweep()
            return
        names = sorted(str(p.relative_to(self.path)) for p in self.path.glob("meta/episodes/*/*.parquet"))
        rows = pa.concat_tables([self._read(name, self._rows) for name in names])
        rows = rows.filter(layout.less(rows["episode_index"], self._episodes)).combine_chunks()
        if rows.num_rows != self._episodes or rows["dataset_to_index"][-1].as_py() != self._frames:
            raise BadInput(f"{what}: meta/episodes", got=f"{rows.num_rows} rows", expected=f"{self._episodes} episodes")
        self._tasks = tasks_of(layout.read_parquet(self.path, layout.TASKS_PATH), what=what)[: info["total_tasks"]]
        self._stats = aggregate(stacked_stats(rows, list(self._features)))
        self._stats_frames = self._frames

        def number(kind: str) -> int:
            return rows[f"{kind}/chunk_index"][-1].as_py() * layout.CHUNKS_SIZE + rows[f"{kind}/file_index"][-1].as_py()

        meta = Tail(layout.EPISODES_PATH, number("meta/episodes"))
        data = Tail(layout.DATA_PATH, number("data"))
        newest_meta = self._read(meta.path, self._rows)
        newest_data = self._read(data.path, self._schema)
        kept_meta = newest_meta.filter(layout.less(newest_meta["episode_index"], self._episodes))
        kept_data = newest_data.filter(layout.less(newest_data["episode_index"], self._episodes))
        self._meta, self._data = meta.appended(kept_meta), data.appended(kept_data)
        self._sweep()
        if newest_data.num_rows != kept_data.num_rows or newest_meta.num_rows != kept_meta.num_rows:
            log.warning("%s: an unfinished episode is removed", self.path)
        commit = layout.Commit(self.path)
        commit.stage(data.path, self._data.content())
        commit.stage(layout.TASKS_PATH, layout.parquet_bytes(tasks_table(self._tasks)))
        commit.stage(layout.STATS_PATH, self._stats_bytes(self._stats))
        commit.stage(meta.path, self._meta.content())
        commit.stage(layout.INFO_PATH, layout.json_bytes(ours, indent=4))
        commit.publish()

    def _read(self, name: str, schema: pa.Schema) -> pa.Table:
        return conformed(layout.read_parquet(self.path, name), schema, what=f"data set {self.path}: {name}")

    def _sweep(self) -> None:
        """Remove .tmp files, and files that no committed episode lies in."""
        for name in self.path.rglob("*.tmp"):
            name.unlink()
        for tail in (self._data, self._meta):
            newest = tail.number if tail.table is not None else -1
            for chunk in (self.path / tail.pattern).parent.parent.glob("chunk-*"):
                for file in chunk.glob("file-*.parquet"):
                    number = int(chunk.name.removeprefix("chunk-")) * layout.CHUNKS_SIZE
                    number += int(file.stem.removeprefix("file-"))
                    if number > newest:
                        file.unlink()
