"""The websocket of a page: its key, its heartbeats, and messages that are too long."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

sys.path.insert(0, str(Path(__file__).parent))
from page_client import socket_to

from hardware.teleop import Status
from hardware.teleop.browser.auth_proxy import LONGEST
from hardware.teleop.browser.device import Browser
from hardware.teleop.browser.page import BEAT

pytestmark = pytest.mark.realtime


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

        def until(holds: Callable[[], bool], beats: Callable[[], dict[str, Any]]) -> None:
            """The page goes on beating: on a busy machine one alone counts as silence before it is looked at."""
            while not holds():
                assert time.monotonic() < deadline
                beat.send(json.dumps(beats()))
                time.sleep(0.01)

        until(lambda: arbiter.request().engaged, lambda: {"press": 1})
        held_up = {"press": 1, "t": told["t"] - 10.0}  # on its way
        until(lambda: not (r := arbiter.request()).engaged and "slow" in r.note, lambda: held_up)
        until(lambda: arbiter.request().engaged, lambda: {"press": 2, "t": time.monotonic()})
        until(lambda: not arbiter.request().engaged, lambda: {"hidden": True})
        beat.send(json.dumps({"press": 3}))
    while not (request := arbiter.request()).note:
        assert time.monotonic() < deadline
    assert not request.engaged  # the websocket has ended
    arbiter.leave(1000)


def test_a_message_nested_too_deeply_is_said_once_and_ends_nothing(open_page: Browser, caplog: Any) -> None:
    deep, arbiter = "[" * 200_000, open_page.arbiter
    with socket_to(open_page, BEAT) as beat:  # in place of a key
        beat.send(deep)
        with pytest.raises(ConnectionClosed) as closed:
            beat.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.reason == "message of a page: got JSON nested too deeply, expected a JSON object"
    key, deadline = arbiter.join(3000), time.monotonic() + 10
    arbiter.claim(3000)
    try:
        with caplog.at_level("WARNING"), socket_to(open_page, BEAT) as beat:
            beat.send(json.dumps({"key": key}))
            for bad in (deep, '{"press":' * 100_000, "{"):
                beat.send(bad)
            while not arbiter.request().engaged:
                assert time.monotonic() < deadline
                beat.send(json.dumps({"press": 1}))
                time.sleep(0.01)
        while arbiter.request().engaged:
            assert time.monotonic() < deadline
    finally:
        arbiter.leave(3000)
    said = [record.getMessage() for record in caplog.records if "message of a page" in record.getMessage()]
    assert said == [
        "message of a page: got JSON nested too deeply, expected a JSON object: passed over",
        "message of a page: 3 could not be read",
    ]


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
