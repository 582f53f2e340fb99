"""Large imports of npz and RLDS: each frame its own, never all of them in memory, and what is damaged is named."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import cv2
import google_crc32c
import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.data.convert.formats import ReadOptions, reader
from robolearn.data.convert.source import write_dataset
from robolearn.data.video.segments import array

SHOWN = np.random.default_rng(0).integers(0, 256, (7, 32, 48, 3), dtype=np.uint8)


def npz_set(folder: Path, pictures: np.ndarray, save: Callable = np.savez) -> Path:
    folder.mkdir()
    moves = np.linspace(-1, 1, len(pictures))[:, None]
    save(folder / "0.npz", **{"action": moves, "proprio": moves, "images.top": pictures})
    return folder


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_each_frame_is_its_own(tmp_path: Path, save: Callable, order: Literal["C", "F"]) -> None:
    source = reader("npz")(npz_set(tmp_path / "set", np.array(SHOWN, order=order), save), ReadOptions(hz=10.0))
    (draft,) = source.drafts
    assert np.array_equal(array(draft.images["images.top"]), SHOWN)
    assert np.array_equal(array(draft.images["images.top"]), SHOWN)  # an encoder that gives up asks again


def test_pictures_that_are_a_vector_too_are_both(tmp_path: Path) -> None:
    folder = npz_set(tmp_path / "set", SHOWN[:, :4, :4])
    named = (("images.top", "images.top"), ("images.top", "proprio"))
    (draft,) = reader("npz")(folder, ReadOptions(hz=10.0, named=named)).drafts
    assert np.array_equal(array(draft.images["images.top"]), SHOWN[:, :4, :4])
    assert np.array_equal(draft.episode.observation["proprio"].reshape(7, 4, 4, 3), SHOWN[:, :4, :4])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_picture_is_named(tmp_path: Path, save: Callable) -> None:
    folder = npz_set(tmp_path / "set", SHOWN, save)
    content = bytearray((folder / "0.npz").read_bytes())
    content[len(content) // 2] ^= 1  # nearly all of the file are pictures
    (folder / "0.npz").write_bytes(content)
    with pytest.raises(BadInput, match=r"0\.npz: got unreadable \(.*Bad CRC-32"):
        write_dataset(reader("npz")(folder, ReadOptions(hz=10.0)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_later_file_with_other_pictures_is_named(tmp_path: Path) -> None:
    folder = npz_set(tmp_path / "set", SHOWN)
    for name, pictures, got in (("short", SHOWN[:5], (5, 32, 48, 3)), ("size", SHOWN[:, :16], (7, 16, 48, 3))):
        moves = np.linspace(-1, 1, 7)[:, None]
        np.savez(folder / "1.npz", **{"action": moves, "proprio": moves, "images.top": pictures})
        with pytest.raises(BadInput) as refused:
            write_dataset(reader("npz")(folder, ReadOptions(hz=10.0)), tmp_path / name)
        assert f"1.npz: images.top: got {got}, expected (7, 32, 48, 3)" in str(refused.value)
    np.savez(folder / "1.npz", action=np.zeros((7, 1)), proprio=np.zeros((7, 1)))
    with pytest.raises(BadInput, match=r"1\.npz: got no array 'images\.top'"):
        write_dataset(reader("npz")(folder, ReadOptions(hz=10.0)), tmp_path / "none")


GROWN = """
import re, sys
from pathlib import Path
from robolearn.data.convert.formats import ReadOptions, reader
from robolearn.data.convert.source import write_dataset

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def brought(folder):
    write_dataset(reader(sys.argv[1])(Path(folder), ReadOptions(hz=10.0)), folder + "-out")

brought(sys.argv[2])
before = peak()
brought(sys.argv[3])
print(peak() - before)
"""


def grown(kind: str, small: Path, large: Path) -> int:
    """Kilobytes by which the import of `large` takes more than that of `small`."""
    words = [sys.executable, "-c", GROWN, kind, str(small), str(large)]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@pytest.mark.long
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_episode_of_npz_is_never_in_memory(tmp_path: Path, save: Callable) -> None:
    """Read whole, an import grew by four times the pictures."""
    small = npz_set(tmp_path / "small", np.zeros((100, 256, 256, 3), np.uint8), save)
    large = npz_set(tmp_path / "large", np.zeros((1000, 256, 256, 3), np.uint8), save)
    assert grown("npz", small, large) < 0.25 * (1000 * 256 * 256 * 3 >> 10)


@pytest.mark.long
def test_the_numbers_of_a_set_are_never_in_memory_together(tmp_path: Path) -> None:
    """Of 40 MB, which outliers, constants and quantiles are found in, an import grew by five times as much."""
    rng = np.random.default_rng(0)
    for name, episodes in (("small", 4), ("large", 100)):
        (tmp_path / name).mkdir()
        for e in range(episodes):
            vectors = rng.normal(size=(1000, 100)).astype(np.float32)
            np.savez(tmp_path / name / f"{e:03d}.npz", action=np.tanh(vectors[:, :2]), proprio=vectors)
    assert grown("npz", tmp_path / "small", tmp_path / "large") < 3.5 * 40_000  # twice as much, alone


def rlds_set(folder: Path, length: int, picture: bytes, spoiled: Callable[[bytes], bytes] = bytes) -> Path:
    """One episode, its record put together by hand from protobuf's wire format; `spoiled` before its checksum."""
    folder.mkdir(exist_ok=True)

    def part(number: int, content: bytes) -> bytes:
        size, said = len(content), bytearray()
        while size > 127:
            said.append(size & 127 | 128)
            size >>= 7
        return bytes([number << 3 | 2]) + bytes(said) + bytes([size]) + content

    moves = np.linspace(-1, 1, length, dtype="<f4").tobytes()
    features = {
        "steps/action": part(2, part(1, moves)),
        "steps/observation/state": part(2, part(1, moves)),
        "steps/observation/image": part(1, part(1, picture) * length),
    }
    record = spoiled(
        part(1, b"".join(part(1, part(1, name.encode()) + part(2, one)) for name, one in features.items()))
    )

    def checked(content: bytes) -> bytes:
        value = google_crc32c.value(content)
        return content + struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    (folder / "push-train.tfrecord-00000-of-00001").write_bytes(
        checked(struct.pack("<Q", len(record))) + checked(record)
    )
    vector = {"tensor": {"shape": {"dimensions": ["1"]}, "dtype": "float32", "encoding": "none"}}
    shown = {"image": {"shape": {"dimensions": ["256", "256", "3"]}, "dtype": "uint8", "encodingFormat": "png"}}
    seen = {"featuresDict": {"features": {"state": vector, "image": shown}}}
    steps = {"featuresDict": {"features": {"action": vector, "observation": seen}}}
    described = {"featuresDict": {"features": {"steps": {"sequence": {"feature": steps}}}}}
    (folder / "features.json").write_text(json.dumps(described))
    return folder


@pytest.mark.long
def test_an_episode_of_rlds_is_never_in_memory(tmp_path: Path) -> None:
    """Read whole, an import grew by three times the record."""
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    picture = cv2.imencode(".png", noise)[1].tobytes()
    small, large = (rlds_set(tmp_path / name, length, picture) for name, length in (("small", 60), ("large", 400)))
    assert grown("rlds", small, large) < 0.6 * (400 * len(picture) >> 10)


@pytest.mark.long
def test_a_record_that_is_no_example_is_named(tmp_path: Path) -> None:
    """Whatever stands in it, its checksum right."""
    picture = cv2.imencode(".png", np.zeros((256, 256, 3), np.uint8))[1].tobytes()
    whole, rng, refused = rlds_set(tmp_path / "set", 5, picture), np.random.default_rng(0), 0

    def read() -> list[str]:
        (draft,) = reader("rlds")(whole, ReadOptions(hz=10.0)).drafts
        array(draft.images["images.image"])
        return list(draft.images)

    assert read() == ["images.image"]
    for _ in range(100):
        at, value = int(rng.integers(400)), int(rng.integers(256))
        rlds_set(whole, 5, picture, lambda record, at=at, value=value: record[:at] + bytes([value]) + record[at + 1 :])
        try:
            read()
        except BadInput as error:
            refused += 1
            assert "episode 0" in str(error) or "RLDS folder" in str(error)
    assert refused > 30
    at = -len(picture) - 2  # the low seven bits of the last picture's length: it ends beyond all that holds it
    rlds_set(whole, 5, picture, lambda record: record[:at] + bytes([record[at] + 1]) + record[at + 1 :])
    with pytest.raises(BadInput, match=r"episode 0 .*: got no tf\.train\.Example"):
        read()
