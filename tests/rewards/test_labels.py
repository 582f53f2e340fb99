"""Labelling: the least certain frames first, a page for its own browser alone, and answers that are kept at once."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import cv2
import numpy as np
import pytest

from robolearn.data import Dataset
from robolearn.rewards.label_page import FRAMES, LabelPage, PageQuestion
from robolearn.rewards.labels import least_certain, read_labels

sys.path.insert(0, str(Path(__file__).parent))
from controls import write

HERE = Path(__file__).parent
PNG = cv2.imencode(".png", np.zeros((4, 4, 3), np.uint8))[1].tobytes()


def test_the_least_certain_come_first_and_neighbours_only_once() -> None:
    """Of five frames, four steps: probabilities are of the frames 1 to 4; with as many frames as steps, of 0 to 2."""
    odds = [np.array([0.1, 0.45, 0.52, 0.9]), np.array([0.6, 0.99, 0.3])]
    assert least_certain(odds, [5, 3], {}, 9) == [(0, 3), (1, 0)], "frame 2 and 4 lie beside 3, 2 beside 0"
    assert least_certain(odds, [5, 3], {(0, 3)}, 9) == [(0, 2), (1, 0)]
    assert least_certain(odds, [5, 3], {}, 1) == [(0, 3)]


def played(play: Callable[[aiohttp.ClientSession, str, str], Awaitable[None]], count: int = 3) -> list[dict[int, bool]]:
    """What a page of `count` questions handed over while `play` talked to it; it must end within ten seconds."""
    kept: list[dict[int, bool]] = []

    async def both() -> None:
        questions = [PageQuestion("push", f"episode {e}", ("images.front",), lambda _: PNG) for e in range(count)]
        page = LabelPage(FRAMES, questions, kept.append)
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(page.serve(0, address.set_result))
        url = await asyncio.wait_for(address, 10)
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            await play(session, url, url.partition("?")[0])
        await asyncio.wait_for(serving, 10)

    asyncio.run(both())
    return kept


async def says(session: aiohttp.ClientSession, root: str, answer: str, **headers: str) -> int:
    async with session.post(f"{root}answer", json={"answer": answer}, headers=headers) as response:
        return response.status


def test_answers_are_kept_one_by_one_and_can_be_taken_back() -> None:
    async def play(session: aiohttp.ClientSession, url: str, root: str) -> None:
        async with session.get(url) as response:
            assert response.status == 200 and "<button" in await response.text()
        async with session.get(f"{root}question") as response:
            asked = await response.json()
        assert (asked["number"], asked["count"], asked["where"], asked["asks"]) == (
            0,
            3,
            "episode 0",
            "push: done here?",
        )
        async with session.get(f"{root}picture/0/0") as response:
            assert await response.read() == PNG
        for wrong in ("picture/9/0", "picture/0/5"):
            async with session.get(root + wrong) as response:
                assert response.status == 404
        assert await says(session, root, "perhaps") == 400
        for answer in ("done", "not_done", "back", "done", "skip"):
            assert await says(session, root, answer) == 200
        async with session.get(f"{root}question") as response:
            assert (await response.json())["number"] is None

    assert played(play) == [{0: True}, {0: True, 1: False}, {0: True}, {0: True, 1: True}]


def test_nobody_else_is_answered() -> None:
    async def play(session: aiohttp.ClientSession, url: str, root: str) -> None:
        for path in ("", "?token=guess", "question", "picture/0/0"):
            async with session.get(root + path) as response:
                assert response.status == 403, path
        assert await says(session, root, "done") == 403
        async with session.get(url, headers={"Host": "evil.example"}) as response:
            assert response.status == 403, "a name that was made to point here"
        async with session.get(url) as response:
            assert response.status == 200 and response.cookies["robolearn_label"]["httponly"]
        assert await says(session, root, "done", Origin="http://evil.example") == 403
        assert url.startswith("http://127.0.0.1:")
        assert await says(session, root, "finish") == 200

    assert played(play) == []


@pytest.mark.long
def test_the_command_asks_and_writes(tmp_path: Path) -> None:
    """In a process of its own; the frames that it asks are those whose probability a clock has nearest to a half."""
    root = write(tmp_path / "data", 1, 1)
    words = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
    words += ["reward", "label", "--data", str(root), "--reward", "controls:Clock", "--frames", "2", "--json"]
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    child = subprocess.Popen(
        words, cwd=HERE, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert child.stderr is not None
    url = next(line for line in child.stderr if line.startswith("open ")).split()[1]

    async def play() -> list[str]:
        asked = []
        jar, base = aiohttp.CookieJar(unsafe=True), url.partition("?")[0]
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            await (await session.get(url)).read()
            for answer in ("done", "not_done"):
                async with session.get(f"{base}question") as response:
                    question = await response.json()
                asked.append(question["where"])
                async with session.get(f"{base}picture/{question['number']}/0") as response:
                    picture = cv2.imdecode(np.frombuffer(await response.read(), np.uint8), 1)
                    assert picture is not None and picture.shape == (48, 48, 3)
                await says(session, base, answer)
        return asked

    asked = asyncio.run(play())
    out, errors = child.communicate(timeout=30)
    assert child.returncode == 0, errors
    assert asked == ["episode 0, frame 9", "episode 1, frame 9"], "where the clock says 10 / 20"
    assert read_labels(Dataset.open(root)) == {(0, 9): True, (1, 9): False}
    assert json.loads(out.strip().splitlines()[-1])["labels"] == {"done": 1, "not_done": 1, "in_all": 2}
