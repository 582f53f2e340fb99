"""The auth proxy: hosts, origins, token, TLS, keys and limits; with a page of viser behind it, without a browser."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import viser
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

sys.path.insert(0, str(Path(__file__).parent))
from browser_rig import interface_of

from hardware.teleop import Status
from hardware.teleop.browser import Browser, auth_proxy
from hardware.teleop.browser.access import COOKIE, is_loopback
from hardware.teleop.browser.auth_proxy import BEAT, LONGEST, AuthProxy, with_overlay
from hardware.teleop.browser.certificate import fingerprint, own_certificate, server_context
from hardware.teleop.browser.control_arbiter import ControlArbiter
from hardware.teleop.browser.page import hidden_loopback, mosaic
from robolearn.core import BadInput
from robots import ROBOTS

pytestmark = pytest.mark.realtime

VISER = [f"viser-v{viser.__version__}"]


def device(**options) -> Browser:
    return Browser(interface_of("panda"), ROBOTS["panda"], port=0, **options)


@pytest.fixture(scope="module")
def open_page() -> Iterator[Browser]:
    """On loopback."""
    page = device()
    page.open()
    yield page
    page.close()


@pytest.fixture(scope="module")
def closed_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """As beyond loopback: with TLS and a token."""
    page = device(host="0.0.0.0", folder=tmp_path_factory.mktemp("config"))
    page.open()
    yield page
    page.close()


def port_of(page: Browser) -> int:
    return int(page.url.split("//")[1].rpartition(":")[2].partition("/")[0])


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def get(page: Browser, path: str = "/", *, tls: bool = False, **headers: str) -> http.client.HTTPResponse:
    if tls:
        connection = http.client.HTTPSConnection("127.0.0.1", port_of(page), context=trusting(), timeout=10)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port_of(page), timeout=10)
    connection.putrequest("GET", path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse()


def knock(
    page: Browser, path: str = "/", *, origin: str | None = "own", tls: bool = False, **headers: str
) -> http.client.HTTPResponse:
    """The answer to a websocket's handshake; written by hand, for refusals are what is looked at."""
    own = f"{'https' if tls else 'http'}://127.0.0.1:{port_of(page)}"
    asked = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": VISER[0],
        **headers,
    }
    if origin is not None:
        asked["Origin"] = own if origin == "own" else origin
    return get(page, path, tls=tls, **asked)


def socket_to(page: Browser, path: str = "/", *, tls: bool = False, **headers: str):
    here = f"127.0.0.1:{port_of(page)}"
    return connect(
        f"{'wss' if tls else 'ws'}://{here}{path}",
        origin=f"{'https' if tls else 'http'}://{here}",  # type: ignore[arg-type]
        subprotocols=VISER if path == "/" else None,  # type: ignore[arg-type]
        additional_headers=headers,
        ssl=trusting() if tls else None,
        proxy=None,
        max_size=None,
    )


def spoken(page: Browser, text: str) -> bytes:
    """All that is answered to these bytes, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port_of(page)), timeout=10) as client:
        answer = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(text.encode())
            while piece := client.recv(1 << 16):
                answer += piece
        return answer


def test_the_page_is_visers_with_the_switch_in_it(open_page: Browser) -> None:
    answer = get(open_page)
    text = answer.read().decode()
    assert answer.status == 200 and "robolearn" in text and len(text) > 100_000
    assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
    assert get(open_page, "/index.html").status == 404
    assert get(open_page, "/../etc/passwd").status == 404
    # viser would take another server from a link.
    led = get(open_page, "/?websocket=wss://evil.example")
    assert led.status == 303 and led.headers["Location"] == "/"


def test_on_loopback_other_sites_are_refused(open_page: Browser) -> None:
    port = port_of(open_page)
    assert get(open_page, Host=f"localhost:{port}").status == 200
    for host in ("evil.example", f"evil.example:{port}", "localhost", f"localhost:{port + 1}", ""):
        assert get(open_page, Host=host).status == 403
    for origin in ("https://evil.example", f"http://localhost:{port}", f"https://127.0.0.1:{port}", "null", None):
        for path in ("/", BEAT):
            assert knock(open_page, path, origin=origin).status == 403
    with socket_to(open_page) as page:
        assert isinstance(page.recv(timeout=10), bytes)  # viser speaks


def test_only_a_key_of_a_page_has_a_switch(open_page: Browser) -> None:
    with socket_to(open_page) as page:  # a client of viser, which is told its key
        page.recv(timeout=10)
        with socket_to(open_page, BEAT) as beat:
            beat.send(json.dumps({"key": "guessed"}))
            with pytest.raises(ConnectionClosed):
                beat.recv(timeout=10)
    with socket_to(open_page, BEAT) as beat:
        beat.send("[1, 2")
        with pytest.raises(ConnectionClosed):
            beat.recv(timeout=10)


def test_beats_of_a_page(open_page: Browser) -> None:
    arbiter = open_page.arbiter
    key = arbiter.join(1000)
    arbiter.claim(1000)
    arbiter.place(np.zeros(3), np.eye(3), 1.0)
    open_page.show(Status("recording", "go", 1, 5, 3, 0.15))
    with socket_to(open_page, BEAT) as beat:
        beat.send(json.dumps({"key": key}))
        told = json.loads(beat.recv(timeout=10))
        assert told["role"] == "control" and told["state"] == "recording" and told["episode"] == 1
        for nonsense in ({"press": "x"}, {"press": -1}, {"press": True}, {"event": "explode"}, {"event": []}, {}, 7):
            beat.send(json.dumps(nonsense))
        beat.send(json.dumps({"event": "success", "grip": 0.25}))
        deadline = time.monotonic() + 10
        while not (request := arbiter.request()).events:
            assert time.monotonic() < deadline
            assert not request.engaged
            beat.send(json.dumps({"press": 0}))
        assert request.events == ("success",) and request.opening == 0.25
        while not arbiter.request().engaged:
            assert time.monotonic() < deadline
            beat.send(json.dumps({"press": 1}))
            time.sleep(0.01)
        beat.send(json.dumps({"press": 1, "t": told["t"] - 10.0}))  # held up on its way
        while arbiter.request().engaged:
            assert time.monotonic() < deadline
        assert "slow" in arbiter.request().note
        beat.send(json.dumps({"press": 2, "t": time.monotonic()}))
        while not arbiter.request().engaged:
            assert time.monotonic() < deadline
        beat.send(json.dumps({"hidden": True}))
        while arbiter.request().engaged:
            assert time.monotonic() < deadline
        beat.send(json.dumps({"press": 3}))
    while not (request := arbiter.request()).note:
        assert time.monotonic() < deadline
    assert not request.engaged  # the websocket has ended
    arbiter.leave(1000)


def test_without_the_token_nothing_comes_in(closed_page: Browser) -> None:
    token = closed_page.url.partition("token=")[2]
    assert len(token) >= 43
    assert get(closed_page, tls=True).status == 403
    for path in ("/?token=", "/?token=" + token[:-1], "/?token=%00%FF", "/" + token, "/?Token=" + token):
        assert get(closed_page, path, tls=True).status == 403
    for cookie in ("", f"{COOKIE}=", f"{COOKIE}={token}", "x", f"{COOKIE}=\xfc"):
        assert get(closed_page, tls=True, Cookie=cookie).status == 403
        for path in ("/", BEAT):
            assert knock(closed_page, path, tls=True, Cookie=cookie).status == 403

    given = get(closed_page, f"/?token={token}", tls=True)
    cookie = given.headers["Set-Cookie"]
    assert given.status == 303 and given.headers["Location"] == "/" and token not in cookie
    assert {"Secure", "HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    cookie = cookie.partition(";")[0]
    assert get(closed_page, tls=True, Cookie=cookie).status == 200
    for others in ("a[0]=1; %s", "%s; {}", 'json={"a": 1, "b": 2}; %s ; x', "=; ;%s", "n=\xfc; %s"):
        assert get(closed_page, tls=True, Cookie=others % cookie).status == 200, others
    assert knock(closed_page, origin="https://evil.example", tls=True, Cookie=cookie).status == 403
    assert knock(closed_page, tls=True, Cookie=cookie).status == 101
    with socket_to(closed_page, tls=True, Cookie=cookie) as page:
        assert isinstance(page.recv(timeout=10), bytes)


def test_plain_http_is_refused(closed_page: Browser) -> None:
    with pytest.raises((http.client.HTTPException, OSError)):
        get(closed_page)
    assert "https://" in closed_page.notice and "█" in closed_page.notice  # a QR code


def test_the_fingerprint_shown_is_the_one_served(closed_page: Browser) -> None:
    pem = ssl.get_server_certificate(("127.0.0.1", port_of(closed_page)))
    path = Path(closed_page._folder or "") / "served.pem"
    path.write_text(pem)
    assert fingerprint(path) in closed_page.notice


def test_viser_itself_is_hidden_and_shares_nothing(open_page: Browser) -> None:
    host, port = open_page._page.address  # type: ignore[union-attr]
    assert is_loopback(host) and host != "127.0.0.1" and host != hidden_loopback()
    for other in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(OSError):
            socket.create_connection((other, port), timeout=1).close()
    assert open_page._page._server.request_share_url() is None  # type: ignore[union-attr]


def test_the_certificate_is_kept_and_private(tmp_path: Path) -> None:
    path = own_certificate(tmp_path / "robolearn")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert own_certificate(path.parent) == path
    before = path.read_bytes()
    own_certificate(path.parent)
    assert path.read_bytes() == before
    assert server_context(path).minimum_version == ssl.TLSVersion.TLSv1_2
    path.chmod(0o644)
    with pytest.raises(BadInput, match="mode 0644"):
        own_certificate(path.parent)
    with pytest.raises(BadInput, match="TLS certificate"):
        server_context(tmp_path / "none.pem")
    (tmp_path / "text.pem").write_text("hello")
    with pytest.raises(BadInput, match="certificate"):
        fingerprint(tmp_path / "text.pem")
    with pytest.raises(BadInput, match="folder for the page's certificate"):
        own_certificate(Path("/proc/robolearn"))


def test_addresses_that_cannot_be_listened_on(open_page: Browser) -> None:
    with pytest.raises(BadInput, match="in use"):
        Browser(interface_of("panda"), ROBOTS["panda"], port=port_of(open_page)).open()
    with pytest.raises(BadInput, match="address of the page"):
        device(host="127.0.0.1.example.invalid", certificate=own_certificate(Path(open_page._folder or "/tmp"))).open()
    with pytest.raises(BadInput, match="without TLS"):
        AuthProxy("</head>", ("127.0.0.1", 1), ControlArbiter(), host="0.0.0.0", port=0, tls=None, status=dict)
    with pytest.raises(BadInput, match="viser's page"):
        with_overlay("<html>")


@pytest.mark.parametrize(
    "request_",
    [
        "GET / HTTP/1.1\r\nHost: {own}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {own}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {own}\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {own}\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {own}\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: {own}\r\nContent-Length: 0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {own}\r\nHost: {own}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : {own}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: evil.example\r\n {own}\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET http://{own}/ HTTP/1.1\r\nHost: {own}\r\n\r\n",
        "CONNECT {own} HTTP/1.1\r\nHost: {own}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {own}\r\nX: " + 9000 * "x" + "\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {own}\r\n" + 200 * "X: y\r\n" + "\r\n",
        "GET /" + 9000 * "x" + " HTTP/1.1\r\nHost: {own}\r\n\r\n",
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused_with_all_that_follows(
    open_page: Browser, request_: str
) -> None:
    own = f"127.0.0.1:{port_of(open_page)}"
    good = f"GET / HTTP/1.1\r\nHost: {own}\r\n\r\n"
    answer = spoken(open_page, request_.replace("{own}", own) + good)
    assert len(re.findall(rb"HTTP/1\.\d \d", answer)) <= 1
    assert not answer or answer.split()[1] in (b"400", b"403", b"405", b"431"), answer[:200]
    assert spoken(open_page, good).split()[1] == b"200", "the request alone is served"


def test_one_connection_carries_one_request(open_page: Browser) -> None:
    own = f"127.0.0.1:{port_of(open_page)}"
    good, bad = (f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n" for host in (own, "evil.example"))
    for requests, code in ((bad + good, b"403"), (good + good, b"200")):
        answer = spoken(open_page, requests)
        assert answer.count(b"HTTP/1.1 ") == 1 and answer.split()[1] == code
    # What follows a refused handshake is no websocket.
    handshake = f"GET / HTTP/1.1\r\nHost: {own}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    answer = spoken(open_page, handshake + good)
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.split()[1] == b"403"


def test_a_message_that_is_too_long_ends_the_websocket(open_page: Browser) -> None:
    arbiter = open_page.arbiter
    key = arbiter.join(2000)
    arbiter.claim(2000)
    try:
        with socket_to(open_page, BEAT) as beat:
            beat.send(json.dumps({"key": key}))
            beat.recv(timeout=10)
            beat.send(json.dumps({"press": 0, "x": "x" * (LONGEST // 2)}))
            beat.send(json.dumps({"press": 1}))
            deadline = time.monotonic() + 10
            while not arbiter.request().engaged:
                assert time.monotonic() < deadline
                beat.send(json.dumps({"press": 1}))
                time.sleep(0.01)
            with pytest.raises(ConnectionClosed) as closed:
                beat.send("x" * (LONGEST + 1))
                while True:
                    beat.recv(timeout=10)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
        while arbiter.request().engaged:
            assert time.monotonic() < deadline
    finally:
        arbiter.leave(2000)
    with socket_to(open_page) as page:  # viser's own websocket has the same limit
        page.recv(timeout=10)
        with pytest.raises(ConnectionClosed):
            page.send(b"x" * (LONGEST + 1))
            while True:
                page.recv(timeout=10)


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


def test_pictures_of_any_size_fit_the_page() -> None:
    for shapes in ([(96, 96)], [(480, 640), (96, 96)], [(10, 700), (700, 10), (1, 1)]):
        picture = mosaic([np.full((*shape, 3), 9, np.uint8) for shape in shapes])
        assert picture.dtype == np.uint8 and picture.shape[2] == 3 and (picture == 9).any()
