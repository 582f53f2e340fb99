"""Who may use the page: hosts, origins, token, TLS; with a page of viser behind the proxy, without a browser."""

from __future__ import annotations

import http.client
import ssl
import stat
import sys
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

sys.path.insert(0, str(Path(__file__).parent))
from browser_rig import interface_of
from page_client import VISER, cookies, device, get, knock, port_of, socket_to

from hardware.teleop.browser import BrowserConfig, Place
from hardware.teleop.browser.access import COOKIE, is_loopback
from hardware.teleop.browser.auth_proxy import AuthProxy, with_overlays
from hardware.teleop.browser.certificate import fingerprint, own_certificate, server_context
from hardware.teleop.browser.connection_limits import HEADER
from hardware.teleop.browser.device import Browser
from hardware.teleop.browser.page import BEAT
from robolearn.core import BadInput
from robots import ROBOTS

NAME = f"__Host-{COOKIE}"


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


def test_on_loopback_other_users_of_the_machine_are_refused(open_page: Browser) -> None:
    cookie, token = cookies(open_page)["Cookie"], open_page.url.partition("token=")[2]
    assert len(token) >= 43 and token not in cookie and get(open_page, Cookie=cookie).status == 200
    name = cookie.partition("=")[0]
    for guess in ("", f"{name}=", f"{name}={token}", cookie.replace(name, "robolearn"), cookie[:-1]):
        assert get(open_page, Cookie=guess).status == 403
        for path in ("/", BEAT):
            assert knock(open_page, path, Cookie=guess).status == 403
    given = get(open_page, f"/?token={token}", Cookie="")
    assert given.status == 303 and given.headers["Location"] == "/"
    assert {"HttpOnly", "SameSite=Strict"} <= set(given.headers["Set-Cookie"].split("; "))


@pytest.mark.long
def test_without_the_token_nothing_comes_in(closed_page: Browser) -> None:
    token = closed_page.url.partition("token=")[2]
    assert len(token) >= 43
    assert get(closed_page, tls=True).status == 403
    for path in ("/?token=", "/?token=" + token[:-1], "/?token=%00%FF", "/" + token, "/?Token=" + token):
        assert get(closed_page, path, tls=True).status == 403
    for cookie in ("", f"{NAME}=", f"{NAME}={token}", "x", f"{NAME}=\xfc"):
        assert get(closed_page, tls=True, Cookie=cookie).status == 403
        for path in ("/", BEAT):
            assert knock(closed_page, path, tls=True, Cookie=cookie).status == 403

    given = get(closed_page, f"/?token={token}", tls=True)
    cookie = given.headers["Set-Cookie"]
    assert given.status == 303 and given.headers["Location"] == "/" and token not in cookie
    assert {"Secure", "HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    cookie = cookie.partition(";")[0]
    assert get(closed_page, tls=True, Cookie=cookie).status == 200
    assert get(closed_page, tls=True, Cookie=cookie, Host="evil.example").status == 403
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
    path = Path(closed_page.config.folder or "") / "served.pem"
    path.write_text(pem)
    assert fingerprint(path) in closed_page.notice


def test_viser_itself_answers_nobody_else_and_shares_nothing(open_page: Browser) -> None:
    host, port, key = open_page.page.guarded.address  # type: ignore[union-attr]
    assert is_loopback(host)
    for offered in ({}, {HEADER: ""}, {HEADER: "guessed"}, {HEADER: key[:-1]}):
        connection = http.client.HTTPConnection(host, port, timeout=10)
        connection.request("GET", "/", headers=offered)
        answer = connection.getresponse()
        assert answer.status == 403 and len(answer.read()) < 20
        with pytest.raises(InvalidStatus, match="403"):
            connect(f"ws://{host}:{port}", subprotocols=VISER, additional_headers=offered, proxy=None)  # type: ignore[arg-type]
    with connect(f"ws://{host}:{port}", subprotocols=VISER, additional_headers={HEADER: key}, proxy=None) as viser:  # type: ignore[arg-type]
        assert isinstance(viser.recv(timeout=10), bytes)
    assert open_page.page.server.request_share_url() is None  # type: ignore[union-attr]


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
        Browser(interface_of("panda"), ROBOTS["panda"], BrowserConfig(port=port_of(open_page))).open()
    with pytest.raises(BadInput, match="address of the page"):
        device(
            host="127.0.0.1.example.invalid", certificate=own_certificate(Path(open_page.config.folder or "/tmp"))
        ).open()
    with pytest.raises(BadInput, match="without TLS"):
        AuthProxy("", ("127.0.0.1", 1, "key"), Place("0.0.0.0"), None, {})
    with pytest.raises(BadInput, match="viser's page"):
        with_overlays("<html>", "overlay")
