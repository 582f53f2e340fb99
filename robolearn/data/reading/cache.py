"""The frame cache: every picture of a camera, decoded once and kept packed, a file for each episode.

    <cache>/frames/<2 digits>/<identity>   the pictures of an episode; see packed_episodes.py
    <cache>/fingerprints.jsonl             digests of the files that they come from; see fingerprints.py

The identity of an episode is what its pictures are decoded from: the content of the video, where in it the episode
begins, at what rate its frames are placed. A data set that was moved, copied or edited finds its pictures again, one
that has grown decodes what is new, and where the rate was corrected everything is. A file that was cut short or
changed is made anew. One process at a time builds (a file lock); a killed one leaves whole episodes.

Training reads pictures at random. Where memory has room for all of them they are unpacked into it once; otherwise
each is read from the disk and unpacked when it is wanted, those of a batch side by side.

The folder is ``~/.cache/robolearn`` (under XDG_CACHE_HOME where that is set). ``ROBOLEARN_CACHE`` names another one,
``beside`` puts it into the data set's own folder, ``off`` decodes on demand instead. It may be deleted at any time.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robolearn.core import RobolearnError
from robolearn.core.cpus import available_cpus
from robolearn.core.memory import available_memory
from robolearn.data.lerobot.remote import RemotePath, is_remote, remote_path
from robolearn.data.reading.ondemand import OnDemand
from robolearn.data.reading.packed_episodes import is_whole, read_pictures, write_episode
from robolearn.data.video.packing import unpack
from robolearn.data.video.readers import FrameReader
from robolearn.io.locks import Lock, LockHeld

log = logging.getLogger(__name__)

VARIABLE = "ROBOLEARN_CACHE"
MEMORY_SHARE = 0.5  # of the memory that is left, at most, is filled with the frames of a camera
SAMPLES = 4  # pictures that are packed to say how large the cache will be

Progress = Callable[[int, int], None]
"""Called with (frames done, frames in all)."""


def cache_folder(root: Path | RemotePath, choice: str | Path | bool | None = None) -> Path | None:
    """Where the frames of the data set `root` go, or None for nowhere; ``beside`` a server's is the usual folder.

    Args:
      choice: a folder, ``"beside"``, ``"off"`` or False; None or True for the environment's.
    """
    if choice is None or choice is True:
        choice = os.environ.get(VARIABLE) or usual_folder()
    if choice is False or choice == "off":
        return None
    if choice == "beside":
        return usual_folder() if isinstance(root, RemotePath) else root / ".cache"
    return Path(choice).expanduser()


def usual_folder() -> Path:
    """Where a cache goes unless something else is said."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "robolearn"


def place_of(path: str | Path, choice: str | Path | bool | None = None) -> Path | RemotePath:
    """The data set `path`, a folder or an address; what is read of an address is kept in the folder of `choice`, which
    `cache_folder` explains, or where that is none or the set's own in `usual_folder`."""
    if not is_remote(path):
        return Path(path)
    given = choice if isinstance(choice, str | Path) else os.environ.get(VARIABLE)
    own = given in (None, "", "beside", "off")
    return remote_path(str(path), usual_folder() if own else Path(str(given)).expanduser())


def cached_frames(reader: FrameReader, folder: Path, progress: Progress | None = None) -> NDArray[np.uint8] | OnDemand:
    """The frames (N, H, W, 3) of `reader`: in memory, or what looks like it where memory has no room for them.

    What is missing in the cache `folder` is decoded first.

    Raises:
      BadInput: a video that cannot be read.
      RobolearnError: the disk is full, or too small.
    """
    cached = _Cached(reader, folder)
    lacking = cached.lacking()
    total = int(reader.lengths.sum())
    if lacking:
        try:
            with _locked(cached.paths[0].with_suffix(".lock")):
                lacking = cached.lacking()
                _build(cached, lacking, progress)
        except OSError as error:
            hint = f"{VARIABLE}=FOLDER moves it, {VARIABLE}=off does without"
            raise RobolearnError(f"frame cache {folder} cannot be written ({error.strerror}). {hint}") from error
    elif progress is not None:
        progress(total, total)
    size = total * int(np.prod(reader.shape))
    room = int(MEMORY_SHARE * available_memory() / int(os.environ.get("LOCAL_WORLD_SIZE") or 1))
    if size > room:
        what = "frame cache of %s: %.0f MB, memory has room for %.0f MB: pictures are unpacked when they are read"
        log.info(what, reader.key, size / 1e6, room / 1e6)
        return OnDemand(cached, near=1)
    frames = np.empty((total, *reader.shape), np.uint8)
    starts = np.concatenate([[0], np.cumsum(reader.lengths)]).astype(np.int64)

    def unpack_episode(episode: int) -> None:
        cached.into(frames[starts[episode] : starts[episode + 1]], episode)

    with ThreadPoolExecutor(available_cpus()) as pool:
        for _ in pool.map(unpack_episode, range(len(reader.lengths))):
            pass
    return frames


class _Cached:
    """The pictures of `reader` from the cache `folder`, and from itself where a file does not hold what it should."""

    def __init__(self, reader: FrameReader, folder: Path) -> None:
        self.reader = reader
        self.shape, self.lengths = reader.shape, reader.lengths
        identities = [reader.identity(e) for e in range(len(reader.lengths))]
        self.paths = [folder / "frames" / identity[:2] / identity for identity in identities]

    def lacking(self) -> list[int]:
        """The episodes that have no whole file, each file once: episodes may be equal."""
        own = {path: e for e, path in enumerate(self.paths)}
        return [e for path, e in own.items() if not is_whole(path, int(self.lengths[e]))]

    def decode(self, episode: int, first: int = 0, count: int | None = None) -> NDArray[np.uint8]:
        """Frames `first` … of `episode` (count, H, W, 3)."""
        frames = np.empty((int(self.lengths[episode]) - first if count is None else count, *self.shape), np.uint8)
        self.into(frames, episode, first)
        return frames

    def into(self, frames: NDArray[np.uint8], episode: int, first: int = 0) -> None:
        """Fill `frames` (n, H, W, 3) with those of `episode` from `first` on."""
        try:
            for i, packed in enumerate(read_pictures(self.paths[episode], first, len(frames))):
                frames[i] = unpack(packed, self.shape)
        except (OSError, ValueError) as error:
            log.warning("frame cache: %s is damaged (%s), it will be made anew", self.paths[episode], error)
            self.paths[episode].unlink(missing_ok=True)
            frames[:] = self.reader.decode(episode, first, len(frames))


def _build(cached: _Cached, lacking: list[int], progress: Progress | None) -> None:
    """Decode the episodes `lacking`, several side by side."""
    reader = cached.reader
    total = int(reader.lengths.sum())
    count = total - int(reader.lengths[lacking].sum())
    if progress is not None:
        progress(count, total)
    if not lacking:
        return
    begun = time.monotonic()
    _announce(cached, lacking)

    def decode(episode: int) -> int:
        path, length = cached.paths[episode], int(reader.lengths[episode])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_episode(path, reader.packed(episode), length)
        return length

    pool = ThreadPoolExecutor(min(available_cpus(), len(lacking)))
    try:
        for future in as_completed([pool.submit(decode, episode) for episode in lacking]):
            count += future.result()
            if progress is not None:
                progress(count, total)
    finally:
        pool.shutdown(cancel_futures=True)
    log.info("frame cache of %s: built in %.1f s", reader.key, time.monotonic() - begun)


def _announce(cached: _Cached, lacking: list[int]) -> None:
    """Say how large the files and the frames in memory will be, and refuse a disk that is too small.

    Some pictures of the first episode show how large a packed one is.
    """
    reader, folder = cached.reader, cached.paths[0].parent.parent
    sizes = [len(picture) for picture in itertools.islice(reader.packed(lacking[0]), SAMPLES)]
    missing, total = int(reader.lengths[lacking].sum()), int(reader.lengths.sum())
    size, free = sum(sizes) / len(sizes) * missing, shutil.disk_usage(folder).free
    in_memory = total * int(np.prod(cached.shape))
    what = "frame cache of %s: %d pictures to decode, about %.1f MB in %s; %.1f MB in memory for training"
    log.info(what, reader.key, missing, size / 1e6, folder, in_memory / 1e6)
    if size > free:
        got = f"it needs about {size / 1e6:.1f} MB, {free / 1e6:.1f} MB are free"
        hint = f"{VARIABLE}=FOLDER moves it, {VARIABLE}=off does without"
        raise RobolearnError(f"frame cache {folder}: {got}. {hint}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One builder at a time; the others wait here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = Lock(path)
    except LockHeld as held:
        log.info("frame cache %s: process %s builds it, waiting", path.parent.parent, held.holder)
        lock = Lock(path, math.inf)
    with lock:
        yield
