"""Data sets on an HTTP server: as much of `pathlib.Path` as reading one needs, by fsspec.

Files are read in blocks of 1 MiB by range requests, and the blocks kept in ``<frame cache>/http``, of
``ROBOLEARN_HTTP_MB`` megabytes at most (default 1000; 0 keeps none): the least recently used makes room. A block
belongs to one state of a file, by what the server says of it (ETag, time, size), so a file that has changed is read
anew. The frame cache holds the pictures that are decoded from these files as it does those of a local set.

Of an answer its range, its state, its encoding and its length are checked, and it must come within a time that grows
with its size. Its bits are checked by the set's own `checksums`, where it has them, and by the server's
``Content-Digest``, where it sends one; else by nothing but the transport (TCP's checksums, TLS on https).

A server has no listing of its files: those of ``meta/episodes`` are asked for by their numbers.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote, unquote, urlsplit

from robolearn.core import BadInput, RobolearnError
from robolearn.core.installation import install_command
from robolearn.data.lerobot.checksums import BLOCK, CHECKSUMS_PATH, RENEW, FileSums, digest_fault, read_as
from robolearn.io.bounded_folder import BoundedFolder
from robolearn.io.hashes import sha256
from robolearn.io.json_files import json_in

log = logging.getLogger(__name__)

VARIABLE = "ROBOLEARN_HTTP_MB"
DEFAULT_MB = 1000
ATTEMPTS, PAUSE_S = 3, 1.0  # of a read that fails, and between two of them
AT_ONCE = 16  # requests
CONNECT_S, SILENCE_S = 10, 30  # until a server counts as gone
SLOWEST = 16_000  # bytes per second of a block, beyond the time of a silence


def is_remote(path: object) -> bool:
    """True where `path` is an address rather than a folder."""
    return isinstance(path, RemotePath) or str(path).startswith(("http://", "https://"))


def remote_path(address: str, cache: Path) -> RemotePath:
    """The folder at `address`; blocks are kept below `cache`. Raises `BadInput`: fsspec or aiohttp is not installed, or
    the address is no folder's."""
    if not urlsplit(address).hostname or "?" in address or "#" in address:
        expected = "the address of a folder, http(s)://HOST/PATH without '?' and '#'"
        raise BadInput("data set", got=address, expected=expected)
    given = os.environ.get(VARIABLE) or str(DEFAULT_MB)
    if not given.isdecimal():
        raise BadInput(VARIABLE, got=given, expected="a whole number of megabytes")
    folder = BoundedFolder(cache / "http", int(given) * 1_000_000)
    return RemotePath(address.rstrip("/"), _SetServer(_file_system(), folder, address.rstrip("/")))


def first_missing(root: Path | RemotePath, names: Sequence[str]) -> str | None:
    """The first of the files `names` that `root` does not have."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        there = pool.map(lambda name: (root / name).is_file(), names)
        return next((name for name, found in zip(names, there, strict=True) if not found), None)


@dataclass(frozen=True)
class _Facts:
    """One state of a file: its bytes, and what tells it from another, by the header that says so, if any does."""

    size: int
    state: str
    header: str


@dataclass
class _SetServer:
    """The connection that all paths of a set share, and what is known of its files."""

    files: Any  # fsspec's file system
    blocks: BoundedFolder
    root: str = ""
    known: dict[str, _Facts] = field(default_factory=dict)  # by address
    sums: dict[str, FileSums] | None = None  # by path, once they were asked for
    unchecked: str = ""  # a file that they are not of
    lock: Any = field(default_factory=threading.Lock)

    def checksums(self) -> dict[str, FileSums]:
        """Those of the set, by path; empty where it has none. Raises `BadInput`: what is there is not that."""
        with self.lock:
            if self.sums is None:
                self.sums = _checksums_at(RemotePath(self.root, self) / CHECKSUMS_PATH)
            return self.sums

    def checksum(self, address: str, size: int, number: int) -> str:
        """The digest of block `number` of a file of so many bytes; empty where none is known."""
        name = unquote(address.removeprefix(f"{self.root}/"))
        sums = None if name == CHECKSUMS_PATH else self.checksums().get(name)
        if sums and sums.size == size:
            return sums.sha256[number]
        if self.sums and not self.unchecked:
            self.unchecked = name
            log.warning("%s: %s is not of the state that the checksums are of; %s", self.root, name, RENEW)
        return ""

    async def lacks(self, address: str) -> bool:
        """True where the server says so at once; fsspec would ask for all of the file, too."""
        session, url = await self.files.set_session(), self.files.encode_url(address)
        async with session.head(url, allow_redirects=True) as answer:
            return answer.status in (401, 403, 404, 410)  # stores without a list of files say 403

    async def part(self, address: str, facts: _Facts, start: int, end: int) -> bytes:
        """Bytes `start` to `end` of the file, checked but for being too few."""
        from aiohttp import ClientTimeout

        session, url = await self.files.set_session(), self.files.encode_url(address)
        waits = ClientTimeout(SILENCE_S + (end - start) / SLOWEST, sock_connect=CONNECT_S, sock_read=SILENCE_S)
        asked = {"Range": f"bytes={start}-{end - 1}", "Want-Content-Digest": "sha-256=1"}
        content = bytearray()
        async with session.get(url, headers=asked, timeout=waits) as answer:
            if answer.status != 416:  # which a file has that became shorter: it has another state
                answer.raise_for_status()
            _check_answer(answer, address, facts, start, end)
            async for piece in answer.content.iter_any():
                content += piece
                if len(content) > end - start:
                    raise BadInput(address, got=f"more than {end - start} bytes", expected="what was asked for")
            stated = answer.headers.getall("Content-Digest", ()) if len(content) == end - start else ()
            if fault := digest_fault(stated, content):
                raise OSError(fault)
        return bytes(content)


@dataclass(frozen=True)
class RemotePath:
    """A file or folder at `address`. `OSError` is raised where a `Path` would raise it.

    Everywhere:

    Raises:
      BadInput: there is no server, it refuses, or it has no range requests.
      RobolearnError: it stopped answering.
    """

    address: str
    server: _SetServer = field(repr=False, compare=False)

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.address}/{quote(name)}", self.server)

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        return Path(self.address).name

    @property
    def suffix(self) -> str:
        return Path(self.address).suffix

    def is_file(self) -> bool:
        try:
            self._facts()
        except FileNotFoundError:
            return False
        return True

    exists = is_file

    def identity(self) -> str:
        """The same for as long as the file stays as it is; raises `FileNotFoundError`."""
        facts = self._facts()
        return sha256("\n".join([self.address, str(facts.size), facts.state]))

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return file.read(self._facts().size)

    def open(self) -> BinaryIO:
        """The file, to be read in any order."""
        from fsspec.spec import AbstractBufferedFile

        facts = self._facts()
        if not facts.size:
            return io.BytesIO()
        cached = {"path": self, "facts": facts, "identity": self.identity()}
        options: dict[str, Any] = {"block_size": BLOCK, "cache_type": _cache_type(), "cache_options": cached}
        return cast(BinaryIO, AbstractBufferedFile(self.server.files, self.address, size=facts.size, **options))

    def check_ranges(self, name: str) -> None:
        """Raise `BadInput` where the server of this folder gives no part of its file `name`, of two bytes or more."""
        path = self / name
        facts = path._facts()
        path.fetched(facts, facts.size - 1, facts.size)
        blocks = self.server.blocks
        log.info("%s: what is read is kept in %s, %.0f MB at most", self, blocks.path, blocks.most / 1e6)
        if not self.server.checksums():
            log.info(
                "%s: no checksums, by which flipped bits are found; `robolearn dataset checksums` writes them", self
            )

    def fetched(self, facts: _Facts, start: int, end: int, checksum: str = "") -> bytes:
        """Bytes `start` to `end` of the file in the state of `facts`, and of `checksum` where that is known,
        with a few attempts."""
        from aiohttp import ClientError
        from fsspec.asyn import sync

        server = self.server
        for attempt in range(ATTEMPTS):
            try:
                content = cast(bytes, sync(server.files.loop, server.part, self.address, facts, start, end))
                if len(content) != end - start:
                    said = f"{len(content)} of {end - start} bytes"
                elif checksum and sha256(content) != checksum:
                    where = f"bytes {start} to {end - 1} are not those of {CHECKSUMS_PATH}"
                    said = f"{where}; where the set was changed since, {RENEW}"
                else:
                    return content
            except TimeoutError:
                said = f"{end - start} bytes took too long"
            except (ClientError, OSError) as error:
                said = _said(error)
            if attempt + 1 < ATTEMPTS:
                time.sleep(PAUSE_S)
        raise RobolearnError(f"{self.address}: reading failed {ATTEMPTS} times ({said})")

    def _facts(self) -> _Facts:
        found = self.server.known.get(self.address)
        if found is None:
            found = self.server.known[self.address] = self._asked()
        return found

    def _asked(self) -> _Facts:
        from aiohttp import ClientResponseError

        try:
            info = self.server.files.info(self.address)
        except FileNotFoundError as error:  # whatever the reason
            cause = error.__cause__
            if isinstance(cause, ClientResponseError) and cause.status not in (404, 410):
                got = f"{cause.status} {cause.message}".strip()
                raise BadInput(self.address, got=got, expected="a file that may be read") from None
            if cause is not None and not isinstance(cause, ClientResponseError):
                got = f"no answer ({_said(cause)})"
                raise BadInput(self.address, got=got, expected="an HTTP server") from None
            raise FileNotFoundError(self.address) from None
        if info["size"] is None:
            raise BadInput(self.address, got="a file of unknown size", expected="a server that says Content-Length")
        header = next((name for name in ("ETag", "Last-Modified") if info.get(name)), "")
        state = info.get(header) or f"unknown {os.getpid()} {time.time_ns()}"
        return _Facts(int(info["size"]), state, header)


def _checksums_at(path: RemotePath) -> dict[str, FileSums]:
    """The checksums in the file at `path`, by path; empty where there is none."""
    from aiohttp import ClientError
    from fsspec.asyn import sync

    files = path.server.files
    with contextlib.suppress(ClientError, OSError):
        if sync(files.loop, path.server.lacks, path.address):
            return {}
    try:
        with path.open() as file:
            return read_as(json_in(file), path.address, BLOCK)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BadInput(path.address, got=f"unreadable JSON ({error})", expected="checksums", hint=RENEW) from None


def _check_answer(answer: Any, address: str, facts: _Facts, start: int, end: int) -> None:
    """Raise an error unless `answer` brings bytes `start` to `end`, as they are, of the file in the state `facts`."""
    headers = answer.headers
    encoding = headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise BadInput(address, got=f"Content-Encoding {encoding}", expected="bytes as they are (identity)")
    now = headers.get(facts.header, "none") if facts.header else facts.state
    # A proxy may weaken a tag.
    if answer.status == 416 or now.removeprefix("W/") != facts.state.removeprefix("W/"):
        said = "it is shorter" if answer.status == 416 else f"{facts.header} {now}, {facts.state} before"
        raise RobolearnError(f"{address}: the file has changed while it was read ({said}). Run the command again")
    if answer.status != 206 and (start, end) != (0, facts.size):
        hint = "nginx, Caddy and Apache have them, `python -m http.server` does not"
        raise BadInput(address, got="a server without range requests", expected="one with them", hint=hint)
    wanted, got = f"bytes {start}-{end - 1}/{facts.size}", headers.get("Content-Range", "none")
    if answer.status == 206 and got not in (wanted, f"bytes {start}-{end - 1}/*"):
        raise BadInput(address, got=f"Content-Range {got}", expected=wanted)


def _said(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _file_system() -> Any:
    try:
        import aiohttp
        from fsspec.implementations.http import HTTPFileSystem
    except ImportError:
        hint = install_command("http")
        raise BadInput("data set on a server", got="no fsspec or no aiohttp", expected="both", hint=hint) from None
    waits = aiohttp.ClientTimeout(CONNECT_S + SILENCE_S, sock_connect=CONNECT_S, sock_read=SILENCE_S)
    client = {"timeout": waits, "headers": {"Accept-Encoding": "identity"}, "auto_decompress": False}
    return HTTPFileSystem(client_kwargs=client, use_listings_cache=False, skip_instance_cache=True)


def _cache_type() -> str:
    """The name, in fsspec's registry, of the cache that keeps blocks in a folder."""
    from fsspec import caching

    name = "robolearn-blocks"
    if name in caching.caches:
        return name

    class Blocks(caching.BlockCache):
        """Blocks in memory, a few, and in a folder."""

        def __init__(
            self, blocksize: int, fetcher: Any, size: int, path: RemotePath, facts: _Facts, identity: str
        ) -> None:
            super().__init__(blocksize, fetcher, size, maxblocks=4)
            self._path, self._facts, self._identity = path, facts, identity

        def _fetch_block(self, block_number: int) -> bytes:
            start = block_number * self.blocksize
            end = min(start + self.blocksize, self.size)
            own = sha256(f"{self._identity} {block_number} {self.blocksize}")
            blocks = self._path.server.blocks
            checksum = self._path.server.checksum(self._path.address, self.size, block_number)
            content = blocks.get(own)
            if content is None or len(content) != end - start or (checksum and sha256(content) != checksum):
                content = self._path.fetched(self._facts, start, end, checksum)
                blocks.put(own, content)
            return content

    Blocks.name = name
    caching.register_cache(Blocks, clobber=True)
    return name
