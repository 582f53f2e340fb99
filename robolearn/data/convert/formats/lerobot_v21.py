"""LeRobotDataset v2.0 and v2.1: a parquet file per episode, an mp4 per episode and camera, and JSON lines.

    meta/info.json  meta/tasks.jsonl  meta/episodes.jsonl  meta/episodes_stats.jsonl (v2.1)  meta/stats.json (v2.0)
    data/chunk-000/episode_000000.parquet
    videos/chunk-000/<feature>/episode_000000.mp4

Columns are those of v3.0. Videos are taken over as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robolearn.data.convert.formats.config import FormatConfig, exported
from robolearn.data.convert.formats.lerobot_v30 import OPTIONS, TASK_HINT, EpisodeRows, plan, version
from robolearn.data.convert.options import ReadOptions
from robolearn.data.convert.source import EpisodeSource, Progress, new_folder, segments_of, video_config, write_video
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import (
    INDEX,
    INTERFACE_KEY,
    INTERVENTION,
    OUTCOME,
    SUCCESS,
    key_of,
    names_of,
    scalar,
    stamp_column,
    text_names,
)
from robolearn.data.lerobot.layout import V2, check_patterns
from robolearn.data.lerobot.statistics import describe, describe_frames
from robolearn.data.lerobot.tables import frame_columns
from robolearn.data.lerobot.texts import EVERYTHING, texts_in
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.container import facts
from robolearn.data.video.readers import PictureCells
from robolearn.data.video.segments import VideoSegment, frames

CHUNK = 1000  # episodes per chunk folder
DATA = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
VIDEO = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
STATISTICS = ("min", "max", "mean", "std", "count")  # v2.1 has no quantiles


def here(path: Path) -> bool:
    return version(path).startswith("v2.")


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The episodes of the folder `path`. Raises `BadInput`: not such a set, a missing or damaged file, or counts that
    do not add up."""
    info = layout.read_info(path)
    what = f"data set {path}"
    if not str(info["codebase_version"]).startswith("v2."):
        raise BadInput(what, got=f"format {info['codebase_version']}", expected="v2.1 or v2.0")
    check_patterns(info, f"{what}: {layout.INFO_PATH}", V2)
    count = int(info["total_episodes"])
    if not count:
        raise BadInput(what, got="no episodes", expected="at least one")
    broken: list[str] = []
    lengths = {
        row["episode_index"]: row["length"]
        for row in _lines(path, "meta/episodes.jsonl", "episode_index", "length", broken=broken)
    }
    words = [] if options.task else _lines(path, "meta/tasks.jsonl", "task_index", "task")
    tasks = {int(row["task_index"]): str(row["task"]) for row in words}
    if strange := [index for index in lengths if index not in range(count)]:
        expected = f"episodes 0 to {count - 1}"
        raise BadInput(f"{what}: meta/episodes.jsonl", got=f"episode {strange[0]!r}", expected=expected)
    size = int(info.get("chunks_size") or CHUNK)

    def name_of(pattern: str, index: int, **more: str) -> str:
        return pattern.format(episode_chunk=index // size, episode_index=index, **more)

    pattern = str(info.get("data_path") or DATA)
    texts = texts_in(path, (name_of(pattern, index) for index in range(count)), text_names(info["features"]))
    chosen = plan(info, what, options, texts)

    def table(index: int, columns: list[str]) -> EpisodeRows:
        name = name_of(pattern, index)
        if index not in lengths:
            got = "no line in meta/episodes.jsonl" + (f" that can be read ({'; '.join(broken)})" if broken else "")
            raise BadInput(f"{what}: episode {index}", got=got, expected="one")
        rows = layout.read_parquet(path, name, columns)
        if rows.num_rows != lengths[index]:
            expected = f"{lengths[index]} by meta/episodes.jsonl"
            raise BadInput(f"{what}: {name}", got=f"{rows.num_rows} frames", expected=expected)

        def pictures(column: str) -> Iterator[bytes]:
            return PictureCells(path, name, column).at(range(rows.num_rows))

        return EpisodeRows(f"{what}: episode {index} ({name})", rows, pictures)

    def video(index: int, key: str, feature: str, length: int) -> VideoSegment:
        file = path / name_of(str(info.get("video_path") or VIDEO), index, video_key=feature)
        return VideoSegment(file, length, float(info["fps"]), name=f"episode {index}, {key}")

    names = [f"{what}: episode {index}" for index in range(count)]
    return chosen.source(info, names, table, video, tasks, options)


def write(dataset: Dataset, out: Path, progress: Progress | None = None, *, robot: str = "") -> None:
    """Write `dataset` as a set of v2.1 into the new folder `out`, actions in the units that they were imported in."""
    import pyarrow as pa

    interface, drafts = exported(dataset, progress)
    features = _features(dataset, interface)
    names = names_of(dataset.info)
    keys = {name: key for key, name in names.items()}
    segments = {name: parts for name, parts in segments_of(dataset.path, dataset.info).items() if name in keys}
    config = video_config(parts[0] for parts in segments.values())
    with new_folder(out) as part:
        first, episode_lines, stats_lines = 0, [], []
        video_facts: dict[str, dict[str, Any]] = {}
        for index, one in enumerate(drafts):
            episode, length = one.episode, len(one)
            columns = frame_columns(episode, interface, tuple(episode.stamps), index, first, dataset.tasks)
            # Where another maker named a column otherwise it keeps that name.
            columns = {names.get(key_of(c), c) if c.startswith("observation.") else c: v for c, v in columns.items()}
            columns = {name: values for name, values in columns.items() if name in features}
            arrays = {name: _column(columns[name], features[name]["dtype"]) for name in features if name in columns}
            where = {"episode_chunk": index // CHUNK, "episode_index": index}
            _put(part / DATA.format(**where), layout.parquet_bytes(pa.table(arrays)))
            for feature, parts in segments.items():
                video = part / VIDEO.format(**where, video_key=feature)
                video.parent.mkdir(parents=True, exist_ok=True)
                write_video(parts[index], video, keys[feature], interface, config)
                video_facts.setdefault(feature, facts(video))
            tasks = list(dict.fromkeys(episode.frame_tasks or (episode.task,)))
            episode_lines.append({"episode_index": index, "tasks": tasks, "length": length})
            numbers = {name: values for name, values in columns.items() if values.dtype.kind != "O"}  # text has none
            stats = {name: _plain(describe(np.reshape(values, (length, -1)))) for name, values in numbers.items()}
            stats |= {feature: _image_stats(parts[index]) for feature, parts in segments.items()}
            stats_lines.append({"episode_index": index, "stats": stats})
            first += length
        for feature, known in video_facts.items():
            features[feature] = {**features[feature], "info": known}
        _put_lines(part / "meta/tasks.jsonl", [{"task_index": i, "task": t} for i, t in enumerate(dataset.tasks)])
        _put_lines(part / "meta/episodes.jsonl", episode_lines)
        _put_lines(part / "meta/episodes_stats.jsonl", stats_lines)
        info = {
            "codebase_version": "v2.1",
            "robot_type": interface.embodiment,
            "total_episodes": dataset.episodes,
            "total_frames": first,
            "total_tasks": len(dataset.tasks),
            "total_videos": dataset.episodes * len(segments),
            "total_chunks": -(-dataset.episodes // CHUNK),
            "chunks_size": CHUNK,
            "fps": dataset.info["fps"],
            "splits": {"train": f"0:{dataset.episodes}"},
            "data_path": DATA,
            "video_path": VIDEO if segments else None,
            "features": features,
            INTERFACE_KEY: interface.to_json(),
        }
        _put(part / "meta/info.json", layout.json_bytes(info, indent=4))


def _features(dataset: Dataset, interface: Interface) -> dict[str, dict[str, Any]]:
    """LeRobot's features of what is written: those of the set, and what an episode of ours always has."""
    lacking = {**OUTCOME, **INDEX}
    if not dataset.outcomes:
        del lacking[SUCCESS]
    lacking[INTERVENTION] = scalar("bool")
    lacking |= {stamp_column(name): scalar("float64") for name in dataset.stamps}
    written = {*names_of(dataset.info).values(), *dataset.texts.names, "action", *lacking}
    features = {k: dict(v) for k, v in dataset.features.items() if k in written}
    features |= {k: v for k, v in lacking.items() if k not in dataset.features}
    features["action"]["info"] = {INTERFACE_KEY: interface.to_json()}
    return features


def _column(values: NDArray, dtype: str) -> Any:
    """A plain column for one component, fixed_size_list otherwise."""
    import pyarrow as pa

    if dtype == "string":
        return pa.array(values, pa.string())
    flat = np.ascontiguousarray(values.reshape(len(values), -1), dtype=dtype)
    array = pa.array(flat.reshape(-1))
    return array if flat.shape[1] == 1 else pa.FixedSizeListArray.from_arrays(array, flat.shape[1])


def _plain(stats: Mapping[str, NDArray]) -> dict[str, Any]:
    return {name: stats[name].tolist() for name in STATISTICS}


def _image_stats(segment: VideoSegment) -> dict[str, Any]:
    """Per channel, in [0, 1] and of shape (3, 1, 1)."""
    stats = segment.stats or describe_frames(frames(segment))
    shaped = {name: stats[name].reshape(3, 1, 1).tolist() for name in STATISTICS if name != "count"}
    return {**shaped, "count": stats["count"].tolist()}


def _lines(path: Path, name: str, *keys: str, broken: list[str] | None = None) -> list[dict[str, Any]]:
    """`keys` of every line of a file; a line that has them not is refused, or else noted in `broken`."""
    what, hint = f"data set {path}: {name}", TASK_HINT if "task" in keys else ""
    try:
        text = (path / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(what, got=f"unreadable ({error})", expected="JSON lines", hint=hint) from None
    rows = []
    for number, line in enumerate(text.split("\n"), 1):  # no other end of a line: JSON may hold them
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            rows.append({key: row[key] for key in keys})
        except (ValueError, KeyError, TypeError) as error:
            wrong = BadInput(f"{what}, line {number}", got=f"{error!r}", expected=" and ".join(keys))
            if broken is None:
                raise wrong from None
            broken.append(str(wrong))
    return rows


def _put_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    _put(path, b"".join(layout.json_bytes(row) + b"\n" for row in rows))


def _put(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


FORMAT = FormatConfig(
    "lerobot-v2.1",
    "LeRobotDataset v2.0 and v2.1: a parquet file and an mp4 per episode",
    here,
    read,
    write,
    options=OPTIONS,
    texts=EVERYTHING,
)
