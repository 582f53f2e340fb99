"""Who may come in: hosts, origins, token, TLS, keys; with a page of viser behind the gate and without a browser."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import viser
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

sys.path.insert(0, str(Path(__file__).parent))
from browser_rig import interface_of

from hardware.teleop import Status
from hardware.teleop.browser import Browser, gate
from hardware.teleop.browser.certificate import fingerprint, own_certificate, server_context
from hardware.teleop.browser.desk import Desk
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
        for path in ("/", gate.BEAT):
            assert knock(open_page, path, origin=origin).status == 403
    with socket_to(open_page) as page:
        assert isinstance(page.recv(timeout=10), bytes)  # viser speaks


def test_only_a_key_of_a_page_has_a_switch(open_page: Browser) -> None:
    with socket_to(open_page) as page:  # a client of viser, which is told its key
        page.recv(timeout=10)
        with socket_to(open_page, gate.BEAT) as beat:
            beat.send(json.dumps({"key": "guessed"}))
            with pytest.raises(ConnectionClosed):
                beat.recv(timeout=10)
    with socket_to(open_page, gate.BEAT) as beat:
        beat.send("[1, 2")
        with pytest.raises(ConnectionClosed):
            beat.recv(timeout=10)


def test_beats_of_a_page(open_page: Browser) -> None:
    desk = open_page.desk
    key = desk.join(1000)
    desk.claim(1000)
    desk.place(np.zeros(3), np.eye(3), 1.0)
    open_page.show(Status("recording", "go", 1, 5, 3, 0.15))
    with socket_to(open_page, gate.BEAT) as beat:
        beat.send(json.dumps({"key": key}))
        told = json.loads(beat.recv(timeout=10))
        assert told["role"] == "control" and told["state"] == "recording" and told["episode"] == 1
        for nonsense in ({"press": "x"}, {"press": -1}, {"press": True}, {"event": "explode"}, {"event": []}, {}, 7):
            beat.send(json.dumps(nonsense))
        beat.send(json.dumps({"event": "success", "grip": 0.25}))
        deadline = time.monotonic() + 10
        while not (wish := desk.wish()).events:
            assert time.monotonic() < deadline
            assert not wish.engaged
            beat.send(json.dumps({"press": 0}))
        assert wish.events == ("success",) and wish.opening == 0.25
        while not desk.wish().engaged:
            assert time.monotonic() < deadline
            beat.send(json.dumps({"press": 1}))
            time.sleep(0.01)
        beat.send(json.dumps({"press": 1, "t": told["t"] - 10.0}))  # held up on its way
        while desk.wish().engaged:
            assert time.monotonic() < deadline
        assert "slow" in desk.wish().note
        beat.send(json.dumps({"press": 2, "t": time.monotonic()}))
        while not desk.wish().engaged:
            assert time.monotonic() < deadline
        beat.send(json.dumps({"hidden": True}))
        while desk.wish().engaged:
            assert time.monotonic() < deadline
        beat.send(json.dumps({"press": 3}))
    while not (wish := desk.wish()).note:
        assert time.monotonic() < deadline
    assert not wish.engaged  # the websocket has ended
    desk.leave(1000)


def test_without_the_token_nothing_comes_in(closed_page: Browser) -> None:
    token = closed_page.url.partition("token=")[2]
    assert len(token) >= 43
    assert get(closed_page, tls=True).status == 403
    for path in ("/?token=", "/?token=" + token[:-1], "/?token=%00%FF", "/" + token, "/?Token=" + token):
        assert get(closed_page, path, tls=True).status == 403
    for cookie in ("", f"{gate.COOKIE}=", f"{gate.COOKIE}={token}", "x", f"{gate.COOKIE}=\xfc"):
        assert get(closed_page, tls=True, Cookie=cookie).status == 403
        for path in ("/", gate.BEAT):
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
    assert gate.is_loopback(host) and host != "127.0.0.1" and host != hidden_loopback()
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
        gate.Gate("</head>", ("127.0.0.1", 1), Desk(), host="0.0.0.0", port=0, tls=None, say=dict)
    with pytest.raises(BadInput, match="viser's page"):
        gate.with_overlay("<html>")


def test_pictures_of_any_size_fit_the_page() -> None:
    for shapes in ([(96, 96)], [(480, 640), (96, 96)], [(10, 700), (700, 10), (1, 1)]):
        picture = mosaic([np.full((*shape, 3), 9, np.uint8) for shape in shapes])
        assert picture.dtype == np.uint8 and picture.shape[2] == 3 and (picture == 9).any()
