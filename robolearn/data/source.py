"""Episodes on their way into a new data set, from wherever they come: another set, another format, an edit.

A `Source` hands out one `Draft` after the other, numbers in memory and images as segments that are decoded when they
are needed, so the size of a set does not matter. `store` writes them all into a new folder, or nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from robolearn.core import BadInput, Episode, Interface
from robolearn.data import layout
from robolearn.data.segments import Images, frames
from robolearn.data.writer import EpisodeWriter

Progress = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class Draft:
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
class Source:
    """Episodes to be stored.

    Attributes:
      interface: of all of them, images included; actions are in [-1, 1].
      drafts: gone through once.
      count: how many they are.
      stamps: the names of the raw timestamps that every episode has.
      notes: what a user should know about how they were read, one sentence each.
    """

    interface: Interface
    drafts: Iterable[Draft]
    count: int
    stamps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stored:
    """What `store` wrote."""

    episodes: int
    frames: int
    successes: int


def store(source: Source, out: str | Path, *, progress: Progress | None = None) -> Stored:
    """Write `source` as a new LeRobotDataset v3.0 in the folder `out`: all of it, or nothing.

    Raises:
      BadInput: `out` is there already, or an episode cannot be stored; it is named.
    """
    successes = 0
    with new_folder(out) as part, EpisodeWriter(part, source.interface) as writer:
        for draft in source.drafts:
            name = draft.name or f"episode {writer.episodes}"
            try:
                _write(writer, draft)
            except BadInput as error:
                raise BadInput(f"{name}: {error}") from None
            successes += draft.episode.success
            if progress is not None:
                progress(writer.episodes, {})
        if not writer.episodes:
            raise BadInput(f"data set {out}", got="no episodes", expected="at least one")
        stored = Stored(writer.episodes, writer.frames, successes)
    return stored


def _write(writer: EpisodeWriter, draft: Draft) -> None:
    episode = draft.episode
    if not draft.images:
        writer.write(episode)
        return
    cameras = {key: frames(images) for key, images in draft.images.items()}
    try:
        for t in range(len(episode)):
            observation = {key: values[t] for key, values in episode.observation.items()}
            for key, images in cameras.items():
                image = next(images, None)
                if image is None:
                    raise BadInput(key, got=f"{t} images", expected=f"{len(episode)}")
                observation[key] = image
            writer.add(observation, episode.action[t], float(episode.reward[t]))
        writer.end(
            success=episode.success, terminated=episode.terminated, truncated=episode.truncated, task=episode.task
        )
    except BaseException:
        writer.discard()
        raise


@contextmanager
def new_folder(out: str | Path) -> Iterator[Path]:
    """A folder to fill, which takes the place `out` when all went well and disappears otherwise.

    Raises:
      BadInput: `out` is there already, or another process is filling it.
    """
    out = Path(out)
    check_new(out)
    part = out.with_name(f".{out.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    guard = layout.lock(part)  # held by nobody where a killed process left the folder behind
    try:
        for child in part.iterdir():
            if child.name != layout.LOCK_PATH:
                _remove(child)
        inner = part / "set"
        inner.mkdir()
        yield inner
        check_new(out)
        os.rename(inner, out)
        with contextlib.suppress(OSError):
            _sync(out.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        guard.close()


def check_new(out: str | Path) -> None:
    """Raise `BadInput` where `out` is there and not an empty folder."""
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        what = "a file" if not out.is_dir() else "a folder with content"
        raise BadInput(f"--out {out}", got=what, expected="a new folder", hint="Nothing is overwritten")
    if not out.name or out.name == "..":
        raise BadInput("--out", got=out, expected="the name of a new folder")


def concatenated(*sources: Source) -> Iterator[Draft]:
    """The drafts of all `sources`, one after the other."""
    for source in sources:
        yield from source.drafts


def stamps_of(episode: Episode) -> tuple[str, ...]:
    """The names of the raw timestamps of `episode`."""
    return tuple(getattr(episode, "stamps", {}) or {})


def finite(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
