"""The way of a data set's path from `robolearn train` to what opens its files: a handful of functions, so that who
looks for where something is read finds it.

Counted are the ways to the reader of a camera, to a table and to ``meta/info.json``. Videos are opened later, on the
way of frames through the cache, which the path does not take: it lies in the camera's reader from its making on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.cli.train import Train
from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import EpisodeWriter
from robolearn.data.lerobot import layout
from robolearn.data.reading import cache, loading

MOST = 8
HERE = Path(__file__).parents[2]


class Opened(Exception):
    """Everything has been read that is read before the first step."""


@pytest.fixture
def filmed(tmp_path: Path) -> Path:
    images = {"images.front": ArraySpec((64, 64, 3), "uint8")}
    interface = Interface({"proprio": ArraySpec((3,)), **images}, ArraySpec((2,)), 20.0, "panda", "tcp_delta")
    with EpisodeWriter(tmp_path / "set", interface) as writer:
        for e in range(2):
            pixels = np.full((6, 64, 64, 3), 40 * e, np.uint8)
            seen = {"proprio": np.zeros((6, 3), np.float32), "images.front": pixels}
            action, reward = np.zeros((6, 2), np.float32), np.zeros(6, np.float32)
            writer.write(Episode(seen, action, reward, True, True, False, "lift"))
    return tmp_path / "set"


def chain() -> list[str]:
    """Our functions on the stack from the command's `run` to the caller of this one's caller."""
    found, frame = [], sys._getframe(2)
    while frame is not None and frame.f_code is not Train.run.__code__:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(HERE / "robolearn") and not frame.f_code.co_name.startswith("<"):
            found.append(f"{file.stem}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return ["train.Train.run", *reversed(found)]


def test_a_path_passes_few_functions(filmed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chains: dict[str, list[str]] = {}

    def watched(do: Any, kind: str) -> Any:
        def watching(*given: Any, **named: Any) -> Any:
            chains[kind] = max(chains.get(kind, []), chain(), key=len)
            return do(*given, **named)

        return watching

    monkeypatch.setattr(loading, "VideoReader", watched(loading.VideoReader, "reader"))
    monkeypatch.setattr(layout.pq, "ParquetFile", watched(layout.pq.ParquetFile, "table"))
    monkeypatch.setattr(layout, "json_in", watched(layout.json_in, "meta/info.json"))

    def stop(*_: Any) -> None:
        raise Opened

    monkeypatch.setattr(Train, "trainer", stop)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    with pytest.raises(Opened):
        Train(data=(filmed,), out=tmp_path / "run", json=True).run()
    assert chains.keys() == {"reader", "table", "meta/info.json"}
    for kind, passed in chains.items():
        assert 4 <= len(passed) <= MOST, f"{kind}: the path passes {len(passed)} functions: {' → '.join(passed)}"
