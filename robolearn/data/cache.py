"""The frame cache: every frame of a camera, decoded once, in one memory-mapped file of raw bytes.

    <cache>/frames/<family>/0.json     which episodes, by the identity of what they were decoded from
    <cache>/frames/<family>/0.u8       (N, H, W, 3) uint8
    <cache>/frames/<family>/0.done     one byte per episode, 1 once its frames are on the disk
    <cache>/fingerprints.jsonl         digests of the files that they come from; see fingerprints.py

Content decides, not paths: a data set that was moved or copied finds its frames again, one that has grown decodes
what is new, and one whose videos changed gets a file of its own. The family is the identity of the first episode.
One process at a time builds (a file lock); a killed one leaves whole episodes, and the next goes on from there.

The folder is ``~/.cache/robolearn`` (under XDG_CACHE_HOME where that is set). ``ROBOLEARN_CACHE`` names another one,
``beside`` puts it into the data set's own folder, ``off`` decodes on demand instead. It may be deleted at any time.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robolearn.core import RobolearnError
from robolearn.core.cpus import available_cpus
from robolearn.data.video_reader.readers import FrameReader
from robolearn.io.atomic import write_text
from robolearn.io.locks import Lock, LockHeld

log = logging.getLogger(__name__)

VARIABLE = "ROBOLEARN_CACHE"
SYNC_BYTES = 1 << 28  # frames are brought to the disk, and their episodes marked as done, this much at a time
BLOCK_BYTES = 1 << 24  # of decoded frames that a thread holds

_MADV_POPULATE_READ = 22  # Linux 5.14

Progress = Callable[[int, int], None]
"""Called with (frames done, frames in all)."""


def cache_folder(root: Path, choice: str | Path | bool | None = None) -> Path | None:
    """Where the frames of the data set `root` go, or None for nowhere.

    Args:
      choice: a folder, ``"beside"``, ``"off"`` or False; None or True for the environment's.
    """
    if choice is None or choice is True:
        choice = os.environ.get(VARIABLE) or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "robolearn"
    if choice is False or choice == "off":
        return None
    return root / ".cache" if choice == "beside" else Path(choice).expanduser()


def cached_frames(reader: FrameReader, folder: Path, progress: Progress | None = None) -> NDArray[np.uint8]:
    """The frames (N, H, W, 3) of `reader`, memory-mapped; what is missing in the cache `folder` is decoded first.

    The mapping is private: writing to it changes no file.

    Raises:
      BadInput: a video that cannot be read.
      RobolearnError: the disk is full.
    """
    identities = [reader.identity(e) for e in range(len(reader.lengths))]
    family = folder / "frames" / identities[0][:24]
    slot = _find(family, identities)
    if slot is None or not slot.done(len(identities)).all():
        try:
            family.mkdir(parents=True, exist_ok=True)
            with _locked(family):
                slot = _find(family, identities) or _Slot(family, _free(family), [], [])
                slot = slot.extended(identities, reader.lengths.tolist())
                _fill(slot, reader, progress)
        except OSError as error:
            hint = f"{VARIABLE}=FOLDER moves it, {VARIABLE}=off does without"
            raise RobolearnError(f"frame cache {family} cannot be written ({error.strerror}). {hint}") from error
    elif progress is not None:
        progress(int(reader.lengths.sum()), int(reader.lengths.sum()))
    frames = np.memmap(slot.frames_path, np.uint8, mode="c", shape=(int(reader.lengths.sum()), *reader.shape))
    _populate(frames)
    return frames


def _populate(frames: np.memmap) -> None:
    """Map all pages now, in order, rather than at random one by one, where memory has room for them."""
    try:
        if frames.nbytes < 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
            frames._mmap.madvise(_MADV_POPULATE_READ)  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError):
        pass  # an older kernel, or another system: it is only quicker


@dataclass(frozen=True)
class _Slot:
    """One cache file: frames of `episodes` (identities) of `lengths`."""

    family: Path
    number: int
    episodes: list[str]
    lengths: list[int]

    @property
    def frames_path(self) -> Path:
        return self.family / f"{self.number}.u8"

    @property
    def done_path(self) -> Path:
        return self.family / f"{self.number}.done"

    def done(self, count: int) -> NDArray[np.bool_]:
        """(count,) which of the first episodes are there."""
        marks = np.zeros(count, bool)
        if self.done_path.exists():
            found = np.frombuffer(self.done_path.read_bytes()[:count], np.uint8)
            marks[: len(found)] = found == 1
        return marks

    def extended(self, episodes: list[str], lengths: list[int]) -> _Slot:
        """The slot with room for `episodes`, of which it may hold the first ones, or more."""
        if len(self.episodes) >= len(episodes):
            return self
        slot = _Slot(self.family, self.number, episodes, lengths)
        content = json.dumps({"episodes": episodes, "lengths": lengths})
        write_text(self.family / f"{self.number}.json", content)
        return slot


def _find(family: Path, identities: list[str]) -> _Slot | None:
    """A cache file that begins with these episodes, or else the longest that these begin with."""
    best: _Slot | None = None
    for path in family.glob("*.json"):
        try:
            facts = json.loads(path.read_text())
            slot = _Slot(family, int(path.stem), list(facts["episodes"]), list(facts["lengths"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not ours, or just being replaced
        common = min(len(slot.episodes), len(identities))
        if slot.episodes[:common] == identities[:common] and (best is None or common > len(best.episodes)):
            best = slot
    return best


def _free(family: Path) -> int:
    return 1 + max((int(path.stem) for path in family.glob("*.json") if path.stem.isdigit()), default=-1)


def _fill(slot: _Slot, reader: FrameReader, progress: Progress | None) -> None:
    """Decode what is not done, several episodes side by side."""
    lengths = reader.lengths
    row = int(np.prod(reader.shape))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    marks = slot.done(len(lengths))
    todo = np.flatnonzero(~marks).tolist()
    count, total = int(lengths[marks].sum()), int(lengths.sum())
    if progress is not None:
        progress(count, total)
    if not todo:
        return
    begun = time.monotonic()
    log.info("frame cache of %s: %d frames, %.0f MB, in %s", reader.key, total, total * row / 1e6, slot.frames_path)
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
    frames, done = os.open(slot.frames_path, flags, 0o666), os.open(slot.done_path, flags, 0o666)
    pool = ThreadPoolExecutor(min(available_cpus(), len(todo)))
    waiting: list[int] = []

    def decode(episode: int) -> int:
        offset = int(starts[episode]) * row
        for block in reader.blocks(episode, max(1, BLOCK_BYTES // row)):
            view = block.data.cast("B")
            while view:
                written = os.pwrite(frames, view, offset)
                view, offset = view[written:], offset + written
        return episode

    def commit() -> None:
        os.fdatasync(frames)
        for episode in waiting:
            os.pwrite(done, b"\x01", episode)
        waiting.clear()

    try:
        if os.fstat(frames).st_size < total * row:
            os.ftruncate(frames, total * row)
        for future in as_completed([pool.submit(decode, episode) for episode in todo]):
            waiting.append(future.result())
            count += int(lengths[waiting[-1]])
            if int(lengths[waiting].sum()) * row >= SYNC_BYTES:
                commit()
            if progress is not None:
                progress(count, total)
    finally:
        pool.shutdown(cancel_futures=True)
        if waiting:
            commit()
        os.close(frames)
        os.close(done)
    log.info("frame cache of %s: built in %.1f s", reader.key, time.monotonic() - begun)


@contextmanager
def _locked(family: Path) -> Iterator[None]:
    """One builder at a time; the others wait here."""
    try:
        lock = Lock(family / "lock")
    except LockHeld as held:
        log.info("frame cache %s: process %s builds it, waiting", family, held.holder)
        lock = Lock(family / "lock", math.inf)
    with lock:
        yield
