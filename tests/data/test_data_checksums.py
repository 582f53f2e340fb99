"""Checksums of a set: flipped bits over HTTP are fetched again or named, never handed out; `validate` tells damage from
what was recorded or edited since. The judge of the digests is hashlib.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent))
from web_server import serving

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface, RobolearnError
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.lerobot import layout, remote
from robolearn.data.lerobot.checksums import CHECKSUMS_PATH, digest_fault
from robolearn.data.reading.loading import write_weights
from robolearn.data.validate import Tolerances, validate
from robolearn.data.writing.checksums import write_checksums

SIZE = 64
INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((SIZE, SIZE, 3), "uint8")}, ArraySpec((2,)), 20.0
)
FILM = "videos/observation.images.front/chunk-000/file-000.mp4"
MIB = 1 << 20


def record(root: Path, episodes: int = 2, *, resume: bool = False) -> Path:
    rng = np.random.default_rng(episodes)
    with EpisodeWriter(root, INTERFACE, resume=resume) as writer:
        for _ in range(episodes):
            for t in range(6):
                picture = np.full((SIZE, SIZE, 3), 20 + 20 * t, np.uint8)
                writer.add({"proprio": rng.standard_normal(2), "images.front": picture}, rng.uniform(-1, 1, 2))
            writer.end(success=True, task="wave")
    return root


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recorded") / "set")


@pytest.fixture
def root(recorded: Path, tmp_path: Path) -> Path:
    """A set whose largest file, of no reader's, has three blocks."""
    root = Path(shutil.copytree(recorded, tmp_path / "www" / "set"))
    (root / "data/notes.bin").write_bytes(np.random.default_rng(0).bytes(2 * MIB + 77))
    write_checksums(root)
    return root


def flip(path: Path, at: int) -> None:
    """Another bit at byte `at` of a file whose time stays, as a disk has it that forgets."""
    facts, content = path.stat(), bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def manifest(root: Path) -> dict[str, Any]:
    return json.loads((root / CHECKSUMS_PATH).read_text())


def test_they_are_of_every_file_and_block(root: Path) -> None:
    written = manifest(root)
    assert written["block"] == MIB
    paths = [path for room in ("data", "meta", "videos") for path in (root / room).rglob("*") if path.is_file()]
    names = [str(path.relative_to(root)) for path in paths]
    assert sorted(written["files"]) == sorted(set(names) - {CHECKSUMS_PATH}) and FILM in names
    for name, sums in written["files"].items():
        content = (root / name).read_bytes()
        blocks = [content[at : at + MIB] for at in range(0, len(content), MIB)]
        assert sums["sha256"] == [hashlib.sha256(block).hexdigest() for block in blocks]
        assert (sums["size"], sums["mtime_ns"]) == (len(content), (root / name).stat().st_mtime_ns)
    assert len(written["files"]["data/notes.bin"]["sha256"]) == 3
    assert [path.name for path in root.rglob("*.tmp")] == []


# Locally


def found(root: Path, **limits: Any) -> tuple[list[str], list[str]]:
    """(file of each finding of checksums, notes on them)."""
    notes: list[str] = []
    findings = list(validate(root, Tolerances(**limits), notes=notes))
    return [one.file for one in findings if one.check == "checksum"], [one for one in notes if "checksum" in one]


def test_nothing_is_wrong_with_a_set_as_it_was(root: Path) -> None:
    assert found(root) == ([], [])


def test_a_flipped_bit_is_damage(root: Path) -> None:
    flip(root / FILM, 700)
    flip(root / "data/notes.bin", 2 * MIB + 5)
    notes: list[str] = []
    findings = {one.file: one.what for one in validate(root, notes=notes) if one.check == "checksum"}
    assert set(findings) == {FILM, "data/notes.bin"} and not any("stale" in note for note in notes)
    assert findings["data/notes.bin"].endswith(f"in {2 * MIB} to {2 * MIB + 76}")
    assert found(root, decode=False)[0] == ["data/notes.bin"], "films are not read"


@pytest.mark.long
def test_what_was_recorded_since_makes_them_stale(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(root, 1, resume=True)
    damage, (note,) = found(root)
    assert damage == [] and note.startswith("stale checksum: ")
    assert f"`robolearn dataset checksums {root}` renews them" in note
    flip(root / FILM, 700)
    assert found(root)[0] == [FILM], "which a recording leaves as it was"
    flip(root / FILM, 700)
    assert main(["dataset", "checksums", str(root), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["files"] == len(manifest(root)["files"]) and said["blocks"] == said["files"] + 2
    assert found(root) == ([], [])


def test_what_was_edited_since_makes_them_stale(root: Path) -> None:
    stats = root / "meta/stats.json"
    stats.write_text(stats.read_text().replace("0.5", "0.6"))
    os.utime(stats, ns=(1, stats.stat().st_mtime_ns + 10**9))
    damage, (note,) = found(root)
    assert damage == [] and "1 file has changed" in note and "meta/stats.json" in note
    shutil.copytree(root, root.with_name("copy"), copy_function=shutil.copyfile)
    assert found(root.with_name("copy"))[0] == ["meta/stats.json"], "no time shows it"


def test_new_weights_are_none_of_theirs(root: Path) -> None:
    write_weights(root, [1.0, 2.0], 2, "a test")
    damage, (note,) = found(root)
    assert damage == [] and "meta/robolearn_weights.json" in note


@pytest.mark.long
def test_a_copy_has_other_times(root: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy", copy_function=shutil.copyfile))
    assert found(copy) == ([], [])
    flip(copy / FILM, 700)
    assert found(copy) == ([FILM], [])
    record(copy, 1, resume=True)
    assert found(copy)[1] != []


def test_files_that_are_gone_or_cut_short(root: Path) -> None:
    notes = root / "data/notes.bin"
    facts = notes.stat()
    notes.write_bytes(notes.read_bytes()[:-1])
    os.utime(notes, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert found(root) == (["data/notes.bin"], [])
    notes.unlink()
    assert found(root) == (["data/notes.bin"], [])


@pytest.mark.long
def test_a_set_that_is_recorded_into_gets_none(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (root / CHECKSUMS_PATH).read_bytes()
    with EpisodeWriter(root, INTERFACE, resume=True):
        assert main(["dataset", "checksums", str(root)]) == 2
        assert "another writer at work in it" in capsys.readouterr().err
        assert found(root) == ([], [])
    assert (root / CHECKSUMS_PATH).read_bytes() == before
    assert main(["dataset", "checksums", str(root / "none")]) == 2
    assert main(["dataset", "checksums", str(root / "data")]) == 2


def lie(**changes: Any) -> Callable[[dict[str, Any]], str]:
    """The content with other values, as if it had been written so."""

    def make(value: dict[str, Any]) -> str:
        value |= changes
        plain = json.dumps(value["files"], sort_keys=True, separators=(",", ":"))
        return json.dumps(value | {"sha256": hashlib.sha256(plain.encode()).hexdigest()})

    return make


ONE = {"size": 1, "mtime_ns": 0, "sha256": ["0" * 64]}
LIES: dict[str, Callable[[dict[str, Any]], str]] = {
    "cut short": lambda value: json.dumps(value)[:-40],
    "no JSON": lambda value: "checksums",
    "a list": lambda value: "[]",
    "other keys": lambda value: "{}",
    "another block": lie(block=4096),
    "no block": lie(block=True),
    "a flipped digit": lambda value: json.dumps(value).replace('"size": ', '"size": 1', 1),
    "a file outside": lie(files={"../../secret": ONE}),
    "an absolute file": lie(files={"/etc/passwd": ONE}),
    "a file beside": lie(files={"data/../../x": ONE}),
    "a null": lie(files={"data/x\0": ONE}),
    "no name": lie(files={"": ONE}),
    "too many digests": lie(files={FILM: ONE | {"sha256": ["0" * 64] * 2}}),
    "no digest": lie(files={FILM: ONE | {"sha256": ["x"]}}),
    "a text": lie(files={FILM: "all of it"}),
    "negative": lie(files={FILM: ONE | {"size": -1, "sha256": []}}),
    "a number": lie(files={FILM: ONE | {"sha256": 64}}),
    "very deep": lambda value: "[" * 100_000,
    "very many": lie(files={FILM: ONE | {"size": 10**30}}),
}


@pytest.mark.parametrize("what", LIES)
def test_what_is_no_list_of_checksums_is_one_fault(root: Path, what: str) -> None:
    (root / CHECKSUMS_PATH).write_text(LIES[what](manifest(root)))
    (fault,) = [one for one in validate(root) if one.check == "checksums"]
    assert fault.file == CHECKSUMS_PATH and len(fault.what) < 400 and "\n" not in fault.what
    assert main(["dataset", "checksums", str(root)]) == 0 and found(root) == ([], [])


# Over HTTP


class Server:
    """The files below a folder by range requests.

    Attributes:
      flips: path → (byte, how many more answers have it wrong).
      digests: whether each answer has the digest of what it was before a bit flipped.
      missing: the status of what is not there.
      asked: (method, path, first byte) of each request.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, ""
        self.flips: dict[str, tuple[int, int]] = {}
        self.digests, self.missing = "", 404
        self.asked: list[tuple[str, str, int]] = []

    async def handle(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        path = self.folder / name
        wanted = request.http_range
        self.asked.append((request.method, name, wanted.start or 0))
        if not path.is_file():
            return web.Response(status=self.missing)
        content, facts = path.read_bytes(), path.stat()
        headers = {"ETag": f'"{facts.st_mtime_ns}-{facts.st_size}"'}
        if request.method == "HEAD":
            return web.Response(headers=headers | {"Content-Length": str(len(content))})
        start, stop = wanted.start or 0, min(wanted.stop or len(content), len(content))
        body = bytearray(content[start:stop])
        if self.digests:
            made = base64.b64encode(hashlib.new(self.digests.replace("-", ""), body).digest()).decode()
            headers["Content-Digest"] = f"{self.digests}=:{made}:"
        at, times = self.flips.get(name, (0, 0))
        if times and start <= at < stop:
            body[at - start] ^= 16
            self.flips[name] = at, times - 1
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        return web.Response(status=206, body=bytes(body), headers=headers)

    def gets(self, name: str) -> list[int]:
        """The first bytes of what was asked for of file `name`."""
        return [start for method, path, start in self.asked if method == "GET" and path == name]


@pytest.fixture
def server(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    served = Server(root)
    with serving("{name:.+}", served.handle) as served.address:
        yield served


def opened(server: Server, tmp_path: Path) -> remote.RemotePath:
    return remote.remote_path(server.address, tmp_path / "cache")


def test_a_bit_that_flips_on_the_way_is_asked_for_again(server: Server, root: Path, tmp_path: Path) -> None:
    server.flips["data/notes.bin"] = MIB + 3, 1
    assert (opened(server, tmp_path) / "data/notes.bin").read_bytes() == (root / "data/notes.bin").read_bytes()
    assert server.gets("data/notes.bin") == [0, MIB, MIB, 2 * MIB]


def test_pictures_of_a_set_are_those_that_were_recorded(server: Server, root: Path) -> None:
    server.flips[FILM] = (root / FILM).stat().st_size // 2, 2
    there, here = Dataset.open(server.address, cache=False), Dataset.open(root, cache=False)
    np.testing.assert_array_equal(there.images("front")[:], here.images("front")[:])
    assert len(server.gets(FILM)) == 3


def test_a_bit_that_flipped_on_the_disk_is_named(server: Server, root: Path, tmp_path: Path) -> None:
    flip(root / "data/notes.bin", MIB + 3)
    file = opened(server, tmp_path) / "data/notes.bin"
    with file.open() as stream:
        assert len(stream.read(MIB)) == MIB
        said = (
            rf"data/notes.bin: reading failed 3 times \(bytes {MIB} to {2 * MIB - 1} are not those of {CHECKSUMS_PATH}"
        )
        with pytest.raises(RobolearnError, match=said):
            stream.read(1)
        stream.seek(2 * MIB)
        assert len(stream.read()) == 77
    flip(root / "data/notes.bin", MIB + 3)
    assert (opened(server, tmp_path) / "data/notes.bin").read_bytes() == (root / "data/notes.bin").read_bytes()


def test_what_was_kept_before_is_checked_too(server: Server, root: Path, tmp_path: Path) -> None:
    aside = (root / CHECKSUMS_PATH).rename(tmp_path / "aside")
    server.flips["data/notes.bin"] = 3, 1
    whole = (root / "data/notes.bin").read_bytes()
    assert (opened(server, tmp_path) / "data/notes.bin").read_bytes() != whole, "nothing else finds it"
    aside.rename(root / CHECKSUMS_PATH)
    assert (opened(server, tmp_path) / "data/notes.bin").read_bytes() == whole


def test_what_they_are_not_of_is_read_and_said(
    server: Server, root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "data/notes.bin").write_bytes(b"longer" * MIB)
    (root / "data/new.bin").write_bytes(b"new")
    folder = opened(server, tmp_path)
    assert (folder / "data/notes.bin").read_bytes() == b"longer" * MIB
    assert (folder / "data/new.bin").read_bytes() == b"new"
    (said,) = [one.message for one in caplog.records if "checksums" in one.message]
    assert "data/notes.bin is not of the state" in said and "`robolearn dataset checksums` renews them" in said


@pytest.mark.parametrize("status", [404, 410, 403, 401])
def test_a_set_without_them_is_asked_for_them_once(
    server: Server, root: Path, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    (root / CHECKSUMS_PATH).unlink()
    server.missing = status
    with caplog.at_level(logging.INFO, logger="robolearn"):
        assert Dataset.open(server.address, cache=False).episodes == 2
    assert [one for one in server.asked if one[1] == CHECKSUMS_PATH] == [("HEAD", CHECKSUMS_PATH, 0)]
    assert any("no checksums, by which flipped bits are found" in one.message for one in caplog.records)


@pytest.mark.parametrize("what", LIES)
def test_a_server_s_lies_are_refused_in_a_line(server: Server, root: Path, tmp_path: Path, what: str) -> None:
    (root / CHECKSUMS_PATH).write_text(LIES[what](manifest(root)))
    with pytest.raises(BadInput) as error:
        Dataset.open(server.address, cache=False)
    assert CHECKSUMS_PATH in str(error.value) and len(str(error.value)) < 500 and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["sha-256", "sha-512"])
def test_the_server_s_own_digest_of_an_answer(server: Server, root: Path, tmp_path: Path, kind: str) -> None:
    (root / CHECKSUMS_PATH).unlink()
    server.digests, server.flips["data/notes.bin"] = kind, (MIB + 3, 1)
    assert (opened(server, tmp_path) / "data/notes.bin").read_bytes() == (root / "data/notes.bin").read_bytes()
    assert server.gets("data/notes.bin") == [0, MIB, MIB, 2 * MIB]
    server.flips[FILM] = 9, 99
    said = f"{FILM}: reading failed 3 times .* bytes of another {kind} than their Content-Digest says"
    with pytest.raises(RobolearnError, match=said):
        (opened(server, tmp_path) / FILM).read_bytes()


def digest(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


@pytest.mark.parametrize(
    ("header", "wrong"),
    [
        ((), False),
        (("",), False),
        (("md5=:AAAA:",), False),
        ((f"sha-256=:{digest(b'ab')}:",), False),
        ((f"md5=:AAAA:, sha-256=:{digest(b'ab')}:;x=1",), False),
        ((f"sha-256=:{digest(b'cd')}:",), True),
        (("md5=:AAAA:", f"sha-256=:{digest(b'cd')}:"), True),
        (("sha-256=:*:",), True),
        (("sha-256=::",), True),
        (("x-sha-256=:AAAA:",), False),
    ],
)
def test_digests_in_headers(header: tuple[str, ...], wrong: bool) -> None:
    assert bool(digest_fault(header, b"ab")) == wrong


def test_names_with_signs_of_addresses(server: Server, root: Path, tmp_path: Path) -> None:
    odd = "data/a#b?c%20d e:f\\g.bin"
    (root / odd).write_bytes(b"odd" * 100)
    write_checksums(root)
    server.flips[odd] = 5, 1
    assert (opened(server, tmp_path) / odd).read_bytes() == b"odd" * 100
    assert server.gets(odd) == [0, 0]


def test_info_of_the_set_is_read_once(server: Server) -> None:
    """A recursion: the checksums are a file of the set, too."""
    Dataset.open(server.address, cache=False)
    assert server.gets(layout.INFO_PATH).count(0) == 1 and server.gets(CHECKSUMS_PATH) == [0]
