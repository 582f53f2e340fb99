"""A page of viser behind its auth proxy, and clients that speak to it, by hand where refusals are looked at."""

from __future__ import annotations

import contextlib
import functools
import http.client
import re
import socket
import ssl
from typing import Any

import viser
from browser_rig import interface_of
from websockets.sync.client import connect

from hardware.teleop.browser import BrowserConfig
from hardware.teleop.browser.device import Browser
from robots import ROBOTS

VISER = [f"viser-v{viser.__version__}"]


def device(**options: Any) -> Browser:
    """On any free port; closed until `open`."""
    return Browser(interface_of("panda"), ROBOTS["panda"], BrowserConfig(port=0, **options))


def port_of(page: Browser) -> int:
    return int(page.url.split("//")[1].rpartition(":")[2].partition("/")[0])


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@functools.cache
def session(port: int, token: str) -> str:
    """The cookie for which the page at `port` on loopback takes its token."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", f"/?token={token}")
    return connection.getresponse().headers["Set-Cookie"].partition(";")[0]


def cookies(page: Browser) -> dict[str, str]:
    """The header that a browser on this machine sends once it has opened the page's address; none with TLS."""
    if page.url.startswith("https:"):
        return {}
    return {"Cookie": session(port_of(page), page.url.partition("token=")[2])}


def get(page: Browser, path: str = "/", *, tls: bool = False, **headers: str) -> http.client.HTTPResponse:
    headers = cookies(page) | headers
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


def socket_to(page: Browser, path: str = "/", *, tls: bool = False, **headers: str) -> Any:
    """A websocket that a page would open."""
    here = f"127.0.0.1:{port_of(page)}"
    return connect(
        f"{'wss' if tls else 'ws'}://{here}{path}",
        origin=f"{'https' if tls else 'http'}://{here}",  # type: ignore[arg-type]
        subprotocols=VISER if path == "/" else None,  # type: ignore[arg-type]
        additional_headers=cookies(page) | headers,
        ssl=trusting() if tls else None,
        proxy=None,
        max_size=None,
    )


def spoken(page: Browser, text: str) -> bytes:
    """All that is answered to these bytes, each request with the page's cookie, until the connection is closed."""
    (cookie,) = cookies(page).values()
    text = re.sub(r"(HTTP/1\.1\r\n)", rf"\1Cookie: {cookie}\r\n", text)
    with socket.create_connection(("127.0.0.1", port_of(page)), timeout=10) as client:
        answer = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(text.encode())
            while piece := client.recv(1 << 16):
                answer += piece
        return answer
