"""Limits of connections: how many at once, how long a request may take, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

sys.path.insert(0, str(Path(__file__).parent))
from page_client import session, trusting

from hardware.teleop.browser import Place, auth_proxy
from hardware.teleop.browser.access import RareLog
from hardware.teleop.browser.auth_proxy import AuthProxy
from hardware.teleop.browser.certificate import own_certificate, server_context
from hardware.teleop.browser.connection_limits import ConnectionLimits
from hardware.teleop.browser.control_arbiter import ControlArbiter
from hardware.teleop.browser.page import BEAT, serve_heartbeats

pytestmark = pytest.mark.realtime


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Line(asyncio.Transport):
    """A connection from `address`."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 1), "socket": object()})
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture
def arbiter() -> ControlArbiter:
    """That all proxies of a test share."""
    return ControlArbiter()


@pytest.fixture
def impatient(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arbiter: ControlArbiter
) -> Iterator[Callable[..., AuthProxy]]:
    """Proxies in front of nothing, with short limits."""
    monkeypatch.setattr(auth_proxy, "PATIENCE_S", 0.4)
    monkeypatch.setattr(auth_proxy, "CONNECTIONS", 3)
    opened: list[AuthProxy] = []

    def start(*, tls: bool = False) -> AuthProxy:
        context = server_context(own_certificate(tmp_path / "robolearn")) if tls else None
        sockets = {BEAT: lambda socket: serve_heartbeats(socket, arbiter, dict)}
        proxy = AuthProxy("", ("127.0.0.1", 1, "key"), Place("127.0.0.1"), context, sockets)
        proxy.open()
        opened.append(proxy)
        return proxy

    yield start
    for proxy in opened:
        proxy.close()


def beating(proxy: AuthProxy) -> ClientConnection:
    """The websocket of heartbeats, as a page opens it."""
    address = f"127.0.0.1:{proxy.port}"
    cookie = {"Cookie": session(proxy.port, proxy.access.token)}
    return connect(f"ws://{address}{BEAT}", origin=f"http://{address}", additional_headers=cookie, proxy=None)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize("tls", [False, True])
def test_a_client_that_takes_its_time_is_cut_off(impatient: Callable[..., AuthProxy], tls: bool) -> None:
    proxy = impatient(tls=tls)
    for sent in (b"", b"GET / HTTP/1.1\r\nHost: x\r\nX: "):
        with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
            client = trusting().wrap_socket(raw) if tls and sent else raw
            began = time.monotonic()
            with pytest.raises(OSError):
                while True:
                    client.send(sent)
                    sent = b"x" if sent else sent  # a byte now and then
                    client.settimeout(0.05)
                    with contextlib.suppress(TimeoutError):
                        if client.recv(1) == b"":
                            raise ConnectionResetError
                    assert time.monotonic() - began < 5
            assert time.monotonic() - began > 0.2


@pytest.mark.long
def test_a_websocket_lasts_longer_than_a_request(impatient: Callable[..., AuthProxy], arbiter: ControlArbiter) -> None:
    proxy = impatient()
    key = arbiter.join(1)
    with beating(proxy) as beat:
        beat.send(json.dumps({"key": key}))
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            assert json.loads(beat.recv(timeout=10))["role"] == "control"


def test_connections_are_limited(impatient: Callable[..., AuthProxy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_proxy, "PATIENCE_S", 20.0)
    proxy = impatient()
    cookie = session(proxy.port, proxy.access.token)
    good = f"GET / HTTP/1.1\r\nHost: localhost:{proxy.port}\r\nCookie: {cookie}\r\n\r\n".encode()

    def served() -> bool:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            try:
                client.sendall(good)
                return client.recv(100).startswith(b"HTTP/1.1 200")
            except ConnectionError:
                return False

    idle = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(3)]
    deadline = time.monotonic() + 10
    while served():  # the newest of them may not have been accepted yet
        assert time.monotonic() < deadline
    idle.pop().close()
    while not served():
        assert time.monotonic() < deadline
    for client in idle:
        client.close()


@pytest.mark.parametrize("tls", [False, True])
def test_silent_connections_do_not_use_up_the_files(
    impatient: Callable[..., AuthProxy], monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    monkeypatch.setattr(auth_proxy, "PATIENCE_S", 20.0)
    proxy = impatient(tls=tls)
    before = descriptors()
    silent = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(300)]
    try:
        deadline = time.monotonic() + 10
        while descriptors() > before + len(silent) + 3:  # ours, and those that are admitted
            assert time.monotonic() < deadline, f"{descriptors() - before - len(silent)} of the proxy's"
            time.sleep(0.05)
    finally:
        for client in silent:
            client.close()


def test_one_address_does_not_take_every_connection() -> None:
    limits, own = ConnectionLimits(4, 2, 20.0), [Line(f"10.0.0.{i}") for i in (1, 1, 1, 2, 3, 3)]

    async def enter() -> list[bool]:
        return [limits.enter(line) for line in own]

    assert asyncio.run(enter()) == [True, True, False, True, True, False]
    assert [line.aborted for line in own] == [False, False, True, False, False, True]
    limits.leave(own[0])
    assert asyncio.run(enter())[0], "there is room again"


@pytest.mark.long
def test_who_goes_in_mid_handshake_leaves_room(impatient: Callable[..., AuthProxy]) -> None:
    proxy = impatient(tls=True)
    for i in range(60):  # a page with TLS has room for three at once
        with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
            if i % 2:
                with contextlib.suppress(OSError):  # the last one may not have been counted out yet
                    trusting().wrap_socket(raw).close()
            else:
                raw.sendall(b"\x16\x03\x01" if i % 4 else b"hello")
    deadline = time.monotonic() + 10
    while proxy.limits.open:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_refusals_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    rare = RareLog(logging.getLogger("test"), lambda: now)
    for _ in range(1000):
        rare.warning("refused %s", "a page")
    now = 31.0
    rare.warning("refused %s", "a page")
    assert [record.getMessage() for record in caplog.records] == [
        "refused a page", "refused a page (999 more refused since the last line)",
    ]  # fmt: skip


def test_closing_tells_every_websocket(impatient: Callable[..., AuthProxy], arbiter: ControlArbiter) -> None:
    proxy = impatient()
    key = arbiter.join(1)
    with beating(proxy) as beat:
        beat.send(json.dumps({"key": key}))
        beat.recv(timeout=10)
        began = time.monotonic()
        threading.Thread(target=proxy.close).start()
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                beat.recv(timeout=10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001 and time.monotonic() - began < 3
