"""A data set as an `EpisodeSource`: its episodes one by one, the images as segments of its videos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from robolearn.core import BadInput, Interface
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource, stamps_of
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import interface_of, key_of, names_of
from robolearn.data.lerobot.remote import RemotePath
from robolearn.data.lerobot.statistics import Stats
from robolearn.data.lerobot.tables import STATISTICS
from robolearn.data.reading.loading import episode_files
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.segments import VideoSegment


def open_numbers(path: str | Path) -> Dataset:
    """The data set in `path` without its images."""
    return Dataset.open(path, images=False)


def interface_with_images(dataset: Dataset) -> Interface:
    """The interface of `dataset`, cameras included.

    Raises:
      BadInput: images lie in its tables, not in videos: a set of another maker's.
    """
    for name, feature in dataset.features.items():
        if feature.get("dtype") == "image":
            hint = "Turn it into one of ours with robolearn dataset import"
            raise BadInput(f"data set {dataset.path}", got=f"{name} inside the tables", expected="videos", hint=hint)
    return interface_of(dataset.info, what=f"data set {dataset.path}")


def source_of(dataset: Dataset, episodes: Sequence[int] | None = None) -> EpisodeSource:
    """`episodes` (default all) of `dataset`, in that order."""
    chosen = range(dataset.episodes) if episodes is None else dataset.check_episodes(episodes)
    stamps = stamps_of(dataset.episode(0))
    interface = interface_with_images(dataset)
    return EpisodeSource(interface, drafts(dataset, chosen), len(chosen), stamps, outcomes=dataset.outcomes)


def drafts(dataset: Dataset, episodes: Sequence[int] | None = None) -> Iterator[EpisodeDraft]:
    """`episodes` (default all) of `dataset`, one by one."""
    parts = segments_of(dataset.path, dataset.info)
    segments = {key: parts[name] for key, name in names_of(dataset.info).items() if name in parts}
    for index in range(dataset.episodes) if episodes is None else episodes:
        episode = dataset.episode(index)
        numbers = {key: values for key, values in episode.observation.items() if key not in segments}
        images = {key: parts[index] for key, parts in segments.items()}
        yield EpisodeDraft(replace(episode, observation=numbers), images, f"episode {index} of {dataset.path}")


def video_features(info: Mapping[str, Any]) -> list[str]:
    """The features that are stored as video."""
    return [name for name, feature in info["features"].items() if feature.get("dtype") == "video"]


def segments_of(root: Path | RemotePath, info: Mapping[str, Any]) -> dict[str, list[VideoSegment]]:
    """Video feature → where each episode's images lie, by the rows of ``meta/episodes``."""
    cameras = video_features(info)
    if not cameras:
        return {}
    columns, optional = ["episode_index", "length"], []
    for name in cameras:
        columns += [f"videos/{name}/{part}" for part in ("chunk_index", "file_index", "from_timestamp")]
        optional += [f"stats/{name}/{statistic}" for statistic in STATISTICS]
    tables = []
    for file, table in episode_files(root, info, columns + optional):
        lacking = [column for column in columns if column not in table.column_names]
        if lacking:
            raise BadInput(f"data set {root}: {file}", got=f"no column {lacking[0]!r}", expected="it")
        tables.append(table)
    rows = pa.concat_tables(tables, promote_options="default")
    rows = rows.filter(
        layout.less(rows["episode_index"], int(info["total_episodes"]), f"data set {root}: meta/episodes")
    ).to_pylist()
    pattern = str(info.get("video_path") or layout.VIDEO_PATH)
    return {
        name: [
            VideoSegment(
                root
                / pattern.format(
                    video_key=name,
                    chunk_index=row[f"videos/{name}/chunk_index"],
                    file_index=row[f"videos/{name}/file_index"],
                ),
                row["length"],
                float(info["fps"]),
                float(row[f"videos/{name}/from_timestamp"]),
                stats=_stats(row, name),
                name=f"episode {row['episode_index']}, {key_of(name)}",
            )
            for row in rows
        ]
        for name in cameras
    }


def _stats(row: Mapping[str, Any], feature: str) -> Stats | None:
    """The statistics of the pixels that a row of ``meta/episodes`` gives, statistic → (3,)."""
    stored = {name: row.get(f"stats/{feature}/{name}") for name in STATISTICS}
    if any(value is None for value in stored.values()):
        return None
    try:
        stats = {k: np.asarray(v, np.int64 if k == "count" else np.float64).reshape(-1) for k, v in stored.items()}
    except (TypeError, ValueError):
        return None
    return stats if all(len(value) == (1 if key == "count" else 3) for key, value in stats.items()) else None
