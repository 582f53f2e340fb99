"""Episodes as ALOHA, Diffusion Policy and tensorflow_datasets keep them: what is read, left out, changed and refused.

The folder `rlds` was written by tensorflow_datasets 4.9 of five episodes whose numbers are arithmetic: episode e has
4 + e steps, ``state`` at step t is (0 … 4) + 10 t + 100 e, the red of ``image`` is 10 e + t, all but episode 1 end with
reward 1, and episodes 3 and 4 are the split val.
"""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import cv2
import h5py
import numpy as np
import pytest
import zarr

from robolearn.cli.main import main
from robolearn.data import Dataset

RLDS = Path(__file__).parent / "rlds"
T = 6


def imported(capsys: pytest.CaptureFixture[str], path: Path, out: Path, *flags: str) -> tuple[dict[str, Any], Dataset]:
    assert main(["dataset", "import", str(path), "--out", str(out), "--json", *flags]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1]), Dataset.open(out)


def refused(capsys: pytest.CaptureFixture[str], path: Path, out: Path, *flags: str) -> str:
    assert main(["dataset", "import", str(path), "--out", str(out), *flags]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert not out.exists() and error.startswith("robolearn: error:"), error
    return error


def pictures(data: Dataset, episode: int, key: str) -> np.ndarray:
    return np.asarray(data.episode(episode).observation[key])


def steps(width: int, e: int) -> np.ndarray:
    """(T, width): e + t / 10 + the component / 1000."""
    return e + np.arange(T)[:, None] / 10 + np.arange(width) / 1000


def aloha(path: Path, coded: bool = False) -> None:
    """Red to the left, blue to the right, files in another order than their names sort."""
    path.mkdir()
    image = np.zeros((T, 48, 64, 3), np.uint8)
    image[:, :, :32, 0], image[:, :, 32:, 2] = 230, 230
    for e in (0, 2, 10):
        with h5py.File(path / f"episode_{e}.hdf5", "w") as file:
            file.attrs["sim"], file.attrs["compress"] = False, coded
            file["action"] = steps(14, e)
            for name in ("qpos", "qvel", "effort"):
                file[f"observations/{name}"] = steps(14, e)
            if coded:  # as ACT's recorder: files of one length, filled up, whose lengths stand beside them
                files = [cv2.imencode(".jpg", one[:, :, ::-1])[1].ravel() for one in image]
                longest = max(map(len, files))
                rows = np.stack([np.pad(one, (0, longest - len(one))) for one in files])
                file["observations/images/cam_high"], file["compress_len"] = rows, [[len(one) for one in files]]
            else:
                file["observations/images/cam_high"] = image


def replay(path: Path, form: Literal[2, 3] = 2, floats: bool = False) -> None:
    """Two episodes of 4 and 2 frames."""
    store = zarr.open_group(str(path), mode="w", zarr_format=form)
    image = np.full((T, 48, 64, 3), 40, np.uint8)
    image[:, :, :32, 0] = 200
    data = store.create_group("data")
    for name, values in {
        "action": steps(2, 5).astype(np.float32),
        "state": steps(5, 0).astype(np.float32),
        "keypoint": np.zeros((T, 9, 2), np.float32),
        "img": image.astype(np.float32) if floats else image,
    }.items():
        data.create_array(name, data=values, chunks=(4, *values.shape[1:]))
    store.create_group("meta").create_array("episode_ends", data=np.array([4, 6], np.int64))


def test_rlds_is_read_as_tensorflow_datasets_wrote_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, data = imported(capsys, RLDS, tmp_path / "set", "--hz", "5")
    assert (result["episodes"], result["frames"], result["successes"]) == (5, 30, 4) and result["format"] == "rlds"
    assert {"observation/state → proprio (5)", "language_instruction → task"} <= set(result["read"])
    assert {"observation/depth (16×16×1 uint16)", "episode_metadata/file_path"} <= set(result["left_out"])
    order = [int(data.episode(at).observation["proprio"][0, 0] // 100) for at in range(5)]
    assert sorted(order) == list(range(5)) and set(order[3:]) == {3, 4}, "its own order within a split"
    assert sorted(data.tasks) == [f"put block {e} down" for e in range(5)] and data.interface.control_hz == 5
    for at, e in enumerate(order):
        episode = data.episode(at)
        assert len(episode) == 4 + e and episode.success is (e != 1) and episode.terminated is (e != 1)
        assert episode.task == f"put block {e} down"
        np.testing.assert_array_equal(
            episode.observation["proprio"], np.arange(5) + 10 * np.arange(4 + e)[:, None] + 100 * e
        )
        np.testing.assert_allclose(episode.action[:, 0], 0.1 * np.arange(4 + e), atol=1e-6)
        red, blue = (pictures(data, at, "images.image")[..., c] for c in (0, 2))
        assert np.abs(np.median(red, (1, 2)) - (10 * e + np.arange(4 + e))).max() <= 4 and np.median(blue) > 190
        wrist = np.median(pictures(data, at, "images.wrist"), (0, 1, 2))
        assert np.abs(wrist - (200, 0, 40)).max() < 12, "JPEG, in the order of its colours"


def test_a_split_and_a_map_of_rlds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--hz", "5", "--filter", "val", "--map", "observation/contact=objects", "--no-images")
    result, data = imported(capsys, RLDS, tmp_path / "set", *flags)
    assert {len(data.episode(e)) for e in range(data.episodes)} == {7, 8}
    assert "split train (2 files), of which --filter is not" in result["left_out"]
    np.testing.assert_array_equal(data.episode(0).observation["objects"].ravel()[:7], np.arange(7) % 2)
    assert refused(capsys, RLDS, tmp_path / "x", "--hz", "5", "--filter", "test").endswith("train, val")
    assert "Say --hz" in refused(capsys, RLDS, tmp_path / "x")


@pytest.mark.parametrize("coded", [False, True])
def test_aloha_with_plain_and_with_coded_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], coded: bool
) -> None:
    aloha(tmp_path / "pour_water", coded)
    result, data = imported(capsys, tmp_path / "pour_water", tmp_path / "set")
    assert result["format"] == "aloha" and data.episodes == 3 and data.interface.control_hz == 50
    assert data.tasks == ["pour water"] and not data.outcomes
    assert data.interface.observation["proprio"].names[6] == "left_gripper.qpos"
    assert "observations/effort (14 float32)" in result["left_out"]
    assert ("pictures of JPEG are decoded" in result["changed"]) is coded
    for at, e in enumerate((0, 2, 10)):
        np.testing.assert_allclose(data.episode(at).observation["proprio"], steps(14, e), atol=1e-5)
        seen = pictures(data, at, "images.cam_high").astype(int)
        assert seen.shape == (T, 48, 64, 3)
        assert (seen[:, 4:-4, 4:28, 0].min() > 200) and (seen[:, 4:-4, 36:60, 2].min() > 200)
        assert seen[:, 4:-4, 4:28, 2].max() < 40, "blue is not red"


def test_a_picture_of_aloha_is_decoded_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    aloha(tmp_path / "pour_water", coded=True)
    seen, decode = [], cv2.imdecode
    monkeypatch.setattr(cv2, "imdecode", lambda *given: seen.append(1) or decode(*given))
    imported(capsys, tmp_path / "pour_water", tmp_path / "set")
    assert len(seen) == 3 * T + 1, "and the very first one for its size"


@pytest.mark.long
@pytest.mark.parametrize("form", [2, 3])
@pytest.mark.parametrize("floats", [False, True])
def test_a_zarr_store_of_both_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: Literal[2, 3], floats: bool
) -> None:
    replay(tmp_path / "pusht.zarr", form, floats)
    result, data = imported(capsys, tmp_path / "pusht.zarr", tmp_path / "set", "--hz", "10")
    assert result["format"] == "zarr" and data.tasks == ["pusht"] and not data.outcomes
    assert [len(data.episode(e)) for e in range(2)] == [4, 2]
    np.testing.assert_allclose(data.episode(1).observation["proprio"], steps(5, 0)[4:], atol=1e-6)
    low, high = data.interface.extra["action_scale"]["low"], data.interface.extra["action_scale"]["high"]
    units = np.asarray(low) + (data.episode(1).action + 1) / 2 * (np.asarray(high) - low)
    np.testing.assert_allclose(units, steps(2, 5)[4:], atol=1e-5)
    assert np.median(pictures(data, 1, "images.img")[:, :, 4:28, 0]) > 190
    assert "keypoint (9×2 float32)" in result["left_out"]
    assert any("floats" in line for line in result["changed"]) is floats


def test_a_packed_zarr_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay(tmp_path / "cup.zarr")
    with zipfile.ZipFile(tmp_path / "cup.zarr.zip", "w") as archive:
        for file in (tmp_path / "cup.zarr").rglob("*"):
            archive.write(file, file.relative_to(tmp_path / "cup.zarr"))
    _, data = imported(capsys, tmp_path / "cup.zarr.zip", tmp_path / "set", "--hz", "10")
    assert data.episodes == 2 and data.tasks == ["cup"] and "images.img" in data.interface.observation


def test_a_pickle_in_a_zarr_store_is_refused_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, run = tmp_path / "evil.zarr", tmp_path / "was-run"

    class Evil:
        def __reduce__(self) -> tuple[Callable, tuple]:
            return Path.touch, (run,)

    replay(store)
    meta = json.loads((store / "data/state/.zarray").read_text())
    (store / "data/state/.zarray").write_text(json.dumps({**meta, "filters": [{"id": "pickle", "protocol": 5}]}))
    for chunk in store.glob("data/state/[0-9]*"):
        chunk.write_bytes(pickle.dumps(Evil()))
    assert "data/state: got codec 'pickle'" in refused(capsys, store, tmp_path / "x", "--hz", "10") and not run.exists()


def _cut(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda shard: _cut(shard, 9), "are there"),
        (lambda shard: _flip(shard, 4000), "checksum"),
        (lambda shard: _flip(shard, 3), "no record at byte 0"),
        (lambda shard: (shard.parent / "features.json").write_text("{}"), "no steps"),
        (lambda shard: (shard.parent / "features.json").write_text("["), "unreadable"),
    ],
)
def test_damaged_rlds_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object], says: str
) -> None:
    shutil.copytree(RLDS, tmp_path / "rlds")
    damage(tmp_path / "rlds/arithmetic_arm-train.tfrecord-00000-of-00002")
    assert says in refused(capsys, tmp_path / "rlds", tmp_path / "x", "--hz", "5")


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ({"dtype": "|O"}, "objects"),
        ({"chunks": [1 << 20, 1 << 20]}, "chunks of"),
        ({"compressor": {"id": "imagecodecs_jpegxl"}}, "imagecodecs_jpegxl"),
    ],
)
def test_a_strange_zarr_store_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], described: dict[str, Any], says: str
) -> None:
    store = tmp_path / "strange.zarr"
    replay(store)
    file = store / "data/state/.zarray"
    file.write_text(json.dumps({**json.loads(file.read_text()), **described}))
    assert says in refused(capsys, store, tmp_path / "x", "--hz", "10")


def test_a_damaged_record_is_left_out_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second record of one file has another checksum, the other file of the split is torn."""
    shutil.copytree(RLDS, tmp_path / "rlds")
    _flip(tmp_path / "rlds/arithmetic_arm-train.tfrecord-00000-of-00002", -20)
    _cut(tmp_path / "rlds/arithmetic_arm-train.tfrecord-00001-of-00002", 9)
    result, data = imported(capsys, tmp_path / "rlds", tmp_path / "set", "--hz", "5", "--skip-bad")
    assert data.episodes == 3 and data.frames == result["frames"]
    said = " ".join(result["left_out"])
    assert "episode 1 (arithmetic_arm-train.tfrecord-00000-of-00002): got a record whose checksum" in said
    assert "the rest of arithmetic_arm-train.tfrecord-00001-of-00002" in said


def test_a_first_file_that_leads_elsewhere_is_left_out_like_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "aloha"
    aloha(folder)
    with h5py.File(folder / "episode_0.hdf5", "a") as file:
        del file["action"]
        file["action"] = h5py.ExternalLink("episode_2.hdf5", "/action")
    for e in (2, 10):
        with h5py.File(folder / f"episode_{e}.hdf5", "a") as file:  # a depth camera is no picture of colours
            file["observations/images/cam_depth"] = np.zeros((T, 48, 64), np.uint16)
    result, data = imported(capsys, folder, tmp_path / "set", "--skip-bad")
    assert data.episodes == 2 and any("a link to episode_2.hdf5" in line for line in result["left_out"])
    assert "observations/images/cam_depth (48×64 uint16)" in result["left_out"]


def test_an_episode_whose_rewards_do_not_fit_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As if rewards had two components each: an episode of an odd number of steps has half a reward too few."""
    shutil.copytree(RLDS, tmp_path / "rlds")
    file = tmp_path / "rlds/features.json"
    features = json.loads(file.read_text())
    steps_of = features["featuresDict"]["features"]["steps"]["sequence"]["feature"]["featuresDict"]["features"]
    steps_of["reward"]["tensor"]["shape"] = {"dimensions": ["2"]}
    file.write_text(json.dumps(features))
    assert "reward: got 5 numbers" in refused(capsys, tmp_path / "rlds", tmp_path / "x", "--hz", "5", "--episodes", "2")
    result, data = imported(capsys, tmp_path / "rlds", tmp_path / "set", "--hz", "5", "--skip-bad")
    assert data.episodes <= 3 and sum("reward: got" in line for line in result["left_out"]) == 5 - data.episodes


def test_descriptions_without_an_end_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(RLDS, tmp_path / "rlds")
    (tmp_path / "rlds/features.json").write_text("[" * 100_000)
    assert "unreadable" in refused(capsys, tmp_path / "rlds", tmp_path / "x", "--hz", "5")
    replay(tmp_path / "deep.zarr")
    (tmp_path / "deep.zarr/data/state/.zarray").write_text("[" * 100_000)
    assert "no readable zarr store" in refused(capsys, tmp_path / "deep.zarr", tmp_path / "x", "--hz", "10")
    with zipfile.ZipFile(tmp_path / "bomb.zarr.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("meta/episode_ends/.zarray", " " * (2 << 20))
    assert "bytes" in refused(capsys, tmp_path / "bomb.zarr.zip", tmp_path / "x", "--hz", "10")


def test_what_does_not_fit_is_named_and_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A linked file of another folder, fewer pictures than actions, boundaries that fall."""
    folder = tmp_path / "aloha"
    aloha(folder)
    with h5py.File(folder / "episode_2.hdf5", "a") as file:
        del file["observations/qpos"]
        file["observations/qpos"] = steps(14, 2)[:-1]
    with h5py.File(folder / "episode_10.hdf5", "a") as file:
        del file["action"]
        file["action"] = h5py.ExternalLink("episode_0.hdf5", "/action")
    assert "episode_2.hdf5" in refused(capsys, folder, tmp_path / "x", "--episodes", "0-1")
    result, data = imported(capsys, folder, tmp_path / "set", "--skip-bad")
    assert data.episodes == 1 and sum(".hdf5" in line for line in result["left_out"]) == 2
    with h5py.File(folder / "episode_0.hdf5", "a") as file:
        seen = np.asarray(file["observations/images/cam_high"])[:-1]
        del file["observations/images/cam_high"]
        file["observations/images/cam_high"] = seen
    said = refused(capsys, folder, tmp_path / "x", "--episodes", "0")
    assert "episode_0.hdf5: observations/images/cam_high: got 5 pictures, expected 6" in said
    replay(tmp_path / "a.zarr")
    zarr.open_array(str(tmp_path / "a.zarr/meta/episode_ends"), mode="r+")[:] = np.array([6, 4])
    assert "numbers of frames that rise" in refused(capsys, tmp_path / "a.zarr", tmp_path / "x", "--hz", "10")
