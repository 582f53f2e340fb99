"""The committed state of a data set that is being written, and how finished episodes join it.

The frames of an episode join the newest data file, which is written anew beside the old one and renamed over it,
until it has grown to `DATA_BYTES`; then the next file begins. The episode's row in ``meta/episodes`` goes the same
way, its videos are files of their own, and ``meta/info.json``, renamed last, is the commit point: readers ignore
what it does not count, and a writer that resumes removes of that what a killed commit left, by `find_uncommitted`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import BadInput, Episode, Interface, RobolearnError
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import (
    FAILURE,
    INTERFACE_KEY,
    INTERVENTION,
    column,
    features_of,
    image_keys,
    in_short,
    interface_of,
    schema_of,
    stamp_name,
    text_names,
)
from robolearn.data.lerobot.statistics import Stats, aggregate, describe, joined, merge, split
from robolearn.data.lerobot.tables import (
    FINAL_PATH,
    array_of,
    conformed,
    episode_row,
    episodes_schema,
    final_table,
    frame_columns,
    frames_table,
    row_facts,
    stacked_stats,
    tasks_of,
    tasks_table,
)
from robolearn.data.video.encoder import EpisodeVideo, VideoConfig, check_encodable
from robolearn.data.writing.steps import unfinished_steps
from robolearn.data.writing.uncommitted import AppendFile, clean_up, find_uncommitted, unfinished_folder
from robolearn.io.atomic import move, sync_folder
from robolearn.io.json_files import flatten

log = logging.getLogger(__name__)

DATA_BYTES = 1 << 19  # a data file is closed at this size; bounds what one episode costs to write
STATS_BYTES = 1 << 26  # of numbers that are described together, as float64
META_ROWS = 64  # the same for a file of episode rows
STATS_GROWTH = 1.1  # stats.json is written when the frames have grown by this factor, and at close


@dataclass(frozen=True)
class CheckedEpisode:
    """An episode that may be committed: its vectors checked, its videos written."""

    episode: Episode
    videos: Mapping[str, EpisodeVideo] = field(default_factory=dict)  # picture feature → its mp4


class LockedDataset:
    """The data set in the folder `root`, locked for writing until `close`.

    Attributes:
      features: LeRobot's feature dictionary. A set that an older version began keeps its own.
      episodes, frames: how many are committed.
      tasks: in words.
      adopted: (episode, frames) of finished ones that ``meta/info.json`` did not count.

    Args:
      adopt: whether such episodes are counted again; otherwise a set that has some is refused.
      durable: false for a set that is worthless if this process dies: what is committed need not be on the disk then.
    """

    def __init__(
        self,
        root: Path,
        interface: Interface,
        *,
        resume: bool,
        stamps: Sequence[str],
        video: VideoConfig,
        outcomes: bool = True,
        failures: bool = False,
        texts: Sequence[str] = (),
        adopt: bool = False,
        durable: bool = True,
    ) -> None:
        self._durable = durable
        self.root, self.interface, self.stamps, self.texts = root, interface, tuple(stamps), tuple(texts)
        self.episodes = self.frames = 0
        self.tasks: list[str] = []
        self.adopted: list[tuple[int, int]] = []
        self._pictures = image_keys(interface)
        features = partial(features_of, interface, self.stamps, outcomes=outcomes, failures=failures, texts=self.texts)
        self._set_features(features())
        self._stats: Stats = {}  # over all frames, the vector features side by side
        self._pixels: dict[str, Stats] = {}  # picture feature → statistics
        self._stats_frames = 0  # frames that stats.json covers
        self._exact_frames = 0  # the same, with quantiles that are exact
        self._data = AppendFile(layout.DATA_PATH)
        self._meta = AppendFile(layout.EPISODES_PATH)

        if root.exists() and not root.is_dir():
            raise BadInput(f"data set {root}", got="a file", expected="a folder")
        self._check_path(resume)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"data set {root}", got=error.strerror, expected="a folder that can be made") from error
        self.lock = layout.lock(root)
        try:
            self._check_path(resume)
            hz = interface.control_hz
            infos = {key: check_encodable(key, interface.observation[key], hz, video) for key in self._pictures}
            self._set_features(features(infos))
            if (root / layout.INFO_PATH).exists():
                self._resume(adopt)
            else:
                self._clean_up(torn=True)
                commit = layout.commit(root)
                commit.stage(layout.INFO_PATH, layout.json_bytes(self._info(), indent=4))
                commit.publish(durable=durable)
                if durable:
                    sync_folder(root.parent)
        except BaseException:
            self.lock.release()
            raise

    @property
    def running(self) -> Path:
        """The folder for the episode at hand."""
        return self.root / layout.RUNNING_PATH

    @property
    def closed(self) -> bool:
        return not self.lock.held

    def close(self) -> None:
        """Make stats.json exact, but for the quantiles of pictures, and let go of the folder."""
        if self.closed:
            return
        try:
            if self._exact_frames < self.frames:
                try:
                    stats = self._described()
                except BadInput as error:  # an older file of a set that this writer went on with
                    log.warning("%s: the quantiles in %s are bounds", error, layout.STATS_PATH)
                    stats = split(self._stats, self._sizes)
                commit = layout.commit(self.root)
                commit.stage(layout.STATS_PATH, self._stats_bytes(stats, self._pixels))
                commit.publish(durable=self._durable)
                self._exact_frames = self.frames
        finally:
            self.lock.release()

    def _described(self) -> dict[str, Stats]:
        """The statistics of all frames, of so many components at a time that `STATS_BYTES` are in memory."""
        step = max(1, STATS_BYTES // (8 * max(1, self.frames)))
        return {
            name: joined([describe(self._components(name, size, slice(c, c + step))) for c in range(0, size, step)])
            for name, size in self._sizes.items()
        }

    def _components(self, name: str, size: int, chosen: slice) -> NDArray:
        """(N, …) the `chosen` ones of the `size` components of feature `name`, of all frames."""
        kind, at = self.features[name]["dtype"], 0
        frames = np.empty((self.frames, len(range(size)[chosen])), kind)
        for number in range(self._data.number + 1):
            file = layout.numbered(layout.DATA_PATH, number)
            cells = layout.read_parquet(self.root, file, [name])[name][: self.frames - at]
            what = f"data set {self.root}: {file}, {name}"
            frames[at : at + len(cells)] = array_of(cells, (size,), kind, what=what)[:, chosen]
            at += len(cells)
        return frames

    def commit(self, checked: Sequence[CheckedEpisode]) -> None:
        """Store episodes, all of them or none, durably."""
        if self.closed:
            raise RobolearnError(f"data set {self.root}: the writer is closed")
        data, meta, stats, pixels = self._data, self._meta, self._stats, dict(self._pixels)
        count, frames, tasks = self.episodes, self.frames, list(self.tasks)
        commit = layout.commit(self.root)
        for episode, videos in ((one.episode, one.videos) for one in checked):
            own_tasks = list(dict.fromkeys(episode.frame_tasks or (episode.task,)))
            tasks += [task for task in own_tasks if task not in tasks]
            columns = frame_columns(episode, self.interface, self.stamps, count, frames, tasks)
            side_by_side = [columns[name].reshape(len(episode), -1) for name in self._sizes]
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
            described = split(own, self._sizes)
            for key in self._pictures:
                name, video = column(key), videos[key]
                commit.adopt(layout.video_path(name, count), video.path)
                pixels[key] = merge(pixels[key], video.stats) if key in pixels else video.stats
                described[name] = video.stats
            span, cameras = range(frames, frames + len(episode)), [column(key) for key in self._pictures]
            facts = row_facts(count, span, data.number, meta.number, cameras, self.interface.control_hz)
            data = data.appended(frames_table(self._schema, columns))
            meta = meta.appended(episode_row(self._rows, facts, own_tasks, described))
            if episode.final:
                row = final_table(episode.final, self.interface, len(episode))
                commit.stage(layout.numbered(FINAL_PATH, count), layout.parquet_bytes(row))
            count += 1
            frames += len(episode)

        commit.stage(data.path, data.content())
        if len(tasks) > len(self.tasks):
            commit.stage(layout.TASKS_PATH, layout.parquet_bytes(tasks_table(tasks)))
        fresh = frames >= STATS_GROWTH * self._stats_frames
        if fresh:
            commit.stage(layout.STATS_PATH, self._stats_bytes(split(stats, self._sizes), pixels))
        commit.stage(meta.path, meta.content())
        commit.stage(layout.INFO_PATH, layout.json_bytes(self._info(count, frames, len(tasks)), indent=4))
        commit.publish(durable=self._durable)

        self._data, self._meta, self._stats, self._pixels, self.tasks = data, meta, stats, pixels, tasks
        self.episodes, self.frames = count, frames
        self._stats_frames = frames if fresh else self._stats_frames

    def _set_features(self, features: dict[str, dict[str, Any]]) -> None:
        self.features = features
        self._schema = schema_of(features)
        self._rows = episodes_schema(features)
        self._sizes = {name: f["shape"][0] for name, f in features.items() if f["dtype"] not in ("video", "string")}

    def _stats_bytes(self, stats: Mapping[str, Stats], pixels: Mapping[str, Stats]) -> bytes:
        parts = dict(stats)
        for key, own in pixels.items():
            parts[column(key)] = {n: value if n == "count" else value.reshape(-1, 1, 1) for n, value in own.items()}
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
            "video_path": layout.VIDEO_PATH if self._pictures else None,
            "features": self.features,
            INTERFACE_KEY: self.interface.to_json(),
        }

    def _check_path(self, resume: bool) -> None:
        """Refuse what must not be written to."""
        root = self.root
        if (root / layout.INFO_PATH).exists():
            if not resume:
                hint = "Choose another folder, or resume"
                raise BadInput(f"data set {root}", got="an existing data set", expected="a new folder", hint=hint)
        elif root.exists():
            # A writer that was killed before its first commit leaves folders, its lock and .tmp files.
            files = (path for path in root.rglob("*") if not path.is_dir())
            if strange := [path for path in files if path.name != layout.LOCK_PATH and path.suffix != ".tmp"]:
                raise BadInput(f"folder {root}", got=f"other files ({strange[0].name})", expected="a new folder")

    def _resume(self, adopt: bool) -> None:
        """Take up the committed state and remove what a killed commit left."""
        what = f"data set {self.root}"
        info = layout.read_info(self.root)
        if INTERFACE_KEY not in info:
            raise BadInput(what, got="one that robolearn did not write", expected="one of its own to resume")
        theirs = interface_of(info, what=what).to_json()
        ours = self._info(info["total_episodes"], info["total_frames"], info["total_tasks"])
        # Compared as JSON text, in which tuples and lists are the same.
        for key, value in ours[INTERFACE_KEY].items():
            if layout.json_bytes(theirs[key]) != layout.json_bytes(value):
                mine, stored = (
                    flatten(one, f"{key}.") if key == "extra" else {key: one} for one in (value, theirs[key])
                )
                name = next(
                    n for n in (*mine, *stored) if layout.json_bytes(mine.get(n)) != layout.json_bytes(stored.get(n))
                )
                expected = f"{in_short(stored.get(name))}, as the episodes have it that are there"
                raise BadInput(f"{what}: interface, {name}", got=in_short(mine.get(name)), expected=expected)
        for key in ("codebase_version", "chunks_size", "data_path", "video_path"):
            if info.get(key) != ours[key]:
                raise BadInput(f"{what}: {key}", got=info.get(key), expected=ours[key])
        self._take_features(info["features"], what)
        more = find_uncommitted(self.root, info)
        if more.lengths and not adopt:
            got = f"{info['total_episodes'] + len(more.lengths)} episodes in its files"
            expected = f"{info['total_episodes']}, as {layout.INFO_PATH} says"
            raise BadInput(what, got=got, expected=expected, hint="`robolearn dataset repair` counts all of them")
        self.episodes, self.frames = info["total_episodes"], info["total_frames"]
        for length in more.lengths:  # the finished episodes that it does not count
            self.adopted.append((self.episodes, length))
            self.episodes, self.frames = self.episodes + 1, self.frames + length
        self._set_aside()
        if not self.episodes:
            self._clean_up(torn=more.torn)
            (self.root / layout.INFO_TMP_PATH).unlink(missing_ok=True)
            return
        names = layout.row_files(self.root)
        if not names:
            raise BadInput(what, got="no meta/episodes/*/*.parquet", expected=f"{self.episodes} episodes")
        rows = pa.concat_tables([self._read(name, self._rows) for name in names])
        rows = layout.rows_of(rows, "less", self.episodes, what).combine_chunks()
        if rows.num_rows != self.episodes:
            raise BadInput(f"{what}: meta/episodes", got=f"{rows.num_rows} rows", expected=f"{self.episodes} episodes")
        if (frames := rows["dataset_to_index"][-1].as_py()) != self.frames:
            raise BadInput(f"{what}: meta/episodes", got=f"{frames} frames", expected=f"{self.frames} frames")
        # A killed commit may have added words; those of counted episodes stay, whatever the count in info.json.
        words = tasks_of(layout.read_parquet(self.root, layout.TASKS_PATH), what=what)
        used = {word for spoken in rows["tasks"].to_pylist() for word in spoken or ()}
        known = 1 + max((index for index, word in enumerate(words) if word in used), default=-1)
        self.tasks = words[: max(more.tasks, known)]
        self._stats = aggregate(stacked_stats(rows, list(self._sizes)))
        self._pixels = {key: aggregate(stacked_stats(rows, [column(key)])) for key in self._pictures}
        self._stats_frames = self.frames

        def number(kind: str) -> int:
            return rows[f"{kind}/chunk_index"][-1].as_py() * layout.CHUNKS_SIZE + rows[f"{kind}/file_index"][-1].as_py()

        meta = AppendFile(layout.EPISODES_PATH, number("meta/episodes"))
        data = AppendFile(layout.DATA_PATH, number("data"))
        newest_meta = self._read(meta.path, self._rows)
        newest_data = self._read(data.path, self._schema)
        kept_meta, kept_data = (layout.rows_of(t, "less", self.episodes, what) for t in (newest_meta, newest_data))
        self._meta, self._data = meta.appended(kept_meta), data.appended(kept_data)
        cut = [data.path] if newest_data.num_rows != kept_data.num_rows else []
        cut += [meta.path] if newest_meta.num_rows != kept_meta.num_rows else []
        self._clean_up(torn=more.torn, cut=cut)
        if cut and more.torn:
            log.warning("%s: an unfinished episode is removed", self.root)
        # Beside info.json.tmp, which marks a killed commit until nothing of it remains.
        commit = layout.commit(self.root, ".again.tmp")
        commit.stage(data.path, self._data.content())
        commit.stage(layout.TASKS_PATH, layout.parquet_bytes(tasks_table(self.tasks)))
        commit.stage(layout.STATS_PATH, self._stats_bytes(split(self._stats, self._sizes), self._pixels))
        commit.stage(meta.path, self._meta.content())
        info = self._info(self.episodes, self.frames, len(self.tasks))
        commit.stage(layout.INFO_PATH, layout.json_bytes(info, indent=4))
        commit.publish()
        (self.root / layout.INFO_TMP_PATH).unlink(missing_ok=True)

    def _take_features(self, stored: dict[str, dict[str, Any]], what: str) -> None:
        """Go on with the features that the set has; they must hold what this writer is given."""
        stamps = [stamp for name in stored if (stamp := stamp_name(name)) is not None]
        pairs = {"stamps": (self.stamps, stamps), "texts": (self.texts, text_names(stored))}
        for kind, (mine, theirs) in pairs.items():
            if sorted(mine) != sorted(theirs):
                raise BadInput(f"{what}: {kind}", got=list(mine) or "nothing", expected=list(theirs) or "none")
        lacking = [name for name in self.features if name not in stored and name != INTERVENTION]
        if lacking:
            raise BadInput(f"{what}: features", got=f"no {lacking[0]!r}", expected="it", available=stored)
        # A set that labels failures goes on to, whoever writes into it.
        self._set_features({name: f for name, f in stored.items() if name in self.features or name == FAILURE})

    def _set_aside(self) -> None:
        """Keep the running episode of a recording that was killed, for `repair`."""
        if not self.running.exists():
            return
        if unfinished_steps(self.running, self.episodes):
            move(self.running, unfinished_folder(self.root))
            log.warning("%s: an unfinished episode is set aside; `robolearn dataset repair` can save it", self.root)
        else:
            shutil.rmtree(self.running)

    def _read(self, name: str, schema: pa.Schema) -> pa.Table:
        return conformed(layout.read_parquet(self.root, name), schema, what=f"data set {self.root}: {name}")

    def _clean_up(self, *, torn: bool, cut: Sequence[str] = ()) -> None:
        """Leave no file after the newest that committed episodes lie in; see `clean_up`."""
        newest = {file.pattern: file.number if file.table is not None else -1 for file in (self._data, self._meta)}
        newest |= {layout.VIDEO_PATH.replace("{video_key}", column(key)): self.episodes - 1 for key in self._pictures}
        newest[FINAL_PATH] = self.episodes - 1
        clean_up(self.root, newest, torn=torn, cut=cut)
