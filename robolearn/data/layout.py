"""Where the files of a LeRobotDataset v3.0 lie, and how they are replaced without ever being half-written.

    meta/info.json  meta/stats.json  meta/tasks.parquet
    meta/episodes/chunk-000/file-000.parquet        one row per episode
    data/chunk-000/file-000.parquet                 one row per frame
    videos/observation.images.front/chunk-000/file-000.mp4      one per camera and episode
    .running/                                       what `repair` needs of the episode at hand; see writer.py

A file is replaced by writing ``<name>.tmp`` beside it, syncing that to the disk and renaming it. Readers of the
format list ``*.parquet``, so a ``.tmp`` that a killed process left behind is invisible to them.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robolearn.core import BadInput, RobolearnError
from robolearn.data.info import check_info
from robolearn.runs.lock import forget_in_children

VERSION = "v3.0"
CHUNKS_SIZE = 1000  # files per chunk folder
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
INFO_PATH = "meta/info.json"
INFO_TMP_PATH = "meta/info.json.tmp"
STATS_PATH = "meta/stats.json"
TASKS_PATH = "meta/tasks.parquet"
SYNC_THREADS = 16
LOCK_PATH = ".writer.lock"
RUNNING_PATH = ".running"  # the journal and the growing videos of the episode at hand
# Such folders of recordings that were killed, 000, 001, …, set aside by a resumed one; and in beyond-000, … what lay
# beyond the counts of info.json and is no whole episode.
UNFINISHED_PATH = ".unfinished"
BEYOND = "beyond-"
WEIGHTS_PATH = "meta/robolearn_weights.json"


def numbered(pattern: str, number: int) -> str:
    """The path of file `number`, counted over all chunks."""
    chunk, file = divmod(number, CHUNKS_SIZE)
    return pattern.format(chunk_index=chunk, file_index=file)


def video_path(key: str, number: int) -> str:
    """The mp4 of camera feature `key` and episode `number`."""
    return numbered(VIDEO_PATH.replace("{video_key}", key), number)


def lock(root: Path) -> IO[str]:
    """Hold the data set `root` for writing until the returned file is closed, or this process dies.

    In workers that this process forks the file is closed.

    Raises:
      BadInput: another writer holds it.
    """
    handle = open(root / LOCK_PATH, "w")  # noqa: SIM115 - the lock lives as long as the writer
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        what = f"data set {root}"
        raise BadInput(what, got="another writer at work in it", expected="one writer at a time") from None
    forget_in_children(handle)
    return handle


def json_bytes(value: Any, *, indent: int | None = None) -> bytes:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False).encode()


def parquet_bytes(table: pa.Table) -> pa.Buffer:
    """One row group with page checksums, so that a damaged file is noticed when it is read."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="snappy",
        use_dictionary=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


def read_json(root: Path, name: str) -> dict[str, Any]:
    """Raises `BadInput` where the file is missing or not a JSON object."""
    try:
        value = json.loads((root / name).read_bytes())
    except FileNotFoundError:
        raise BadInput(f"data set {root}", got=f"no {name}", expected="a LeRobotDataset v3.0 folder") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"data set {root}: {name}", got=f"unreadable JSON ({error})") from None
    if not isinstance(value, dict):
        raise BadInput(f"data set {root}: {name}", got=type(value).__name__, expected="a JSON object")
    return value


def read_info(root: Path) -> dict[str, Any]:
    """``meta/info.json`` of a set of any version.

    Raises:
      BadInput: it is missing or unreadable, lacks a key that a reader needs, or says things that nothing can be read
        with; the message names the key.
    """
    info = read_json(root, INFO_PATH)
    for key in ("codebase_version", "features", "fps", "total_episodes", "total_frames", "total_tasks"):
        if key not in info:
            raise BadInput(f"data set {root}: {INFO_PATH}", got=f"no {key}", expected="it", available=info)
    check_info(info, f"data set {root}: {INFO_PATH}")
    return info


def read_parquet(root: Path, name: str, columns: list[str] | None = None) -> pa.Table:
    """The table in file `name`, all its columns or those of `columns` that it has.

    Raises `BadInput` where the file is missing or damaged.
    """
    try:
        with pq.ParquetFile(root / name, page_checksum_verification=True) as file:
            if columns is not None:
                columns = [column for column in columns if column in file.schema_arrow.names]
            return file.read(columns=columns, use_threads=False)
    except FileNotFoundError:
        raise BadInput(f"data set {root}", got=f"no {name}", expected="that file") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"data set {root}: {name}", got=f"a corrupt parquet file ({_first_line(error)})") from None


class Commit:
    """A set of files that are replaced together, in the order in which they were staged.

    All content is on the disk before the first rename, so no file is ever half-written, and the last file staged
    is the commit point.

    Args:
      suffix: of what is staged.
    """

    def __init__(self, root: Path, suffix: str = ".tmp") -> None:
        self._root, self._suffix = root, suffix
        self._staged: list[tuple[Path, Path, int | None]] = []

    def stage(self, name: str, content: bytes | pa.Buffer) -> None:
        """Write ``<name>.tmp``, or with another suffix.

        Raises:
          RobolearnError: the disk is full or not writable; nothing of the data set has changed then.
        """
        path = self._root / name
        temporary = path.with_name(path.name + self._suffix)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            self._staged.append((temporary, path, descriptor))
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError as error:
            self._abandon()
            raise RobolearnError(f"data set {self._root}: {name} cannot be written ({error.strerror})") from error

    def adopt(self, name: str, source: Path) -> None:
        """Stage the finished file `source`, which stays where it is; nobody may write to it any more.

        Raises as `stage` does.
        """
        path = self._root / name
        temporary = path.with_name(path.name + self._suffix)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if source != temporary:
                temporary.unlink(missing_ok=True)
                try:
                    os.link(source, temporary)
                except OSError:
                    shutil.copyfile(source, temporary)
            self._staged.append((temporary, path, None))
        except OSError as error:
            self._abandon()
            raise RobolearnError(f"data set {self._root}: {name} cannot be written ({error.strerror})") from error

    def publish(self, *, barrier: bool = False) -> None:
        """Sync everything that was staged and rename it into place; raises as `stage` does.

        Args:
          barrier: bring the renames to the disk as well, that of the commit point after all others.
        """
        try:
            # Side by side, because syncs that overlap share one commit of the file system's journal.
            with ThreadPoolExecutor(min(len(self._staged), SYNC_THREADS)) as pool:
                list(pool.map(_sync, self._staged))
        except OSError as error:
            self._abandon()
            raise RobolearnError(f"data set {self._root} cannot be written ({error.strerror})") from error
        for number, (temporary, path, descriptor) in enumerate(self._staged, 1):
            if descriptor is not None:
                os.close(descriptor)
            if barrier and number == len(self._staged):
                sync_folders(self._root)
            os.replace(temporary, path)
            if barrier and number == len(self._staged):
                sync_folder(path.parent)
        self._staged.clear()

    def _abandon(self) -> None:
        for temporary, _, descriptor in self._staged:
            if descriptor is not None:
                os.close(descriptor)
            temporary.unlink(missing_ok=True)
        self._staged.clear()


def _sync(staged: tuple[Path, Path, int | None]) -> None:
    temporary, _, descriptor = staged
    if descriptor is not None:
        os.fsync(descriptor)
        return
    descriptor = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(root: Path) -> None:
    """Bring the renames so far to the disk, those of the commit point after all others."""
    patterns = ("data", "data/*", "videos", "videos/*", "videos/*/*", "meta/episodes", "meta/episodes/*")
    inner = [path for pattern in patterns for path in root.glob(pattern)]
    for folder in (*(path for path in inner if path.is_dir()), root, root / "meta"):
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Bring what was renamed into `folder` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def less(column: pa.ChunkedArray, bound: int, what: str) -> pa.ChunkedArray:
    """Where `column` of file `what` is below `bound`; raises `BadInput` where it holds no numbers."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise BadInput(f"{what}, episode_index", got=f"a column of type {column.type}", expected="whole numbers")
    return pc.call_function("less", [column, pa.scalar(bound, pa.int64())])


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
