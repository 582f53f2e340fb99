"""Every array of a stranger's file stands in one of the three lists of an import, and text of steps comes in."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data import Dataset

T = 6
RNG = np.random.default_rng(0)


def bring(capsys: pytest.CaptureFixture[str], path: Path, out: Path, *words: str) -> Any:
    assert main(["dataset", "import", str(path), "--out", str(out), *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def demo(file: Any, name: str) -> Any:
    group = file.create_group(name)
    group["actions"] = RNG.uniform(-1, 1, (T, 7))
    group["rewards"] = np.eye(T)[-1]
    group["dones"] = np.eye(T)[-1]
    group["obs/ee_pos"] = RNG.uniform(-1, 1, (T, 3))
    return group


def test_hdf5_names_rewards_scalars_and_arrays_that_the_first_episode_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        demo(file, "data/demo_0")["horizon"] = T
        demo(file, "data/demo_1")["obs/force"] = np.zeros((T, 2))
        file["data/demo_0/obs/label"] = np.array(["reach"] * T, h5py.string_dtype())
        file["data/demo_0"].attrs["success"] = True
    said = bring(capsys, tmp_path / "a.hdf5", tmp_path / "set")
    assert {"rewards → reward", "success"} <= set(said["read"])
    left = [line.split()[0].removesuffix(":") for line in said["left_out"]]
    assert sorted(left) == ["dones", "horizon", "obs/force", "obs/label"] and "obs/label" not in "".join(said["read"])
    assert "obs/force (2 float64): not in data/demo_0" in said["left_out"]


def test_aloha_names_what_only_later_files_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        (tmp_path / "aloha").mkdir(exist_ok=True)
        with h5py.File(tmp_path / "aloha" / f"episode_{number}.hdf5", "w") as file:
            file["action"] = file["observations/qpos"] = RNG.uniform(-1, 1, (T, 14)).astype("f4")
            file["compress_len"] = np.zeros((1, T))
            if number:
                file["observations/touch"] = np.zeros((T, 2), "f4")
    left = bring(capsys, tmp_path / "aloha", tmp_path / "set")["left_out"]
    assert "observations/touch (2 float32): not in episode_0.hdf5" in left
    assert any(line.startswith("compress_len") for line in left)


@pytest.mark.parametrize("version", [2, 3])
def test_text_of_a_zarr_store_comes_in(tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int) -> None:
    zarr = pytest.importorskip("zarr")
    store = zarr.open_group(str(tmp_path / "push.zarr"), mode="w", zarr_format=version)
    words = [f"é{t}" for t in range(2 * T)]
    arrays = {"action": RNG.uniform(-1, 1, (2 * T, 2)), "state": np.zeros((2 * T, 3))}
    arrays |= {"plain": np.array(words, "<U4")} if version == 2 else {}
    for name, values in arrays.items():
        store.create_array(f"data/{name}", data=values)
    kept = store.create_array("data/words", shape=(2 * T,), chunks=(4,), dtype="string" if version == 3 else str)
    kept[:] = np.array(words, object)
    store.create_array("meta/episode_ends", data=np.array([T, 2 * T]))
    said = bring(capsys, tmp_path / "push.zarr", tmp_path / "set", "--hz", "10")
    dataset = Dataset.open(tmp_path / "set", images=False)
    for name in dataset.texts.names:
        assert list(dataset.texts.strings(name, 1)) == words[T:] and f"{name} (text)" in said["read"]
    assert set(dataset.texts.names) == ({"plain", "words"} if version == 2 else {"words"})


def field(number: int, content: bytes) -> bytes:
    size, head = len(content), bytes([number << 3 | 2])
    while size > 127:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    return head + bytes([size]) + content


def feature(values: Sequence[Any]) -> bytes:
    if isinstance(values[0], str):
        return field(1, b"".join(field(1, one.encode()) for one in values))
    return field(2, field(1, np.asarray(values, "<f4").tobytes()))


def rlds(folder: Path, steps: dict[str, Sequence[Any]], kinds: dict[str, Any]) -> None:
    """A folder of one episode, with `kinds` of features in features.json."""
    crc = pytest.importorskip("google_crc32c")

    def masked(content: bytes) -> bytes:
        value = crc.value(content)
        return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    folder.mkdir(parents=True)
    inner = {"sequence": {"feature": {"featuresDict": {"features": kinds}}}}
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": {"steps": inner}}}))
    entries = (field(1, f"steps/{name}".encode()) + field(2, feature(values)) for name, values in steps.items())
    record = field(1, b"".join(field(1, entry) for entry in entries))
    size = struct.pack("<Q", len(record))
    (folder / "a-train.tfrecord-00000-of-00001").write_bytes(size + masked(size) + record + masked(record))


def test_rlds_keeps_the_words_of_each_step_and_other_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def numbers(*shape: int) -> dict[str, Any]:
        return {"tensor": {"shape": {"dimensions": list(map(str, shape))}, "dtype": "float32", "encoding": "none"}}

    spoken = {"tensor": {"shape": {}, "dtype": "string", "encoding": "none"}}
    kinds = {"action": numbers(2), "discount": numbers(), "reward": numbers(), "language_instruction": {"text": {}},
             "language_instruction_2": {"text": {}},
             "observation": {"featuresDict": {"features": {"state": numbers(2), "phase": spoken}}}}  # fmt: skip
    steps: dict[str, Sequence[Any]] = {
        "action": [0.5] * 2 * T, "discount": [1.0] * T, "reward": [0.0] * (T - 1) + [1.0],
        "language_instruction": ["pick"] * 2 + ["place"] * (T - 2), "language_instruction_2": ["take"] * T,
        "observation/state": [0.1] * 2 * T, "observation/phase": [f"p{t}" for t in range(T)],
    }  # fmt: skip
    rlds(tmp_path / "arm" / "1.0.0", steps, kinds)
    said = bring(capsys, tmp_path / "arm" / "1.0.0", tmp_path / "set", "--hz", "5")
    dataset = Dataset.open(tmp_path / "set", images=False)
    assert dataset.episode(0).frame_tasks == ("pick",) * 2 + ("place",) * (T - 2)
    assert list(dataset.texts.strings("phase", 0)) == [f"p{t}" for t in range(T)]
    assert {"language_instruction → task", "reward", "observation/phase → phase (text)"} <= set(said["read"])
    assert "language_instruction_2 (text)" in said["read"]
    assert said["left_out"] == ["discount: no part of an episode here"]
