"""The tables of a data set and its sampling weights, read and checked; inconsistencies are refused with their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.columns import clock_faults
from robolearn.data.lerobot.features import FAILURE, INTERVENTION, STAMP, image_keys, is_image, names_of, stored_dtype
from robolearn.data.lerobot.remote import RemotePath, first_missing
from robolearn.data.lerobot.statistics import Stats, describe_many
from robolearn.data.lerobot.tables import DATA_PLACE, array_of
from robolearn.data.video.readers import FrameReader, PictureReader, VideoReader

_EPISODE_COLUMNS = ["episode_index", "length", *DATA_PLACE]
_VIDEO_COLUMNS = ("chunk_index", "file_index", "from_timestamp")


def episodes_of(root: Path | RemotePath, info: Mapping[str, Any], interface: Interface) -> pa.Table:
    """The committed rows of ``meta/episodes``, checked."""
    what = f"data set {root}"
    wanted = list(_EPISODE_COLUMNS)
    for name in video_columns(info, interface):
        wanted += [f"videos/{name}/{key}" for key in _VIDEO_COLUMNS]
    count = int(info["total_episodes"])
    tables: list[pa.Table] = []
    for name, table in episode_files(root, info, wanted):
        lacking = [key for key in wanted if key not in table.column_names]
        if lacking:
            raise BadInput(f"{what}: {name}", got=f"no column {lacking[0]!r}", expected="it")
        holes = [key for key in wanted if table[key].null_count]
        if holes:
            raise BadInput(f"{what}: {name}, {holes[0]}", got="a null", expected="a value in every row")
        whole = [key for key in wanted if not key.endswith("from_timestamp")]
        tables.append(layout.whole_numbers(table.select(wanted), whole, f"{what}: {name}"))
    if not tables:
        raise BadInput(what, got="no meta/episodes/*/*.parquet", expected="a LeRobotDataset v3.0 folder")
    try:
        table = pa.concat_tables(tables)
    except pa.ArrowException as error:
        raise BadInput(f"{what}: meta/episodes", got=f"files that do not fit each other ({error})") from None
    # A writer that was killed may leave the row of an episode that was never committed.
    table = layout.rows_of(table, "less", count, f"{what}: meta/episodes").combine_chunks()
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


def frames_of(
    root: Path | RemotePath, info: Mapping[str, Any], episodes: pa.Table, interface: Interface, actions: bool = True
) -> dict[str, NDArray]:
    """Column → (N, …) for the committed frames. `actions`: whether they are stored."""
    what = f"data set {root}"
    names = names_of(info)
    specs = {names[key]: spec for key, spec in vectors(interface).items()}
    specs |= {"action": interface.action} if actions else {}
    plain = {"frame_index": "int64", "episode_index": "int64", "index": "int64", "task_index": "int64"}
    optional = {"next.reward": "float32", "next.success": "bool", "next.terminated": "bool", "next.truncated": "bool"}
    optional |= {INTERVENTION: "bool", FAILURE: "int64", "timestamp": "float64"} | {
        name: "float64" for name in info["features"] if name.startswith(STAMP)
    }
    wanted = {name: (spec, stored_dtype(spec.dtype)) for name, spec in specs.items()}
    wanted |= {name: (ArraySpec(()), kind) for name, kind in (plain | optional).items()}
    count = int(info["total_episodes"])
    parts: dict[str, list[NDArray]] = {}
    for name in dict.fromkeys(layout.file_of(info, row) for row in episodes.to_pylist()):
        table = layout.read_parquet(root, name, list(wanted))
        lacking = [key for key in wanted if key not in table.column_names and key not in optional]
        if lacking:
            found = table.column_names
            raise BadInput(f"{what}: {name}", got=f"no column {lacking[0]!r}", expected="it", available=found)
        table = layout.rows_of(table, "less", count, f"{what}: {name}")
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


def check_frames(
    root: Path | RemotePath,
    frames: Mapping[str, NDArray],
    lengths: NDArray[np.int64],
    starts: NDArray[np.int64],
    numbers: Sequence[str],
    fps: float,
) -> None:
    """Frames in order and on the grid of `fps` [Hz], and every one of the columns `numbers` finite."""
    total = int(lengths.sum())
    episode = np.repeat(np.arange(len(lengths)), lengths)
    frame = np.arange(total) - np.repeat(starts, lengths)

    def fail(row: int, name: str, got: Any, expected: Any, hint: str = "") -> None:
        where = f"data set {root}: episode {episode[row]}, frame {frame[row]}, {name}"
        raise BadInput(where, got=got, expected=expected, hint=hint)

    for name, expected in (("episode_index", episode), ("frame_index", frame), ("index", np.arange(total))):
        wrong = np.flatnonzero(frames[name] != expected)
        if len(wrong):
            fail(int(wrong[0]), name, int(frames[name][wrong[0]]), int(expected[wrong[0]]))
    for start, length in zip(starts, lengths, strict=True) if "timestamp" in frames else ():
        for fault in clock_faults(frames["timestamp"][start : start + length], fps):
            got, hint = f"{fault.check} ({fault.what})", "`robolearn dataset import` has --tolerance-s and --skip-bad"
            fail(int(start) + fault.first, "timestamp", got, f"frame / {fps:g} Hz", hint)
    for name in [*numbers, "next.reward"]:
        if name in frames and not np.isfinite(frames[name]).all():
            row = int(np.argwhere(~np.isfinite(frames[name]))[0][0])
            fail(row, name, "NaN or infinity", "finite numbers")


def stats_of(root: Path | RemotePath, numbers: Sequence[str], frames: Mapping[str, NDArray]) -> dict[str, Stats]:
    if (root / layout.STATS_PATH).exists():
        stored = layout.read_json(root, layout.STATS_PATH)
        try:
            kinds = {"count": np.int64}
            stats = {
                feature: {name: np.asarray(value, kinds.get(name, np.float64)) for name, value in part.items()}
                for feature, part in stored.items()
            }
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise BadInput(f"data set {root}: {layout.STATS_PATH}", got=f"unreadable statistics ({error})") from None
        if "action" in stats and np.array_equal(np.ravel(stats["action"].get("count", 0)), [len(frames["index"])]):
            return stats
    return describe_many({name: frames[name] for name in numbers})


def episode_files(
    root: Path | RemotePath, info: Mapping[str, Any], columns: list[str]
) -> Iterator[tuple[str, pa.Table]]:
    """The files of ``meta/episodes`` in order, each with its name and those of `columns` that it has.

    Of a server, which has no listing, they are read by number until they hold all episodes.
    """
    if isinstance(root, RemotePath):
        chunk = int(info.get("chunks_size") or layout.CHUNKS_SIZE)
        rows = number = 0
        while rows < int(info["total_episodes"]):
            name = layout.EPISODES_PATH.format(chunk_index=number // chunk, file_index=number % chunk)
            table = layout.read_parquet(root, name, columns)
            yield name, table
            rows, number = rows + table.num_rows, number + 1
    else:
        for name in layout.row_files(root):
            yield name, layout.read_parquet(root, name, columns)


def vectors(interface: Interface) -> dict[str, ArraySpec]:
    """The observation features that are no pictures."""
    return {key: spec for key, spec in interface.observation.items() if not is_image(spec)}


def video_columns(info: Mapping[str, Any], interface: Interface) -> list[str]:
    """The columns' names of those pictures of `interface` that are stored as videos."""
    named = names_of(info)
    names = [named[key] for key in image_keys(interface)]
    return [name for name in names if info["features"].get(name, {}).get("dtype") == "video"]


def readers_of(
    root: Path | RemotePath, info: Mapping[str, Any], episodes: pa.Table, interface: Interface, memo: Path | None = None
) -> dict[str, FrameReader]:
    """Picture feature → where its frames lie; the digests of their files are kept in the folder `memo`."""
    names, table, lengths = names_of(info), episodes.to_pylist(), episodes["length"].to_numpy().astype(np.int64)
    readers: dict[str, FrameReader] = {}
    for key in image_keys(interface):
        name, kind = names[key], info["features"].get(names[key], {}).get("dtype")
        paths = [layout.file_of(info, row, name if kind == "video" else "") for row in table]
        place = (root, key, interface.observation[key].shape, lengths, paths, memo)
        if kind == "video":
            if (path := first_missing(root, list(dict.fromkeys(paths)))) is not None:
                e = paths.index(path)
                raise BadInput(f"data set {root}, episode {e}", got=f"no {path}", expected="that file")
            begins = np.array([layout.begin_of(row, name) for row in table], np.float64)
            readers[key] = VideoReader(*place, begins, float(info["fps"]))
        elif kind == "image":
            first: dict[str, int] = {}
            starts = [row["dataset_from_index"] for row in table]
            rows = np.array([start - first.setdefault(path, start) for path, start in zip(paths, starts, strict=True)])
            readers[key] = PictureReader(*place, rows, name)
        else:
            raise BadInput(f"data set {root}: features", got=f"no {name!r}", expected="it", available=info["features"])
    return readers


def read_weights(root: Path | RemotePath, episodes: int) -> list[float] | None:
    """One weight ≥ 0 per episode of the data set `root`, or None where it has none. Raises `BadInput`: they are not
    that; the set may have grown since."""
    if not (root / layout.WEIGHTS_PATH).exists():
        return None
    weights = layout.read_json(root, layout.WEIGHTS_PATH).get("weights")
    return check_weights(weights, episodes, what=f"data set {root}: {layout.WEIGHTS_PATH}")


def write_weights(root: Path, weights: Sequence[float], episodes: int, made_by: str) -> None:
    """Replace the weights of the data set `root` of so many `episodes`; `made_by` names their origin."""
    checked = check_weights(list(weights), episodes, what="weights")
    commit = layout.commit(root)
    commit.stage(layout.WEIGHTS_PATH, layout.json_bytes({"weights": checked, "made_by": made_by}, indent=4))
    commit.publish()


def check_weights(weights: object, episodes: int, *, what: str) -> list[float]:
    """`weights` as floats, one for each episode, none negative and not all of them zero."""
    numbers = isinstance(weights, list) and all(isinstance(w, (int, float)) for w in weights)
    array = np.asarray(weights if numbers else [], np.float64)
    if array.shape != (episodes,):
        raise BadInput(what, got=f"{array.size} weights", expected=f"one for each of {episodes} episodes")
    if not np.isfinite(array).all() or array.min() < 0 or not array.sum():
        raise BadInput(what, got=weights, expected="finite numbers ≥ 0, one of them positive")
    return array.tolist()
