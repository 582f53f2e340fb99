"""Limits of connections: how many at once, how long a request may take, and how they end."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

sys.path.insert(0, str(Path(__file__).parent))
from page_client import trusting

from hardware.teleop.browser import auth_proxy
from hardware.teleop.browser.auth_proxy import BEAT, AuthProxy
from hardware.teleop.browser.certificate import own_certificate, server_context
from hardware.teleop.browser.control_arbiter import ControlArbiter

pytestmark = pytest.mark.realtime


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., AuthProxy]]:
    """Proxies in front of nothing, with short limits."""
    monkeypatch.setattr(auth_proxy, "PATIENCE_S", 0.4)
    monkeypatch.setattr(auth_proxy, "CONNECTIONS", 3)
    opened: list[AuthProxy] = []

    def start(*, tls: bool = False) -> AuthProxy:
        context = server_context(own_certificate(tmp_path / "robolearn")) if tls else None
        proxy = AuthProxy(
            "</head>", ("127.0.0.1", 1), ControlArbiter(), host="127.0.0.1", port=0, tls=context, status=dict
        )
        proxy.open()
        opened.append(proxy)
        return proxy

    yield start
    for proxy in opened:
        proxy.close()


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


def test_a_websocket_lasts_longer_than_a_request(impatient: Callable[..., AuthProxy]) -> None:
    proxy = impatient()
    key = proxy._arbiter.join(1)
    address = f"127.0.0.1:{proxy.port}"
    with connect(f"ws://{address}{BEAT}", origin=f"http://{address}", proxy=None) as beat:  # type: ignore[arg-type]
        beat.send(json.dumps({"key": key}))
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            assert json.loads(beat.recv(timeout=10))["role"] == "control"


def test_connections_are_limited(impatient: Callable[..., AuthProxy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_proxy, "PATIENCE_S", 20.0)
    proxy = impatient()
    good = f"GET / HTTP/1.1\r\nHost: localhost:{proxy.port}\r\n\r\n".encode()

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


def test_closing_tells_every_websocket(impatient: Callable[..., AuthProxy]) -> None:
    proxy = impatient()
    key = proxy._arbiter.join(1)
    address = f"127.0.0.1:{proxy.port}"
    with connect(f"ws://{address}{BEAT}", origin=f"http://{address}", proxy=None) as beat:  # type: ignore[arg-type]
        beat.send(json.dumps({"key": key}))
        beat.recv(timeout=10)
        began = time.monotonic()
        threading.Thread(target=proxy.close).start()
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                beat.recv(timeout=10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001 and time.monotonic() - began < 3
