"""What a file holds is told by all of its bytes, and damage inside a video is not taken for frames."""

from __future__ import annotations

import os
import struct
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.validate import validate
from robolearn.data.video import readers
from robolearn.data.video.encoder import VideoConfig
from robolearn.data.video.readers import fingerprint
from robolearn.data.video.segments import VideoSegment, array

SIZE, LENGTH = 96, 12
INTERFACE = Interface(
    {"proprio": ArraySpec((1,)), "images.front": ArraySpec((SIZE, SIZE, 3), "uint8")}, ArraySpec((1,)), 20.0
)
VIDEO = "videos/observation.images.front/chunk-000/file-000.mp4"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An episode of noise in H.264."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (LENGTH, SIZE, SIZE, 3), dtype=np.uint8)
    column = np.linspace(0, 1, LENGTH, dtype=np.float32)[:, None]
    episode = Episode(
        {"proprio": column, "images.front": images}, column, column[:, 0], True, True, False, "watch the snow"
    )
    with EpisodeWriter(tmp_path / "set", INTERFACE, video=VideoConfig(codec="libx264")) as writer:
        writer.write(episode)
    return tmp_path / "set"


def rested(path: Path) -> None:
    """Let `path` look as if nobody had touched it for a while, as far as a test can."""
    past = time.time_ns() - 60_000_000_000
    os.utime(path, ns=(past, past))


def test_every_byte_counts(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    content = bytearray(np.random.default_rng(0).bytes(3_200_000))
    path.write_bytes(content)
    whole = fingerprint(path)
    for at in (100_000, 1_234_567, 3_100_000):
        damaged = content.copy()
        damaged[at : at + 2500] = bytes(2500)
        path.write_bytes(damaged)
        assert fingerprint(path) != whole, f"damage at {at}"
    path.write_bytes(content)
    assert fingerprint(path) == whole


def test_a_file_at_rest_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    real = readers.sha256_file
    monkeypatch.setattr(readers, "RESTED_NS", 0)
    monkeypatch.setattr(readers, "sha256_file", lambda file: (read.append(1), real(file))[1])
    path, memo = tmp_path / "film.mp4", tmp_path / "memo"
    path.write_bytes(b"frames")
    first = fingerprint(path, memo)
    assert fingerprint(path, memo) == first and len(read) == 1

    def forget() -> None:
        """As another process begins."""
        readers._known.clear()
        readers._read.clear()

    forget()
    assert fingerprint(path, memo) == first and len(read) == 1
    with open(memo / readers.MEMO, "ab") as file:
        file.write(b'["/half a li')
    forget()
    assert fingerprint(path, memo) == first and len(read) == 1
    # Other bytes of the same number and age: the time of the change itself cannot be set back.
    path.write_bytes(b"FRAMES")
    rested(path)
    assert fingerprint(path, memo) != first and len(read) == 2


def test_a_file_that_has_just_changed_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(b"frames")
    first = fingerprint(path, tmp_path)
    assert not (tmp_path / readers.MEMO).exists()
    path.write_bytes(b"FRAMES")
    assert fingerprint(path, tmp_path) != first


def test_a_set_with_one_byte_of_a_long_video_changed_is_another(root: Path, tmp_path: Path) -> None:
    path = root / VIDEO
    rest = 3_000_000  # ISO 14496-12: readers skip a box of free space
    path.write_bytes(path.read_bytes() + struct.pack(">I4s", 8 + rest, b"free") + bytes(rest))
    content = Dataset.open(root, cache=tmp_path / "cache").content()
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2 + 12345)
        file.write(b"x")
    assert Dataset.open(root, cache=tmp_path / "cache").content() != content


@pytest.mark.long
def test_all_that_is_learned_from_counts(tmp_path: Path) -> None:
    interface = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 20.0)
    rows = np.linspace(0, 1, 4, dtype=np.float32)[:, None]
    plain = Episode({"proprio": rows}, rows, rows[:, 0], True, True, False, "open", np.zeros(4, bool))
    kinds = {
        "same": plain,
        "reward": replace(plain, reward=-plain.reward),
        "success": replace(plain, success=False),
        "terminated": replace(plain, terminated=False),
        "truncated": replace(plain, truncated=True),
        "task": replace(plain, task="shut"),
        "task of a frame": replace(plain, frame_tasks=("open", "open", "open", "shut")),
        "intervention": replace(plain, intervention=np.arange(4) == 2),
        "final": replace(plain, final={"proprio": np.full(1, 2.0, np.float32)}),
        "action": replace(plain, action=-rows),
    }
    contents = {}
    for name, episode in {"plain": plain, **kinds}.items():
        with EpisodeWriter(tmp_path / name, interface) as writer:
            writer.write(episode)
        contents[name] = Dataset.open(tmp_path / name).content()
    assert contents["plain"] == contents.pop("same")
    assert len(set(contents.values())) == len(contents), contents


def test_damage_that_a_decoder_hides_is_refused(root: Path, tmp_path: Path) -> None:
    path = root / VIDEO
    assert list(validate(root)) == []
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 300] = bytes(300)
    path.write_bytes(content)
    findings = list(validate(root))
    assert [(f.check, f.file, f.episode) for f in findings] == [("video", VIDEO, 0)]
    assert findings[0].frame is not None and 3 <= findings[0].frame <= 8
    named = r"file-000\.mp4 \(episode 0, images\.front, frame [3-8]\): got one that does not decode \(damaged at 0\.\d+"
    with pytest.raises(BadInput, match=named):
        Dataset.open(root, cache=tmp_path / "cache").images("front")
    with pytest.raises(BadInput, match=r"\(frame [3-8]\): got one that does not decode"):
        array(VideoSegment(path, LENGTH, 20.0))
