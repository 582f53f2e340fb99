"""Checksums of the files of a set, block by block: bits that flipped are found by them, over HTTP and by `validate`.

    meta/robolearn_checksums.json
      block     bytes of a block: as much as a reader over HTTP asks for at a time
      files     path → size [bytes], mtime_ns, and sha256: a digest for each block, in hexadecimal
      sha256    of `files`

They are of one state of the set: what is recorded or edited later makes them stale. Other readers of the format pass
over the file. A server may also send the digest of each answer by itself (``Content-Digest``, RFC 9530).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.core import BadInput
from robolearn.io.hashes import sha256

CHECKSUMS_PATH = "meta/robolearn_checksums.json"
BLOCK = 1 << 20  # bytes
RENEW = "`robolearn dataset checksums` renews them"
ROOMS = ("meta", "data", "videos")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FileSums:
    """Checksums of one state of a file.

    Attributes:
      size: of the file [bytes].
      mtime_ns: when it was last changed; a copy may have another one.
      sha256: of each block, in hexadecimal.
    """

    size: int
    mtime_ns: int
    sha256: tuple[str, ...]


def files_of(root: Path) -> list[str]:
    """The files of the set `root` that checksums are of, in order."""
    found = []
    for room in ROOMS:
        for path in (root / room).rglob("*"):
            name = path.relative_to(root).as_posix()
            hidden = any(part.startswith(".") for part in name.split("/"))
            if path.is_file() and path.suffix != ".tmp" and not hidden and name != CHECKSUMS_PATH:
                found.append(name)
    return sorted(found)


def blocks_of(path: Path, block: int = BLOCK) -> Iterator[str]:
    """The digest of each block of a file. Raises `OSError`: it cannot be read."""
    with path.open("rb") as file:
        while content := file.read(block):
            yield sha256(content)


def written_as(files: Mapping[str, FileSums], block: int = BLOCK) -> dict[str, Any]:
    """The content of `CHECKSUMS_PATH`."""
    plain = {name: {**vars(sums), "sha256": list(sums.sha256)} for name, sums in files.items()}
    return {"block": block, "files": plain, "sha256": _digest(plain)}


def read_as(value: Any, what: str, block: int = BLOCK) -> dict[str, FileSums]:
    """Path → checksums, from the content of `CHECKSUMS_PATH`: the inverse of `written_as`.

    Raises `BadInput`, with `what`: it is not that, or not as it was written, has other blocks, or names a file outside
    the set.
    """
    kinds = {"block": int, "files": dict, "sha256": str}
    if not isinstance(value, dict) or not all(isinstance(value.get(key), kind) for key, kind in kinds.items()):
        raise BadInput(what, got="no checksums", expected=f"an object with {', '.join(kinds)}", hint=RENEW)
    if value["block"] != block:
        raise BadInput(f"{what}: block", got=value["block"], expected=f"{block} bytes", hint=RENEW)
    if value["sha256"] != _digest(value["files"]):
        raise BadInput(
            what, got="files of another digest than it says", expected="a file as it was written", hint=RENEW
        )
    found: dict[str, FileSums] = {}
    for name, sums in value["files"].items():
        if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
            raise BadInput(f"{what}: files", got=f"the name {name!r:.80}", expected="names within the set")
        found[name] = _sums(sums, f"{what}: {name}", block)
    return found


def _sums(given: Any, what: str, block: int) -> FileSums:
    held = given if isinstance(given, dict) else {}
    size, time, digests = held.get("size"), held.get("mtime_ns"), held.get("sha256")
    if (
        type(size) is int and type(time) is int and isinstance(digests, list)
        and size >= 0 and len(digests) == -(-size // block)
        and all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in digests)
    ):  # fmt: skip
        return FileSums(size, time, tuple(digests))
    raise BadInput(what, got="no size, mtime_ns and digest of each block", expected="them", hint=RENEW)


def _digest(files: Mapping[str, Any]) -> str:
    return sha256(json.dumps(files, sort_keys=True, separators=(",", ":")))


_HEADER = re.compile(r"(?:^|,)\s*(sha-256|sha-512)\s*=\s*:([^:]*):")


def digest_fault(headers: Iterable[str], content: bytes | bytearray) -> str:
    """The fault of `content` by a server's ``Content-Digest``; empty where that says nothing against it.

    Args:
      headers: values of that header.
    """
    for kind, value in _HEADER.findall(", ".join(headers)):
        try:
            stated = base64.b64decode(value, validate=True)
        except binascii.Error:
            stated = b""
        if hashlib.new(kind.replace("-", ""), content).digest() != stated:
            return f"{len(content)} bytes of another {kind} than their Content-Digest says"
    return ""
