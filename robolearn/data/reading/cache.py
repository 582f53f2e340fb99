"""The frame cache: every picture of a camera, decoded once and kept packed, a file for each episode.

    <cache>/frames/<2 digits>/<identity>   magic (8 bytes) · T uint32 · where the pictures begin, and the end (T + 1)
                                           uint64 · T pictures, each packed for itself
    <cache>/fingerprints.jsonl             digests of the files that they come from; see `robolearn.data.video.readers`

The identity of an episode is what its pictures are decoded from: the content of the video, the episode's place in it,
the rate at which frames are placed. A data set that was moved, copied or edited finds its pictures again; one that has
grown decodes only what is new; a corrected rate decodes everything. A file that was cut short or changed is made anew.
One process at a time builds (a file lock); a killed one leaves whole episodes.

Training reads pictures at random. Where memory has room for all of them they are unpacked into it once; otherwise
each is read from the disk and unpacked on demand, those of a batch side by side.

The folder is ``~/.cache/robolearn`` (under XDG_CACHE_HOME where that is set). ``ROBOLEARN_CACHE`` names another one,
``beside`` puts it into the data set's own folder, ``off`` decodes on demand instead. It may be deleted at any time.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robolearn.core import RobolearnError
from robolearn.core.machine import available_cpus, available_memory
from robolearn.data.lerobot.remote import RemotePath, is_remote, remote_path
from robolearn.data.video.packing import unpack
from robolearn.data.video.readers import FrameReader
from robolearn.io.locks import Lock, LockHeld
from robolearn.io.paths import user_cache

log = logging.getLogger(__name__)

VARIABLE = "ROBOLEARN_CACHE"
MEMORY_SHARE = 0.5  # of the memory that is left, at most, is filled with the frames of a camera
SAMPLES = 4  # pictures that are packed to say how large the cache will be
LEFT_OVER_S = 3600.0  # a part that nothing was written to for so long is that of a killed builder

Progress = Callable[[int, int], None]
"""Called with (frames done, frames in all)."""


def cache_folder(root: Path | RemotePath, choice: str | Path | bool | None = None) -> Path | None:
    """The folder for the frames of the data set `root`, or None for none; ``beside`` a server's is the usual folder.
    `choice`: a folder, ``"beside"``, ``"off"`` or False; None or True for the environment's."""
    if choice is None or choice is True:
        choice = os.environ.get(VARIABLE) or user_cache()
    if choice is False or choice == "off":
        return None
    if choice == "beside":
        return user_cache() if isinstance(root, RemotePath) else root / ".cache"
    return Path(choice).expanduser()


def place_of(path: str | Path, choice: str | Path | bool | None = None) -> Path | RemotePath:
    """The data set `path`, a folder or an address; what is read of an address is kept in the folder of `choice`, which
    `cache_folder` explains, or where that is none or the set's own in `user_cache`."""
    if not is_remote(path):
        return Path(path)
    given = choice if isinstance(choice, str | Path) else os.environ.get(VARIABLE)
    own = given in (None, "", "beside", "off")
    return remote_path(str(path), user_cache() if own else Path(str(given)).expanduser())


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
    report = progress or (lambda done, total: None)
    report(count, total)
    if not lacking:
        return
    begun = time.monotonic()
    _remove_left_over(cached.paths[0].parent.parent)
    _announce(cached, lacking)

    def decode(episode: int) -> int:
        return write_episode(cached.paths[episode], reader.packed(episode), int(reader.lengths[episode]))

    pool = ThreadPoolExecutor(min(available_cpus(), len(lacking)))
    try:
        for future in as_completed([pool.submit(decode, episode) for episode in lacking]):
            count += future.result()
            report(count, total)
    finally:
        pool.shutdown(cancel_futures=True)
    log.info("frame cache of %s: built in %.1f s", reader.key, time.monotonic() - begun)


def _remove_left_over(folder: Path) -> None:
    """Remove the parts of builders that were killed; one that lives writes to its own all the time."""
    for part in folder.glob("*/*.tmp"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > LEFT_OVER_S:
                part.unlink()


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


MAGIC = b"RLPICS01"
_COUNT = struct.Struct("<8sI")


def write_episode(path: Path, pictures: Iterable[bytes], length: int) -> int:
    """Write `length` pictures to `path`, whole or not at all; returns their number.

    It is not brought to the disk here: what a power cut tears is found to be torn.
    """
    places = [_COUNT.size + 8 * (length + 1)]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(part, "wb") as file:
            file.seek(places[0])
            for picture in pictures:
                file.write(picture)
                places.append(places[-1] + len(picture))
            file.seek(0)
            file.write(_COUNT.pack(MAGIC, length) + np.array(places, "<u8").tobytes())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return length


def is_whole(path: Path, length: int) -> bool:
    """True where `path` holds `length` pictures, by its head and its size."""
    try:
        with open(path, "rb") as file:
            head = file.read(_COUNT.size + 8 * (length + 1))
            return _places(head, length, os.fstat(file.fileno()).st_size) is not None
    except OSError:
        return False


def read_pictures(path: Path, first: int, count: int) -> list[memoryview]:
    """Pictures `first` … of a file that was whole when it was looked at; raises `OSError` and `ValueError`.

    Nothing is kept open or mapped: a set may have more files than a process may open, and of a file larger than memory
    the system reads no more than is asked for.
    """
    with open(path, "rb", buffering=0) as file:
        head = os.pread(file.fileno(), 8 * (count + 1), _COUNT.size + 8 * first)
        places = [int(place) for place in np.frombuffer(head, "<u8")]
        size = os.fstat(file.fileno()).st_size
        if len(places) != count + 1 or places != sorted(places) or places[-1] > size:
            raise ValueError("not a whole file")
        content = memoryview(os.pread(file.fileno(), places[-1] - places[0], places[0]))
    ends = [place - places[0] for place in places]
    return [content[begin:end] for begin, end in itertools.pairwise(ends)]


def _places(head: bytes, length: int, size: int) -> NDArray[np.uint64] | None:
    if len(head) < _COUNT.size + 8 * (length + 1) or _COUNT.unpack_from(head) != (MAGIC, length):
        return None
    places = np.frombuffer(head, "<u8", length + 1, _COUNT.size)
    # Unsigned differences of places out of order are huge.
    return places if int(places[-1]) == size and (np.diff(places) < size).all() else None


NEAR = 8  # frames between two that are wanted are decoded, too, rather than looked for anew


class OnDemand:
    """Looks like the array (N, H, W, 3) of a camera's frames: `len`, `shape`, `dtype`, and indexing by the first axis.

    Nothing is kept: every access decodes, what lies apart on all CPUs side by side.

    Args:
      near: frames that are no further apart than this are decoded in one go, with those between them.
    """

    def __init__(self, reader: FrameReader | _Cached, near: int = NEAR) -> None:
        self._reader, self._near = reader, near
        self._starts = np.concatenate([[0], np.cumsum(reader.lengths)])
        self.shape: tuple[int, ...] = (int(self._starts[-1]), *reader.shape)
        self.dtype = np.dtype(np.uint8)
        self._pool = ThreadPoolExecutor(available_cpus(), "pictures")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice | NDArray | list[int]) -> NDArray[np.uint8]:
        chosen = np.arange(len(self))[rows]
        return self.take(chosen.reshape(-1)).reshape(*chosen.shape, *self.shape[1:])

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> NDArray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Frames `rows` (n,) → (n, H, W, 3)."""
        wanted, where = np.unique(rows, return_inverse=True)
        frames = np.empty((len(wanted), *self.shape[1:]), np.uint8)
        episode = np.searchsorted(self._starts, wanted, side="right") - 1
        breaks = np.flatnonzero((np.diff(episode) > 0) | (np.diff(wanted) > self._near)) + 1
        runs = [run for run in np.split(np.arange(len(wanted)), breaks) if len(run)]

        def decode(run: NDArray[np.int64]) -> None:
            own = int(episode[run[0]])
            local = wanted[run] - self._starts[own]
            got = self._reader.decode(own, int(local[0]), int(local[-1] - local[0] + 1))
            frames[run] = got[local - local[0]]

        for _ in self._pool.map(decode, runs) if len(runs) > 1 else map(decode, runs):
            pass
        return frames[where]


class LazyObservation(Mapping[str, NDArray]):
    """Feature → array, some of which are made when they are first asked for."""

    def __init__(self, ready: Mapping[str, NDArray], made: Mapping[str, Callable[[], NDArray]]) -> None:
        self._ready, self._made = dict(ready), dict(made)

    def __getitem__(self, key: str) -> NDArray:
        if key not in self._ready and key in self._made:
            self._ready[key] = self._made[key]()
        return self._ready[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._ready.keys() - self._made.keys()
        yield from self._made

    def __len__(self) -> int:
        return len(self._ready.keys() | self._made.keys())
