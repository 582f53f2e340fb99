"""A server that answers range requests otherwise than it was asked."""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent))
from web_server import serving

from robolearn.core import BadInput, RobolearnError
from robolearn.data.lerobot import remote
from robolearn.data.video.container import opened

CONTENT = bytes(range(256)) * 16
TAG = '"first"'

Answer = Callable[[web.Request, int, int], web.StreamResponse]


class Server:
    """One file, `name`, at `folder`; `answer` makes what a request for bytes `start` to `end` gets."""

    def __init__(self) -> None:
        self.address = ""
        self.answer: Answer = proper
        self.sent = 0  # bytes of an endless answer

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "HEAD":
            return web.Response(headers={"ETag": TAG, "Content-Length": str(len(CONTENT))})
        start, end = request.http_range.start, request.http_range.stop
        made = self.answer(request, start, end)
        if isinstance(made, web.Response):
            return made
        await made.prepare(request)
        try:
            while self.sent < (200 if isinstance(made, Slow) else 500_000_000):
                piece = bytes(1) if isinstance(made, Slow) else bytes(1 << 20)
                await made.write(piece)
                self.sent += len(piece)
                await asyncio.sleep(0.05 if isinstance(made, Slow) else 0)
        except ConnectionError:
            pass
        return made


class Slow(web.StreamResponse):
    """A byte every 50 ms."""


def headers(start: int, end: int, **others: str) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in others.items()}
    return {"ETag": TAG, "Content-Range": f"bytes {start}-{end - 1}/{len(CONTENT)}"} | named


def proper(_: web.Request, start: int, end: int) -> web.Response:
    return web.Response(status=206, body=CONTENT[start:end], headers=headers(start, end))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    monkeypatch.setattr(remote, "BLOCK", 1000)
    served = Server()
    with serving("file", served.handle) as served.address:
        yield served


def read(server: Server, cache: Path) -> bytes:
    """Bytes 1000 to 2000, a block, of the file."""
    with (remote.remote_path(server.address, cache) / "file").open() as file:
        file.seek(1000)
        return file.read(1000)


def test_a_proper_answer(server: Server, tmp_path: Path) -> None:
    assert read(server, tmp_path) == CONTENT[1000:2000]
    file = remote.remote_path(server.address, tmp_path) / "file"
    assert file.read_bytes() == CONTENT
    with file.open() as opened:
        assert opened.read() == CONTENT


def test_another_range(server: Server, tmp_path: Path) -> None:
    server.answer = lambda request, start, end: proper(request, start + 100, end + 100)
    with pytest.raises(BadInput, match="file: got Content-Range bytes 1100-2099/4096, expected bytes 1000-1999/4096"):
        read(server, tmp_path)


def test_another_state(server: Server, tmp_path: Path) -> None:
    def other(_: web.Request, start: int, end: int) -> web.Response:
        return web.Response(status=206, body=CONTENT[start:end], headers=headers(start, end, ETag='"second"'))

    server.answer = other
    said = r'file: the file has changed while it was read \(ETag "second", "first" before\). Run the command again'
    with pytest.raises(RobolearnError, match=said):
        read(server, tmp_path)
    server.answer = lambda *_: web.Response(status=416)
    with pytest.raises(RobolearnError, match=r"has changed while it was read \(it is shorter\)"):
        read(server, tmp_path)


def test_more_than_was_asked_for(server: Server, tmp_path: Path) -> None:
    server.answer = lambda _, start, end: web.StreamResponse(status=206, headers=headers(start, end))
    with pytest.raises(BadInput, match="file: got more than 1000 bytes, expected what was asked for"):
        read(server, tmp_path)
    assert server.sent < 50_000_000


def test_a_bomb(server: Server, tmp_path: Path) -> None:
    def bomb(_: web.Request, start: int, end: int) -> web.Response:
        body = gzip.compress(bytes(10_000_000))
        return web.Response(status=206, body=body, headers=headers(start, end, Content_Encoding="gzip"))

    server.answer = bomb
    with pytest.raises(BadInput, match="file: got Content-Encoding gzip, expected bytes as they are"):
        read(server, tmp_path)


@pytest.mark.long
def test_an_answer_without_end(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENCE_S", 0.2)
    monkeypatch.setattr(remote, "SLOWEST", 10_000, raising=False)
    server.answer = lambda _, start, end: Slow(status=206, headers=headers(start, end))
    with pytest.raises(RobolearnError, match=r"file: reading failed 3 times \(1000 bytes took too long\)"):
        read(server, tmp_path)
    assert server.sent < 100


def test_a_video_that_cannot_be_read_is_asked_for_once(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """FFmpeg asks again after a failure, and each time costs all the attempts; PyAV prints what it drops."""
    asked = []

    def other(request: web.Request, start: int, end: int) -> web.Response:
        asked.append(start)
        return proper(request, start + 100, end + 100)

    server.answer = other
    with (
        serving("file.mp4", server.handle) as address,
        pytest.raises(BadInput, match=r"file\.mp4: got Content-Range"),
        opened(remote.remote_path(address, tmp_path) / "file.mp4"),
    ):
        pass
    assert len(asked) == 1 and "Traceback" not in capfd.readouterr().err
