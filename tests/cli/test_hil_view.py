"""The console of `robolearn hil` where a person teleoperates at a terminal, and viser is here."""

from __future__ import annotations

import importlib.util
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from robolearn.cli.main import main, parse
from robolearn.cli.registry import ENTRIES
from robolearn.hil.device_operator import PageConsole
from sim.registry import make_env


def actor(tmp_path: Path, *words: str, name: str = "hil actor") -> Any:
    entry = next(entry for entry in ENTRIES if entry.name == name)
    return parse(entry, ["--policy", "x", "--out", str(tmp_path), "--task", "lift", *words])


@pytest.mark.parametrize(
    ("words", "port"),
    [
        ("--teleop keyboard", 0),
        ("--teleop gamepad --view auto", 0),
        ("--teleop keyboard --view none", None),
        ("--teleop keyboard --view none --console 8071", 8071),
        ("--teleop keyboard --console 8071", 8071),
        ("--teleop browser", None),  # has a page of its own
        ("--operator scripted", None),
        ("--operator scripted --view browser", 0),
    ],
)
def test_a_page_is_the_default_beside_a_device_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, port: int | None
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert actor(tmp_path, *words.split()).console_port == port
    handed_on = actor(tmp_path, *words.split(), name="hil run").actor_words("127.0.0.1:1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)  # as in the processes of `hil run`
    assert actor(tmp_path, *handed_on).console_port == port


def test_without_a_terminal_or_without_viser_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teaching = actor(tmp_path, "--teleop", "keyboard")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert teaching.console_port is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert teaching.console_port is None


@pytest.mark.long
def test_its_address_is_printed_and_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    interface = make_env("lift", 1, threads=1).interface
    with actor(tmp_path, "--teleop", "keyboard").opened_page(interface, None, lambda: False) as page:
        assert isinstance(page, PageConsole)
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", capsys.readouterr().err)
        assert found is not None and found[0] == (tmp_path / "console").read_text().strip()
        request = urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(found[0], timeout=30)
        assert request.status == 200 and b"<html" in request.read()
    assert not (tmp_path / "console").exists()


def test_a_window_needs_a_desktop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["hil", "run", "--policy", "x", "--out", str(tmp_path / "n"), "--view", "window"]) == 2
    assert "--view window: got no display" in capsys.readouterr().err
