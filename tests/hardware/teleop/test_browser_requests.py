"""Requests written by hand: what can be read in two ways is refused, and no answer names a library."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from aiohttp import WSMessage, WSMsgType

sys.path.insert(0, str(Path(__file__).parent))
from page_client import knock, port_of, spoken

from hardware.teleop.browser.device import Browser
from hardware.teleop.browser.page import parsed
from robolearn.core import BadInput


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


HANDSHAKE = "Upgrade: websocket\r\nConnection: Upgrade\r\nOrigin: http://{own}\r\nSec-WebSocket-Version: "


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ("GET / HTTP/1.1\r\nHost: {own}\r\n\r\n", 200),
        ("GET /?x HTTP/1.1\r\nHost: {own}\r\n\r\n", 303),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        ("GET /x HTTP/1.1\r\nHost: {own}\r\n\r\n", 404),
        ("POST / HTTP/1.1\r\nHost: {own}\r\n\r\n", 405),
        # Those that aiohttp refuses by itself: no HTTP, a line that is too long, handshakes that are none.
        ("hello\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: {own}\r\nX: " + 9000 * "x" + "\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: {own}\r\n" + HANDSHAKE + "13\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: {own}\r\n" + HANDSHAKE + "7\r\nSec-WebSocket-Key: eA==\r\n\r\n", 400),
    ],
)
def test_answers_name_no_library(open_page: Browser, request_: str, code: int) -> None:
    own = f"127.0.0.1:{port_of(open_page)}"
    check_answer(spoken(open_page, request_.replace("{own}", own)), code)


def test_a_websocket_and_an_error_name_no_library(open_page: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = knock(open_page)
    assert opened.status == 101 and opened.headers.get_all("Server") == ["robolearn"]
    assert open_page.page is not None
    monkeypatch.setattr(open_page.page.guarded.proxy.access, "answer", None)  # type: ignore[union-attr]  # what calls it fails
    check_answer(spoken(open_page, f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port_of(open_page)}\r\n\r\n"), 500)


def check_answer(answer: bytes, code: int) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == str(code).encode(), head
    fields = [line.lower() for line in head.split(b"\r\n")]
    assert [field for field in fields if field.startswith(b"server:")] == [b"server: robolearn"], head
    assert any(field.startswith(b"content-security-policy: default-src 'none'") for field in fields), head
    assert b"aiohttp" not in answer and (code == 200 or b"ython" not in answer), answer[:500]
    assert code == 200 or len(body) < 100, body


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("[" * 200_000, "JSON nested too deeply"),
        ('{"a":' * 200_000, "JSON nested too deeply"),
        ("{", "no JSON,"),
        ("7", "no JSON object"),
    ],
)
def test_a_message_that_cannot_be_read_is_refused(text: str, got: str) -> None:
    with pytest.raises(BadInput, match=f"message of a page: got {got}.*expected a JSON object"):
        parsed(WSMessage(WSMsgType.TEXT, text, None))
