"""A device that is shown on a page, invitations to a window, and where no window can be opened; without a browser."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from page_client import get

from hardware.teleop.browser import access as access_module
from hardware.teleop.browser.device import Browser
from hardware.teleop.browser.page import ViewPage, line
from hardware.teleop.browser.viewer import Viewer, check_window, open_window
from hardware.teleop.device import Device, Sample, Status
from hardware.teleop.wrapped import Viewed
from robolearn.cli.view import chosen
from robolearn.core import BadInput
from robots import PANDA

STATUS = Status("recording", "lift <it>", 2, 10, 12, 3.25, joints=np.array(PANDA.home), opening=0.04)


class Told:
    """A `Device` that stores what it is told."""

    name = "told"

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.given = Sample(None, True, (), 1.0)

    def open(self) -> None:
        self.heard.append("open")

    def close(self) -> None:
        self.heard.append("close")

    def sample(self, observation: object) -> Sample:
        self.heard.append(observation)
        return self.given

    def prepared(self) -> None:
        self.heard.append("prepared")

    def show(self, status: Status) -> None:
        self.heard.append(status)


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    viewer = Viewer(PANDA)
    viewer.open()
    yield viewer
    viewer.close()


def test_the_device_is_as_it_was_and_its_page_closes_with_it(viewer: Viewer) -> None:
    told = Told()
    device = Viewed(told, viewer)
    assert isinstance(device, Device) and device.name == "told"
    device.open()
    device.prepared()
    assert device.sample({}) is told.given
    device.show(STATUS)
    device.close()
    device.close()
    assert told.heard == ["open", "prepared", {}, STATUS, "close", "close"]
    assert viewer.status is STATUS and viewer.page is None


def test_a_page_that_hangs_holds_nobody_up(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing, go_on, drawn = threading.Event(), threading.Event(), []

    def draw(page: ViewPage, status: Status, **_: object) -> None:
        drawn.append(status)
        drawing.set()
        go_on.wait(20.0)

    monkeypatch.setattr(ViewPage, "watched", True)
    monkeypatch.setattr(ViewPage, "update", draw)
    device = Viewed(Told(), viewer)
    try:
        device.show(STATUS)
        assert drawing.wait(10.0) and drawn == [STATUS]
        begun = time.monotonic()
        for _ in range(100):
            device.show(STATUS)
        assert time.monotonic() - begun < 15.0  # one picture here takes 20 s
    finally:
        go_on.set()


@pytest.mark.long
def test_nothing_is_drawn_while_nobody_looks(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Status] = []
    monkeypatch.setattr(ViewPage, "update", lambda page, status, **_: drawn.append(status))
    viewer.show(STATUS)
    time.sleep(0.5)
    assert drawn == [] and not viewer.watched
    monkeypatch.setattr(ViewPage, "watched", True)
    deadline = time.monotonic() + 10.0
    while not drawn:
        assert time.monotonic() < deadline, "somebody looks, and nothing is drawn"
        time.sleep(0.05)


@pytest.mark.long
def test_a_taken_port_does_not_end_the_recording(viewer: Viewer) -> None:
    port = int(viewer.url.split(":")[2].partition("/")[0])
    second = Viewer(PANDA)
    second.open(port=port)
    try:
        assert second.url and f":{port}/" not in second.url
    finally:
        second.close()
    with pytest.raises(BadInput, match="address of the page"):
        Viewer(PANDA).open("203.0.113.7")


def test_the_line_says_what_happens_and_holds_no_markup_of_others() -> None:
    html = line(STATUS)
    assert "recording · episode 3 of 10" in html and "3.2 s" in html and "lift &lt;it&gt;" in html
    assert "episode 3<" in line(Status("teleoperating", "", 2, 0, 0, 0.0))


@pytest.mark.parametrize(
    ("view", "teleop", "tty", "means"),
    [
        *(("auto", name, True, "browser") for name in ("keyboard", "gamepad", "spacemouse", "leader")),
        ("auto", "keyboard", False, "none"),
        ("auto", "scripted", True, "none"),
        ("auto", "browser", True, "none"),
        ("window", "scripted", False, "window"),
        ("none", "keyboard", True, "none"),
    ],
)
def test_who_has_no_page_is_shown_one(
    view: str, teleop: str, tty: bool, means: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: tty)
    assert chosen(view, teleop) == means  # type: ignore[arg-type]


# --- a window --------------------------------------------------------------------------------------------------------


def path_of(url: str) -> str:
    return "/" + url.split("/", 3)[3]


def test_an_invitation_counts_once(open_page: Browser) -> None:
    url = open_page.invitation()
    assert open_page.url.partition("token=")[2] not in url and url != open_page.invitation()
    given = get(open_page, path_of(url), Cookie="")
    assert given.status == 303 and given.headers["Location"] == "/"
    cookie = given.headers["Set-Cookie"].partition(";")[0]
    assert get(open_page, Cookie=cookie).status == 200
    assert get(open_page, path_of(url), Cookie="").status == 403


def test_an_invitation_is_for_a_minute(open_page: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "INVITED_S", -1.0)
    assert get(open_page, path_of(open_page.invitation()), Cookie="").status == 403


def test_another_user_who_reads_it_off_the_process_list_is_refused_and_does_not_use_it_up(
    open_page: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, me = open_page.invitation(), os.getuid()
    with monkeypatch.context() as patch:
        patch.setattr(access_module.os, "getuid", lambda: me + 1)  # to the page, this test is somebody else
        assert get(open_page, path_of(url), Cookie="").status == 403
    assert get(open_page, path_of(url), Cookie="").status == 303


def test_the_window_is_started_with_an_invitation(
    viewer: Viewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    program = tmp_path / "chromium"
    program.write_text(f'#!/bin/sh\necho "$@" > {started}.part && mv {started}.part {started}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("DISPLAY", ":0")
    url = viewer.invitation()
    open_window(url)
    deadline = time.monotonic() + 20.0
    while not started.exists():
        assert time.monotonic() < deadline, "nothing was started"
        time.sleep(0.02)
    assert started.read_text().split() == [f"--app={url}"]


def test_without_an_app_the_systems_browser_opens_a_window(
    viewer: Viewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    class Opened(webbrowser.BaseBrowser):
        def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
            opened.append(f"{new} {url}")
            return True

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", lambda: Opened("firefox"))
    url = viewer.invitation()
    open_window(url)
    assert opened == [f"1 {url}"]
    # One that draws in the terminal is none.
    monkeypatch.setattr(webbrowser, "get", lambda: Opened("/usr/bin/w3m"))
    with pytest.raises(BadInput, match="no browser"):
        check_window()


def test_without_a_display_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from robolearn.cli.main import main

    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    out = tmp_path / "data"
    assert main(["record", "--teleop", "scripted", "--view", "window", "--out", str(out)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "--view window" in said and "DISPLAY" in said and "--view browser" in said and not out.exists()
