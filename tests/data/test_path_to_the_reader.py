"""The way of a data set's path from `robolearn train` to what opens its files: a handful of functions, so that who
looks for where something is read finds it.

Tables are read on the way. Videos are read later, on the way of the frames through the cache, which the path does not
take: it lies in the camera's reader from its making on. Of them these are counted: what makes the reader, and what the
cache asks for frames.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from robolearn.cli.train import Train
from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import EpisodeWriter
from robolearn.data.lerobot import layout
from robolearn.data.reading import cache, loading
from robolearn.data.video import readers

MOST = 8
HERE = Path(__file__).parents[2]


class Inline:
    """A pool of threads whose work is done by the caller: there is one stack."""

    def __init__(self, *_: Any) -> None: ...
    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *_: object) -> None: ...
    def shutdown(self, **_: Any) -> None: ...
    def map(self, do: Any, *items: Any) -> Iterator[Any]:
        return map(do, *items)

    def submit(self, do: Any, *given: Any) -> Future:
        done: Future = Future()
        done.set_result(do(*given))
        return done


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
    chains: dict[str, list[str]] = {"reader": []}

    def watched(do: Any, kind: str) -> Any:
        def watching(*given: Any, **named: Any) -> Any:
            passed = chain()
            if asking := [i for i, name in enumerate(passed) if name.startswith("cache.")]:
                passed = chains["reader"] + passed[asking[-1] + 1 :]
            chains[kind] = max(chains.get(kind, []), passed, key=len)
            return do(*given, **named)

        return watching

    monkeypatch.setattr(loading, "VideoReader", watched(loading.VideoReader, "reader"))
    monkeypatch.setattr(layout.pq, "ParquetFile", watched(layout.pq.ParquetFile, "table"))
    monkeypatch.setattr(layout, "json_in", watched(layout.json_in, "meta/info.json"))
    monkeypatch.setattr(av, "open", watched(av.open, "video"))
    monkeypatch.setattr(readers, "sha256_file", watched(readers.sha256_file, "digest of a video"))
    monkeypatch.setattr(cache, "ThreadPoolExecutor", Inline)

    def stop(*_: Any) -> None:
        raise Opened

    monkeypatch.setattr(Train, "trainer", stop)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    with pytest.raises(Opened):
        Train(data=(filmed,), out=tmp_path / "run", json=True).run()
    assert chains.keys() == {"reader", "table", "meta/info.json", "video", "digest of a video"}
    for kind, passed in chains.items():
        assert 4 <= len(passed) <= MOST, f"{kind}: the path passes {len(passed)} functions: {' → '.join(passed)}"
