"""Videos that do not fit their set: every reader gives the right picture of every frame, or refuses it by name.

Each picture has its own number in it. Which one is right for a frame is found by PyAV and arithmetic: of all that the
file shows, the nearest to ``from_timestamp + t / fps``, within LeRobot's tolerance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rosbags.highlevel import AnyReader

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Episode
from robolearn.data import Dataset, EpisodeWriter, Windows
from robolearn.data.convert import edit, view
from robolearn.data.convert.bags import write_bag
from robolearn.data.convert.formats import ReadOptions, reader, writer
from robolearn.data.convert.source import open_numbers, write_dataset
from robolearn.data.validate import validate
from robolearn.data.validate.opened import Tolerances
from robots.stations import Contract, load_contract

pytestmark = pytest.mark.long

HZ, SIZE, CAMERA = 20, 64, "observation.images.front"
LENGTHS = (8, 6, 7)
VICTIM = 3  # a frame of episode 1
TOLERANCE_S = 1e-4
BASE = 90_000  # ticks per second of the films
CONTRACT = """
robot: panda
action_kind: joint_position
control_hz: 20
stream_hz: 200
joints: [{joints}]
joint_states: {{topic: /joint_states, type: sensor_msgs/msg/JointState, max_age_s: 0.1}}
command: {{topic: /arm/command, type: std_msgs/msg/Float64MultiArray, max_age_s: 0.1}}
cameras:
  front: {{topic: /front, type: sensor_msgs/msg/Image, size: [64, 64], max_age_s: 0.2}}
"""

Shown = list[tuple[int, float]]
"""(number, when it is shown [s]) of the pictures of a file."""


def number(e: int, t: int) -> int:
    return 1 + 40 * e + t


def picture(shown: int) -> np.ndarray:
    """The bits of `shown` as eight large fields, four to a row."""
    fields = np.array([255 * (shown >> bit & 1) for bit in range(8)], np.uint8).reshape(2, 4)
    return np.repeat(fields.repeat(SIZE // 2, 0).repeat(SIZE // 4, 1)[..., None], 3, 2)


def numbers(images) -> list[int]:
    """What is in pictures (…, H, W, 3)."""
    images = np.asarray(images).reshape(-1, 2, SIZE // 2, 4, SIZE // 4, 3)
    bits = images.mean(axis=(2, 4, 5)).reshape(-1, 8)
    assert (np.abs(bits - 127.5) > 64).all(), "a picture that cannot be read"
    return ((bits > 127.5) @ (1 << np.arange(8))).tolist()


def film(path: Path, shown: Shown) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=HZ, options={"g": "2", "bf": "0", "crf": "10"})
        stream.height, stream.width, stream.pix_fmt = SIZE, SIZE, "yuv420p"
        stream.codec_context.time_base = Fraction(1, BASE)
        for name, seconds in shown:
            frame = av.VideoFrame.from_ndarray(picture(name), format="rgb24")
            frame.pts, frame.time_base = round(seconds * BASE), Fraction(1, BASE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def on_grid(episodes: range) -> Shown:
    every = [number(e, t) for e in episodes for t in range(LENGTHS[e])]
    return [(name, i / HZ) for i, name in enumerate(every)]


def at(shown: Shown, e: int = 1, t: int = VICTIM) -> int:
    return [name for name, _ in shown].index(number(e, t))


def dropped(shown: Shown) -> Shown:
    return [one for i, one in enumerate(shown) if i != at(shown)]


def closed_up(shown: Shown) -> Shown:
    """One dropped, and those after it a period too early."""
    return [(name, s if i < at(shown) else s - 1 / HZ) for i, (name, s) in enumerate(shown) if i != at(shown)]


def duplicated(shown: Shown) -> Shown:
    i = at(shown)
    return [*shown[: i + 1], *((name, s + 1 / HZ) for name, s in shown[i:])]


def offset(shown: Shown) -> Shown:
    return [(name, s + 1 / HZ) for name, s in shown]


def late(shown: Shown) -> Shown:
    return [(name, s + 0.45 / HZ * (i == at(shown))) for i, (name, s) in enumerate(shown)]


def double(shown: Shown) -> Shown:
    return [one for name, s in shown for one in ((name, s), (name + 128, s + 0.5 / HZ))]


def missing_last(shown: Shown) -> Shown:
    return shown[:-1]


def stray(shown: Shown) -> Shown:
    i = at(shown)
    return [*shown[: i + 1], (250, shown[i][1] + 0.2 / HZ), *shown[i + 1 :]]


def stray_before(shown: Shown) -> Shown:
    i = at(shown)
    return [*shown[:i], (250, shown[i][1] - 0.2 / HZ), *shown[i:]]


def jitter(shown: Shown) -> Shown:
    return [(name, s + 5e-5 * (i % 2)) for i, (name, s) in enumerate(shown)]


def intact(shown: Shown) -> Shown:
    return shown


DAMAGES = (intact, jitter, dropped, closed_up, duplicated, offset, late, double, missing_last, stray, stray_before)


@pytest.fixture(scope="session")
def station(tmp_path_factory: pytest.TempPathFactory) -> Contract:
    from robots import ROBOTS

    path = tmp_path_factory.mktemp("station") / "station.yaml"
    path.write_text(CONTRACT.format(joints=", ".join(ROBOTS["panda"].joints)))
    return load_contract(str(path))


@pytest.fixture(scope="session")
def whole(station: Contract, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set whose videos are to be replaced."""
    root = tmp_path_factory.mktemp("whole") / "set"
    interface = station.interface
    assert interface.observation["images.front"] == ArraySpec((SIZE, SIZE, 3), "uint8")
    with EpisodeWriter(root, interface) as out:
        for e, length in enumerate(LENGTHS):
            observation: dict[str, np.ndarray] = {
                key: np.full((length, *spec.shape), 0.03, np.float32) + 0.001 * np.arange(length)[:, None]
                for key, spec in interface.observation.items()
                if key != "images.front"
            }
            observation["images.front"] = np.stack([picture(number(e, t)) for t in range(length)])
            action = np.zeros((length, *interface.action.shape), np.float32)
            out.write(Episode(observation, action, np.zeros(length, np.float32), True, True, False, f"task {e}"))
    return root


@pytest.fixture
def damage(whole: Path, tmp_path: Path) -> Callable[[Callable[[Shown], Shown], str], Path]:
    """A copy of the set with a damaged video, in the layout "own", an mp4 per episode, or "shared", one for all."""
    import shutil

    def make(how: Callable[[Shown], Shown], layout: str) -> Path:
        root = Path(shutil.copytree(whole, tmp_path / "damaged"))
        chunk = root / f"videos/{CAMERA}/chunk-000"
        if layout == "own":
            film(chunk / "file-001.mp4", how(on_grid(range(1, 2))))
            return root
        for file in chunk.iterdir():
            file.unlink()
        film(chunk / "file-000.mp4", how(on_grid(range(len(LENGTHS)))))
        path = root / "meta/episodes/chunk-000/file-000.parquet"
        rows = pq.read_table(path)
        begins = [sum(LENGTHS[:e]) / HZ for e in range(len(LENGTHS))]
        for key, values in (("file_index", [0] * len(LENGTHS)), ("from_timestamp", begins)):
            place = rows.column_names.index(f"videos/{CAMERA}/{key}")
            field = rows.schema.field(place)
            rows = rows.set_column(place, field, pa.array(values, field.type))
        pq.write_table(rows, path)
        return root

    return make


def judged(root: Path) -> list[list[int | None]]:
    """The number of the right picture of every frame, None where there is none, by all that PyAV decodes."""
    (table,) = root.glob("meta/episodes/*/*.parquet")
    found: list[list[int | None]] = []
    for row in pq.read_table(table).to_pylist():
        file = row[f"videos/{CAMERA}/file_index"]
        with av.open(str(root / f"videos/{CAMERA}/chunk-000/file-{file:03d}.mp4")) as container:
            shown = [
                (float(frame.pts * frame.time_base), numbers(frame.to_ndarray(format="rgb24"))[0])
                for frame in container.decode(video=0)
            ]
        begin = row[f"videos/{CAMERA}/from_timestamp"]
        own: list[int | None] = []
        for t in range(row["length"]):
            away, name = min((abs(seconds - begin - t / HZ), name) for seconds, name in shown)
            own.append(name if away < TOLERANCE_S else None)
        found.append(own)
    return found


def cut(values: list[int], lengths=LENGTHS) -> list[list[int]]:
    parts = np.split(np.array(values), np.cumsum(lengths)[:-1])
    return [part.tolist() for part in parts]


def encoded(root: Path, pattern: str) -> list[list[int]]:
    """The numbers in the mp4s of a set with one for every episode, frame by frame, on the grid."""
    found = []
    for path in sorted(root.glob(pattern)):
        with av.open(str(path)) as container:
            frames = [(float(f.pts * f.time_base), f.to_ndarray(format="rgb24")) for f in container.decode(video=0)]
        assert np.abs([s - t / HZ for t, (s, _) in enumerate(frames)]).max() < TOLERANCE_S
        found.append(numbers([image for _, image in frames]))
    return found


Monkey = pytest.MonkeyPatch
V3 = f"videos/{CAMERA}/*/*.mp4"


def read(root: Path, out: Path, *_) -> list[list[int]]:
    return cut(numbers(Dataset.open(root, cache=False).images("front")[:]))


def read_episodes(root: Path, out: Path, *_) -> list[list[int]]:
    dataset = Dataset.open(root, cache=out)
    return [numbers(dataset.episode(e).observation["images.front"]) for e in range(dataset.episodes)]


def cached(root: Path, out: Path, *_) -> list[list[int]]:
    return cut(numbers(Dataset.open(root, cache=out).images("front")[:]))


def windows(root: Path, out: Path, *_) -> list[list[int]]:
    dataset = Dataset.open(root, cache=out)
    batch = Windows(dataset, 1, 2).gather(torch.arange(dataset.frames))
    return cut(numbers(batch.observation["images.front"].numpy()))


def renamed(root: Path, out: Path, *_) -> list[list[int]]:
    write_dataset(edit.rename_task(open_numbers(root), None, "work"), out)
    return encoded(out, V3)


def reversed_order(root: Path, out: Path, *_) -> list[list[int]]:
    write_dataset(edit.keep(open_numbers(root), [2, 1, 0]), out)
    return encoded(out, V3)[::-1]


def cropped(root: Path, out: Path, *_) -> list[list[int]]:
    write_dataset(edit.crop(open_numbers(root), 1, 1), out)
    return encoded(out, V3)


def imported(root: Path, out: Path, *_) -> list[list[int]]:
    write_dataset(reader("lerobot-v3.0")(root, ReadOptions()), out)
    return encoded(out, V3)


def exported_v21(root: Path, out: Path, *_) -> list[list[int]]:
    writer("lerobot-v2.1")(open_numbers(root), out, None)
    return encoded(out, "videos/*/*/*.mp4")


def exported_npz(root: Path, out: Path, *_) -> list[list[int]]:
    writer("npz")(open_numbers(root), out, None)
    return [numbers(np.load(path)["images.front"]) for path in sorted(out.glob("*.npz"))]


def exported_robomimic(root: Path, out: Path, *_) -> list[list[int]]:
    writer("robomimic")(open_numbers(root), out.with_suffix(".hdf5"), None)
    with h5py.File(out.with_suffix(".hdf5")) as file:
        return [numbers(file[f"data/demo_{e}/obs/front_image"][:]) for e in range(len(LENGTHS))]  # type: ignore[index]


def exported_mcap(root: Path, out: Path, station: Contract, *_) -> list[list[int]]:
    write_bag(open_numbers(root), station, out.with_suffix(".mcap"))
    with AnyReader([out.with_suffix(".mcap")]) as bag:
        wanted = [connection for connection in bag.connections if connection.topic == "/front"]
        found = [bag.deserialize(raw, c.msgtype).data for c, _, raw in bag.messages(wanted)]
    return cut(numbers(np.stack(found).reshape(-1, SIZE, SIZE, 3)))


def viewed(root: Path, out: Path, station: Contract, monkeypatch: Monkey) -> list[list[int]]:
    import rerun

    shown: list[np.ndarray] = []
    real = rerun.Image
    monkeypatch.setattr(rerun, "Image", lambda image: (shown.append(np.array(image)), real(image))[1])
    view.save(open_numbers(root), range(len(LENGTHS)), out.with_suffix(".rrd"))
    return cut(numbers(np.stack(shown)))


READERS = (
    read, read_episodes, cached, windows, renamed, reversed_order, cropped, imported,
    exported_v21, exported_npz, exported_robomimic, exported_mcap, viewed,
)  # fmt: skip


@pytest.mark.parametrize(
    ("how", "layout"), [(how, "shared") for how in DAMAGES] + [(how, "own") for how in (dropped, offset, stray)]
)
@pytest.mark.parametrize("reads", READERS, ids=lambda f: f.__name__)
def test_every_frame_has_its_own_picture_or_is_refused_by_name(
    damage, station: Contract, monkeypatch: Monkey, tmp_path: Path, reads, how, layout: str
) -> None:
    root = damage(how, layout)
    right = judged(root)
    wanted = slice(1, -1) if reads is cropped else slice(None)
    lacking = [(e, t) for e, own in enumerate(right) for t in range(len(own))[wanted] if own[t] is None]
    if how in (intact, jitter, double, stray, stray_before):
        assert not lacking and right == [[number(e, t) for t in range(n)] for e, n in enumerate(LENGTHS)]
    if lacking:
        with pytest.raises(BadInput) as refused:
            reads(root, tmp_path / "out", station, monkeypatch)
        said = str(refused.value)
        e, t = re.findall(r"\(episode (\d+), images\.front, frame (\d+)\)", said)[0]
        assert (int(e), int(t)) in lacking, said
        assert all(int(e) != other or int(t) <= frame for other, frame in lacking), "the first of its episode"
        assert "with --skip-bad" in said and ".mp4" in said and len(said.splitlines()) == 1
        assert not (tmp_path / "out").exists() or not list((tmp_path / "out").rglob("info.json"))
    else:
        found = reads(root, tmp_path / "out", station, monkeypatch)
        assert found == [own[wanted] for own in right]


@pytest.mark.parametrize("e", range(len(LENGTHS)))
def test_a_picture_alone_is_the_one_among_many(damage, e: int) -> None:
    frames = Dataset.open(damage(double, "shared"), cache=False).images("front")
    for t in range(LENGTHS[e]):
        assert numbers(frames[sum(LENGTHS[:e]) + t]) == [number(e, t)]


def test_after_a_corrected_rate_other_pictures_are_read(damage, tmp_path: Path) -> None:
    root = damage(double, "shared")
    assert cached(root, tmp_path / "cache") == [[number(e, t) for t in range(n)] for e, n in enumerate(LENGTHS)]
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    info["fps"] = info["robolearn_interface"]["control_hz"] = 2 * HZ
    path.write_text(json.dumps(info))
    for file in root.glob("data/*/*.parquet"):
        table = pq.read_table(file)
        stamps = pa.array(table["frame_index"].to_numpy() / (2 * HZ), pa.float32())
        pq.write_table(table.set_column(table.column_names.index("timestamp"), "timestamp", stamps), file)
    expected = [[number(e, t // 2) + 128 * (t % 2) for t in range(n)] for e, n in enumerate(LENGTHS)]
    assert cached(root, tmp_path / "cache") == expected


def test_what_the_command_says_of_a_hole(damage, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    root = damage(dropped, "shared")
    assert main(["dataset", "edit", "rename-task", str(root), "--to", "x", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "episode 1, images.front, frame 3" in said and "Traceback" not in said
    assert main(["dataset", "edit", "drop", str(root), "--episodes", "1", "--out", str(tmp_path / "rest")]) == 0
    rest = [[number(e, t) for t in range(LENGTHS[e])] for e in (0, 2)]
    assert encoded(tmp_path / "rest", V3) == rest and main(["dataset", "validate", str(tmp_path / "rest")]) == 0
    near = ["--tolerance-s", "0.06", "--out", str(tmp_path / "near")]
    assert main(["dataset", "import", str(root), *near]) == 0
    expected = [[number(e, t) for t in range(LENGTHS[e])] for e in range(len(LENGTHS))]
    expected[1][VICTIM] = number(1, VICTIM - 1)  # the earlier of two that are equally near
    assert encoded(tmp_path / "near", V3) == expected


@pytest.mark.parametrize("layout", ["own", "shared"])
@pytest.mark.parametrize("how", [dropped, closed_up, offset, late, missing_last, double, stray, jitter, intact],
                         ids=lambda f: f.__name__)  # fmt: skip
def test_validate_finds_the_frame_without_a_picture(damage, how, layout: str) -> None:
    root = damage(how, layout)
    lacking = [(e, own.index(None)) for e, own in enumerate(judged(root)) if None in own]
    for decode in (True, False):
        found = [f for f in validate(root, Tolerances(decode=decode)) if f.check.startswith("video")]
        assert [(f.episode, f.frame) for f in found if f.frame is not None and f.frame < LENGTHS[f.episode or 0]] == (
            lacking
        )
        if how in (jitter, intact):
            assert found == []
        if how in (double, stray):
            assert {f.check for f in found} == {"video length"}
