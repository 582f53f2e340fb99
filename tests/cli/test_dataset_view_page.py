"""The page of episodes: their films are the set's own, and a browser filters, sorts and plays them."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import cv2
import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import Dataset
from robolearn.data.convert.view_page import EpisodeGrid
from robolearn.data.writing.writer import EpisodeWriter

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware" / "teleop"))
from browser_driver import Chromium

SEEN = Interface({"images.front": ArraySpec((48, 64, 3), "uint8")}, ArraySpec((1,)), 10.0)
OUTCOMES = (True, False, True, False, False)


def episode(number: int, success: bool) -> Episode:
    """Of 20 + number frames, whose red rises through the episode."""
    steps = 20 + number
    frames = np.zeros((steps, 48, 64, 3), np.uint8)
    frames[..., 0] = np.linspace(40, 240, steps).astype(np.uint8)[:, None, None]
    return Episode(
        {"images.front": frames}, np.zeros((steps, 1), np.float32), np.zeros(steps, np.float32), success, success,
        not success, "push" if number < 3 else "pull", failure="" if success else "dropped",
    )  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view") / "data"
    with EpisodeWriter(path, SEEN, failures=True) as writer:
        writer.write_all(episode(number, success) for number, success in enumerate(OUTCOMES))
    return path


def visited(
    data: Path, visit: Callable[[aiohttp.ClientSession, str, str], Awaitable[None]], **scores: dict[int, float]
) -> None:
    """Let `visit` talk to the page, which it closes."""

    async def both() -> None:
        grid = EpisodeGrid(Dataset.open(data), range(len(OUTCOMES)), **scores)
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(grid.serve(0, address.set_result))
        url = await asyncio.wait_for(address, 10)
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            await visit(session, url, url.partition("?")[0])
            await session.post(url.partition("?")[0] + "close")
        await asyncio.wait_for(serving, 10)

    asyncio.run(both())


def test_the_page_has_the_facts_the_films_and_the_pictures(data: Path) -> None:
    async def visit(session: aiohttp.ClientSession, url: str, root: str) -> None:
        async with session.get(root + "episodes") as response:
            assert response.status == 403, "without the token"
        async with session.get(url) as response:
            assert response.status == 200 and "<dialog" in await response.text()
        async with session.get(root + "episodes") as response:
            found = await response.json()
        assert (found["name"], found["hz"], found["cameras"]) == ("data", 10.0, ["front"])
        rows = found["episodes"]
        assert [row["success"] for row in rows] == list(OUTCOMES) and [row["steps"] for row in rows] == [
            20,
            21,
            22,
            23,
            24,
        ]
        assert [row["task"] for row in rows] == ["push"] * 3 + ["pull"] * 2
        assert rows[1]["failure"] == "dropped" and rows[1]["score"] == 0.3 and rows[3]["score"] is None
        for row in rows:
            begin, end = row["films"][0]
            assert end - begin == pytest.approx(row["steps"] / 10)
            async with session.get(f"{root}film/0/{row['episode']}") as response:
                film = await response.read()
            assert film[4:8] == b"ftyp"
            for step, red in ((0, 40), (row["steps"] - 1, 240), (999, 240)):
                async with session.get(f"{root}frame/0/{row['episode']}/{step}") as response:
                    picture = cv2.imdecode(np.frombuffer(await response.read(), np.uint8), cv2.IMREAD_COLOR)
                assert picture[24, 32, 2] == pytest.approx(red, abs=12), (row["episode"], step)
        for wrong in ("film/1/0", "film/0/5", "frame/1/0/0"):
            async with session.get(root + wrong) as response:
                assert response.status == 404

    visited(data, visit, scores={0: 0.9, 1: 0.3, 2: 0.8, 4: 0.2})


def served(data: Path, capfd: pytest.CaptureFixture[str]) -> tuple[threading.Thread, list[int], str]:
    """The command that shows `data` in a browser, its exit code once it has ended, and the page's address."""
    words, codes = ["dataset", "view", str(data), "--browser", "--json"], list[int]()
    command = threading.Thread(target=lambda: codes.append(main(words)), daemon=True)
    command.start()
    told = ""
    while "open " not in told:
        told += capfd.readouterr().err
    return command, codes, told.partition("open ")[2].split()[0]


@pytest.mark.long
def test_a_browser_filters_sorts_and_plays(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command, codes, address = served(data, capfd)
    with Chromium() as browser:
        tab = browser.open(address)
        tab.wait("document.querySelectorAll('figure video').length === 5")
        tab.js("at('outcome').value = 'failure: dropped'; at('outcome').onchange()")
        assert tab.js("at('count').textContent") == "3 of 5 episodes"
        tab.js("at('order').value = 'long'; at('order').onchange()")
        assert tab.js("[...document.querySelectorAll('figure')].map(f => f.dataset.episode).join()") == "4,3,1"
        tab.js("document.querySelector('figure').click()")
        # The fourth film lies behind others in its file.
        begin, end = tab.js("set.episodes[4].films[0]")
        tab.wait(f"at('large').querySelector('video').currentTime > {begin + 0.3}")
        assert tab.js("at('large').querySelector('video').currentTime") <= end + 0.1
        tab.js("at('dialog').close()")
        tab.press("#close")
        command.join(20)
    assert codes == [0]
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["episodes"] == [0, 1, 2, 3, 4]


@pytest.mark.long
def test_a_set_without_cameras_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with EpisodeWriter(tmp_path / "blank", Interface({}, ArraySpec((1,)), 10.0)) as writer:
        for number, success in enumerate(OUTCOMES):
            writer.write(replace(episode(number, success), observation={}, failure=""))

    command, _, address = served(tmp_path / "blank", capfd)
    with Chromium() as browser:
        tab = browser.open(address)
        tab.wait("document.querySelectorAll('figure').length === 5")
        assert tab.js("document.querySelector('figure .view').textContent") == "no camera"
        assert tab.js("at('camera').parentElement.hidden")
        tab.press("#close")
        command.join(20)


def test_one_viewer_at_a_time(data: Path, tmp_path: Path) -> None:
    assert main(["dataset", "view", str(data), "--browser", "--save", str(tmp_path / "a.rrd")]) == 2
    assert main(["dataset", "view", str(data), "--browser", "--port", "70000"]) == 2
