"""Episodes on their way into a new data set, from wherever they come: another set, another format, an edit.

An `EpisodeSource` hands out one `EpisodeDraft` after the other, numbers in memory and images as segments that are
decoded when they are needed, so the size of a set does not matter. `write_dataset` writes them all into a new folder,
or nothing.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from robolearn.core import BadInput, Episode, Interface, RobolearnError
from robolearn.core.machine import available_cpus
from robolearn.data.convert.options import SKIP_HINT, Account, skipped
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.features import image_keys, interface_of, key_of, names_of, observed
from robolearn.data.lerobot.remote import RemotePath
from robolearn.data.lerobot.statistics import Stats, describe_frames
from robolearn.data.lerobot.tables import STATISTICS
from robolearn.data.reading.loading import episode_files
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.container import facts, size_of
from robolearn.data.video.encoder import EpisodeVideo, VideoConfig, VideoEncoder
from robolearn.data.video.segments import Images, VideoSegment, copy_stream, frames
from robolearn.data.writing.steps import picture
from robolearn.data.writing.uncommitted import INNER, note_together, part_of
from robolearn.data.writing.writer import EpisodeWriter
from robolearn.io.atomic import place_folder, remove, sync_tree

log = logging.getLogger(__name__)

WAITING = 16 << 20  # bytes of pictures that may wait for an encoder

Progress = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class EpisodeDraft:
    """One episode to be stored.

    Attributes:
      episode: its numbers; `episode.observation` holds the vectors only.
      images: ``images.<camera>`` → T images.
      name: what it is called where it comes from, for messages, e.g. ``"demo_7"``.
    """

    episode: Episode
    images: Mapping[str, Images] = field(default_factory=dict)
    name: str = ""

    def __len__(self) -> int:
        return len(self.episode)


@dataclass(frozen=True)
class EpisodeSource:
    """Episodes to be stored.

    Attributes:
      interface: of all of them, images included; actions are in [-1, 1].
      drafts: gone through once.
      count: how many they are.
      stamps: the names of the raw timestamps that every episode has.
      account: of what was read, left out and changed; it grows while drafts are gone through.
      outcomes: whether their successes are recorded.
      failures: whether their kinds of failure are.
      texts: the names of the features of text that every episode has.
      skips: whether an episode that cannot be stored is left out, and named in the account, instead of refused.
    """

    interface: Interface
    drafts: Iterable[EpisodeDraft]
    count: int
    stamps: tuple[str, ...] = ()
    account: Account = field(default_factory=Account)
    outcomes: bool = True
    failures: bool = False
    skips: bool = False
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """Counts of what `write_dataset` wrote."""

    episodes: int
    frames: int
    successes: int


def write_dataset(source: EpisodeSource, out: str | Path) -> Written:
    """Write `source` as a new LeRobotDataset v3.0 in the folder `out`; see `write_datasets`."""
    return write_datasets([source], [Path(out)], lambda _: None)[0]


def write_datasets(
    sources: Sequence[EpisodeSource], outs: Sequence[Path], progress: Callable[[int], Progress | None]
) -> list[Written]:
    """Write each of `sources` as a new LeRobotDataset v3.0 in the folder of `outs`: all of them, or nothing.

    Args:
      progress: what is called after each episode of the set of this number.

    Raises:
      BadInput: one of `outs` is there already, or an episode cannot be stored; it is named.
    """
    with ExitStack() as stack:
        parts = [stack.enter_context(new_folder(out, outs if len(outs) > 1 else ())) for out in outs]
        stored = [_fill(part, source, progress(i)) for i, (part, source) in enumerate(zip(parts, sources, strict=True))]
        for part in parts:  # all are on the disk before the first gets its name, so that little can come between
            sync_tree(part)
    return stored


def _fill(part: Path, source: EpisodeSource, progress: Progress | None) -> Written:
    """Write `source` into the empty folder `part`, which has a folder of its own."""
    successes = 0
    drafts = iter(source.drafts)
    first = next(drafts, None)
    if first is None:
        raise BadInput("data set", got="no episodes", expected="at least one", hint=_last(source.account))
    config = video_config(first.images.values())
    with EpisodeWriter(
        part,
        source.interface,
        stamps=source.stamps,
        video=config,
        outcomes=source.outcomes,
        failures=source.failures,
        texts=source.texts,
        durable=False,
    ) as writer:
        for draft in itertools.chain([first], drafts):
            name = draft.name or f"episode {writer.episodes}"
            try:
                _write(writer, draft, source, part.parent, config)
            except BadInput as error:
                if not source.skips:
                    raise BadInput(f"{name}: {error}", hint="" if error.hint else SKIP_HINT) from None
                source.account.left_out.append(f"{name}: {skipped(error)}")
                continue
            successes += draft.episode.success
            if progress is not None:
                progress(writer.episodes, {})
        if not writer.episodes:
            raise BadInput("data set", got="no episode that can be stored", expected="one", hint=_last(source.account))
        return Written(writer.episodes, writer.frames, successes)


def _last(account: Account) -> str:
    return account.left_out[-1] if account.left_out else ""


def _write(writer: EpisodeWriter, draft: EpisodeDraft, source: EpisodeSource, aside: Path, config: VideoConfig) -> None:
    """Store `draft`; its videos are made in the folder `aside`."""
    episode = draft.episode
    stamps = {name: episode.stamps[name] for name in source.stamps if name in episode.stamps}
    texts = {name: episode.texts[name] for name in source.texts if name in episode.texts}
    paths = {key: aside / f"{key}.mp4" for key in image_keys(writer.interface)}
    try:
        for key in paths:
            if key not in draft.images:
                raise BadInput(key, got="no images", expected=f"{len(episode)}", available=draft.images)

        def encoded(key: str) -> EpisodeVideo:
            return write_video(draft.images[key], paths[key], key, writer.interface, config)

        with ThreadPoolExecutor(available_cpus()) as pool:  # cameras beside each other
            videos = dict(zip(paths, pool.map(encoded, paths), strict=True))
        writer.take(replace(episode, stamps=stamps, texts=texts), videos)
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)


def video_config(pictures: Iterable[Images]) -> VideoConfig:
    """Encoding of images that cannot be copied: that of those that can, a quick one where there are only pictures.

    A frame of 128 × 128 takes less than half of AV1's processor time, at a smaller error and half as many bytes again.
    `pictures`: of one episode, those of each camera.
    """
    pictures = list(pictures)
    try:
        kinds = {facts(v.path)["video.codec"] for v in pictures if isinstance(v, VideoSegment)}
    except BadInput:
        kinds = set()  # raised again, with the episode, when it is written
    if not any(isinstance(images, VideoSegment) for images in pictures):
        return VideoConfig(codec="libx264", crf=20, preset="ultrafast", threads=1)
    return VideoConfig(codec="libx264", crf=23) if kinds == {"h264"} else VideoConfig()


def write_video(images: Images, path: Path, key: str, interface: Interface, config: VideoConfig) -> EpisodeVideo:
    """The images of feature `key` as an mp4 at `path`: copied where that can be, otherwise encoded."""
    spec, hz, again = interface.observation[key], interface.control_hz, False
    # Small pictures wait by the hundred: each time that reader and encoder wait for each other costs more than one.
    config = replace(config, queue=max(config.queue, WAITING // spec.size))
    if isinstance(images, VideoSegment) and images.whole:
        if (size := size_of(images.path)) != spec.shape[:2]:
            raise BadInput(f"video {images.path}", got=f"{size} pixels", expected=f"{spec.shape[:2]}")
        if copy_stream(images, path, hz):
            return EpisodeVideo(path, len(images), images.stats or describe_frames(frames(images)))
    while True:
        encoder = VideoEncoder(path, key, spec, hz, config)
        try:
            for t, image in enumerate(frames(images)):
                encoder.put(picture(image, spec, (), key, f" at frame {t}"))
            return encoder.finish()
        except BaseException as error:
            encoder.abort()
            if again or isinstance(error, BadInput) or not isinstance(error, RobolearnError):
                raise
            again = True  # of a hundred episodes one should not cost the others: encoders hang on a crowded machine
            log.warning("%s: these images are encoded once more", error)


@contextmanager
def new_folder(out: str | Path, together: Sequence[Path] = ()) -> Iterator[Path]:
    """A folder to fill, which takes the place `out` when all went well and disappears otherwise.

    Where `out` is a link, what it leads to is filled. A kill leaves it behind for `robolearn.data.writing.uncommitted`.

    Args:
      together: all the folders that are filled together with this one.

    Raises:
      BadInput: `out` is there already, no folder can be made there, or another process is filling it.
      RobolearnError: the filled folder cannot take its place; it is kept, and named.
    """
    check_new(out)
    out = Path(os.path.realpath(out))
    part = part_of(out)
    try:
        part.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {out}", got=error.strerror, expected="a place for a new folder") from None
    guard = layout.lock(part)  # free where a killed process left the folder behind
    kept = False
    try:
        for child in part.iterdir():
            if child.name != layout.LOCK_PATH:
                remove(child)
        inner = part / INNER
        inner.mkdir()
        if together:
            note_together(part, together)
        yield inner
        try:
            check_new(out)
            place_folder(inner, out)
        except (BadInput, OSError) as error:
            kept = True
            said = error if isinstance(error, BadInput) else f"--out {out}: {error.strerror}"
            raise RobolearnError(f"{said}. All is written, and kept in {inner}") from error
    finally:
        if not kept:
            shutil.rmtree(part, ignore_errors=True)
        guard.release()


def check_new(out: str | Path) -> None:
    """Raise `BadInput` where `out`, or what it leads to, is there and not an empty folder that can be replaced."""
    out = Path(out)
    if os.path.ismount(out):
        raise BadInput(f"--out {out}", got="a mount point", expected="a new folder", hint="Name a folder in it")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        what = "a file" if not out.is_dir() else "a folder with content"
        raise BadInput(f"--out {out}", got=what, expected="a new folder", hint="Nothing is overwritten")
    if not out.name or out.name == "..":
        raise BadInput("--out", got=out, expected="the name of a new folder")


def open_numbers(path: str | Path) -> Dataset:
    """The data set in `path` without its images."""
    return Dataset.open(path, images=False)


def interface_with_images(dataset: Dataset) -> Interface:
    """The interface of `dataset`, cameras included. Raises `BadInput`: images lie in its tables, not in videos: a set
    of another maker's."""
    for name, feature in dataset.features.items():
        if feature.get("dtype") == "image":
            hint = "Turn it into one of ours with robolearn dataset import"
            raise BadInput(f"data set {dataset.path}", got=f"{name} inside the tables", expected="videos", hint=hint)
    return interface_of(dataset.info, what=f"data set {dataset.path}")


def source_of(dataset: Dataset, episodes: Sequence[int] | None = None) -> EpisodeSource:
    """`episodes` (default all) of `dataset`, in that order."""
    chosen = range(dataset.episodes) if episodes is None else dataset.check_episodes(episodes)
    interface, stamps = interface_with_images(dataset), tuple(dataset.stamps)
    account = Account(left_out=[*observed(dataset.features)[1], *dataset.texts.left_out])
    return EpisodeSource(
        interface, drafts(dataset, chosen), len(chosen), stamps, account,
        outcomes=dataset.outcomes, failures=dataset.labels_failures, texts=dataset.texts.names,
    )  # fmt: skip


def drafts(dataset: Dataset, episodes: Sequence[int] | None = None) -> Iterator[EpisodeDraft]:
    """`episodes` (default all) of `dataset`, one by one."""
    parts = segments_of(dataset.path, dataset.info)
    segments = {key: parts[name] for key, name in names_of(dataset.info).items() if name in parts}
    for index in range(dataset.episodes) if episodes is None else episodes:
        episode = dataset.episode(index)
        numbers = {key: values for key, values in episode.observation.items() if key not in segments}
        images = {key: parts[index] for key, parts in segments.items()}
        final = dataset.final(index, numbers, images)
        episode = replace(episode, observation=numbers, final=final)
        yield EpisodeDraft(episode, images, f"episode {index} of {dataset.path}")


def segments_of(root: Path | RemotePath, info: Mapping[str, Any]) -> dict[str, dict[int, VideoSegment]]:
    """Video feature → number of an episode → where its images lie, by the rows of ``meta/episodes``."""
    cameras = [name for name, feature in info["features"].items() if feature.get("dtype") == "video"]
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
    count = int(info["total_episodes"])
    rows = layout.rows_of(rows, "less", count, f"data set {root}: meta/episodes").to_pylist()

    def segment(row: Mapping[str, Any], name: str) -> VideoSegment:
        path, begin = root / layout.file_of(info, row, name), layout.begin_of(row, name)
        words = f"episode {row['episode_index']}, {key_of(name)}"
        return VideoSegment(path, row["length"], float(info["fps"]), begin, stats=_stats(row, name), name=words)

    return {name: {row["episode_index"]: segment(row, name) for row in rows} for name in cameras}


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
