"""Data sets read from an HTTP server, a process of its own, beside the same sets in their folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import robolearn
from robolearn.cli.train import Train
from robolearn.core import ArraySpec, BadInput, Interface, RobolearnError
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.lerobot import remote
from robolearn.data.lerobot.remote import RemotePath
from robolearn.data.reading.loading import write_weights
from robolearn.data.video.readers import VideoReader
from robolearn.train.settings import ImitationConfig

SERVER = Path(__file__).with_name("range_server.py")
SIZE = 64
INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((SIZE, SIZE, 3), "uint8")}, ArraySpec((2,)), 20.0
)

pytestmark = pytest.mark.long


@dataclass
class Served:
    """The folder `local` at the address `url`; `process` is its server, which notes requests in `log`."""

    local: Path
    url: str
    process: subprocess.Popen[str]
    log: Path

    def gets(self) -> list[str]:
        """The requests for content since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return [line for line in lines if line.startswith("GET")]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "PAUSE_S", 0.01)
    local = tmp_path / "www" / "a set"
    rng = np.random.default_rng(0)
    with EpisodeWriter(local, INTERFACE) as writer:
        for e, length in enumerate((5, 3, 6)):
            for t in range(length):
                picture = np.full((SIZE, SIZE, 3), 20 + 60 * e + 9 * t, np.uint8)
                writer.add({"proprio": rng.standard_normal(2), "images.front": picture}, rng.uniform(-1, 1, 2))
            writer.end(success=True, terminated=True, task=f"task {e}")
    write_weights(local, [1.0, 0.0, 2.0], 3, "a test")
    log = tmp_path / "requests"
    words = [sys.executable, str(SERVER), str(tmp_path / "www"), str(log)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    yield Served(local, f"http://127.0.0.1:{port}/a%20set", process, log)
    process.kill()
    process.communicate()


@pytest.mark.parametrize("cache", [None, False])
def test_a_set_on_a_server_is_the_one_in_the_folder(served: Served, tmp_path: Path, cache):
    here, there = Dataset.open(served.local, cache=False), Dataset.open(served.url + "/", cache=cache)
    assert there.interface == here.interface and there.tasks == here.tasks and there.weights == [1.0, 0.0, 2.0]
    for name in ("action", "reward", "lengths", "task_index", "success", "terminated"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
    np.testing.assert_array_equal(there.observation["proprio"], here.observation["proprio"])
    for key, stats in here.stats.items():
        assert all(np.array_equal(stats[name], there.stats[key][name]) for name in stats)
    np.testing.assert_array_equal(there.images("front")[:], here.images("front")[:])
    np.testing.assert_array_equal(there.episode(1).observation["images.front"], here.images("front")[5:8])
    assert all(request.split()[-1].startswith("bytes=") for request in served.gets())


def test_names_with_signs_of_addresses(served: Served, tmp_path: Path) -> None:
    key = "images.a#b?c%20d"
    with EpisodeWriter(
        served.local.parent / "odd", Interface({key: ArraySpec((64, 64, 3), "uint8")}, ArraySpec((1,)), 10.0)
    ) as one:
        one.add({key: np.full((64, 64, 3), 90, np.uint8)}, [0.0])
        one.end(success=True, task="look")
    there = Dataset.open(served.url.replace("a%20set", "odd"), cache=False)
    assert abs(there.episode(0).observation[key].mean() - 90) < 4


def test_what_was_read_is_not_asked_for_again(served: Served, tmp_path: Path):
    Dataset.open(served.url).build_cache()
    assert sum(".mp4" in request for request in served.gets()) == 3
    again = Dataset.open(served.url, cache=False)
    first = again.images("front")[0]
    # Of info.json one byte, by which the server shows that it has ranges.
    assert [request.split()[1].split("/")[-1] for request in served.gets()] == ["info.json"]
    np.testing.assert_array_equal(first, Dataset.open(served.local, cache=False).images("front")[0])
    shutil.rmtree(tmp_path / "cache")
    numbers = Dataset.open(served.url, images=False)
    assert numbers.frames == 14 and not any(".mp4" in request for request in served.gets())


def test_no_more_than_needed_of_a_file_is_read(served: Served, monkeypatch):
    monkeypatch.setattr(remote, "BLOCK", 1 << 12)
    info = served.local / "meta/info.json"
    info.write_text(info.read_text() + " " * 100_000)
    folder = remote.remote_path(served.url, Path(os.environ["ROBOLEARN_CACHE"]))
    with (folder / "meta/info.json").open() as file:
        file.seek(50_000)
        assert file.read(5_000) == b" " * 5_000
    assert [request.split()[-1] for request in served.gets()] == ["bytes=49152-53247", "bytes=53248-57343"]


def test_a_file_that_has_changed_is_read_anew(served: Served):
    assert Dataset.open(served.url).tasks == ["task 0", "task 1", "task 2"]
    before = Dataset.open(served.url)
    shutil.rmtree(served.local)
    with EpisodeWriter(served.local, INTERFACE) as writer:
        picture = np.full((SIZE, SIZE, 3), 200, np.uint8)
        writer.add({"proprio": np.zeros(2), "images.front": picture}, np.zeros(2))
        writer.end(success=True, terminated=True, task="another")
    after = Dataset.open(served.url)
    assert after.tasks == ["another"] and after.frames == 1 and after.content() != before.content()
    assert abs(float(after.images("front")[:].mean()) - 200) < 3


def test_the_kept_blocks_have_a_limit(served: Served, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("ROBOLEARN_HTTP_MB", "0")
    Dataset.open(served.url).build_cache()
    assert not (tmp_path / "cache/http").exists()
    monkeypatch.setenv("ROBOLEARN_HTTP_MB", "much")
    with pytest.raises(BadInput, match="ROBOLEARN_HTTP_MB: got much, expected a whole number"):
        Dataset.open(served.url)


def test_a_server_without_ranges(served: Served):
    words = [sys.executable, "-u", "-m", "http.server", "-b", "127.0.0.1", "-d", str(served.local.parent), "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split(" port ")[1].split()[0])
        try:
            with pytest.raises(BadInput, match="got a server without range requests, expected one with them"):
                Dataset.open(f"http://127.0.0.1:{port}/a%20set")
        finally:
            process.kill()


def test_what_is_missing_is_named(served: Served):
    with pytest.raises(BadInput, match=r"data set http://.*/none: got no meta/info.json, expected"):
        Dataset.open(served.url.replace("a%20set", "none"))
    (served.local / "videos/observation.images.front/chunk-000/file-001.mp4").unlink()
    with pytest.raises(BadInput, match=r"/a%20set, episode 1: got no videos/.*/file-001.mp4, expected that file"):
        Dataset.open(served.url)
    assert Dataset.open(served.url, images=False).episodes == 3
    (served.local / "meta/episodes/chunk-000/file-000.parquet").unlink()
    with pytest.raises(BadInput, match=r"got no meta/episodes/chunk-000/file-000.parquet"):
        Dataset.open(served.url)
    for address in ("http://", served.url + "?a=1", served.url + "#a"):
        with pytest.raises(BadInput, match="expected the address of a folder"):
            Dataset.open(address)


def test_a_server_that_is_gone(served: Served):
    dataset = Dataset.open(served.url, cache=False)
    frames = dataset.images("front")
    served.process.kill()
    served.process.wait()
    with pytest.raises(RobolearnError, match=r"file-000.mp4: reading failed 3 times \("):
        frames[0]
    with pytest.raises(BadInput, match="got no answer"):
        Dataset.open(served.url)


def test_training_from_a_server_is_training_from_the_folder(served: Served, tmp_path: Path):
    small = {"settings": ImitationConfig(steps=4, batch=4, steps_per_iteration=2), "json": True}
    for name, data in (("here", (str(served.local),)), ("there", (served.url,))):
        Train(data=data, out=tmp_path / name, **small).run()
    policies = [(tmp_path / name / "policy/model.safetensors").read_bytes() for name in ("here", "there")]
    assert policies[0] == policies[1]
    mixed = Train(data=(served.url, str(served.local)), mix=(1.0, 3.0), out=tmp_path / "mix", weights=True, **small)
    assert mixed.run()["frames"] == 28
    assert Train(data=(served.url,), out=tmp_path / "there", resume=True, **small).run()["steps"] == 4


@pytest.mark.parametrize("on_server", [False, True])
def test_a_path_passes_through_six_files(served: Served, on_server: bool):
    """From `Dataset.open` to a picture; a reader of the room follows one way."""
    root = served.url if on_server else str(served.local)
    package = Path(robolearn.__file__).parent
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(package / "data"):
            names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
            taken = [frame.f_locals.get(name) for name in names]
            taken += [vars(value).get("root") for value in taken if isinstance(value, VideoReader)]
            if any(isinstance(value, (str, Path, RemotePath)) and str(value) == root for value in taken):
                seen.add(str(file.relative_to(package / "data")))

    sys.setprofile(note)
    try:
        dataset = Dataset.open(root)
        dataset.images("front")
    finally:
        sys.setprofile(None)
    assert {"reading/reader.py", "lerobot/layout.py", "reading/loading.py", "video/readers.py"} <= seen
    assert len(seen) <= 6, sorted(seen)
