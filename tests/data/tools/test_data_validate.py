"""Every fault is found where it is, and the search goes on after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert.formats import ReadOptions, guess, reader
from robolearn.data.validate import Defect, Tolerances, validate
from robolearn.data.writing.repair import repair

DATA = "data/chunk-000/file-000.parquet"
ROWS = "meta/episodes/chunk-000/file-000.parquet"
VIDEO = "videos/observation.images.front/chunk-000/file-001.mp4"
Copy = Callable[[Path], Path]
COMMANDS: dict[str, Callable[[Path], Any]] = {
    "validate": lambda root: list(validate(root)),
    "open": Dataset.open,
    "resume": lambda root: EpisodeWriter(root, Interface({}, ArraySpec((1,)), 10.0), resume=True),
    "repair": repair,
    "import": lambda root: reader(str(guess(root)))(root, ReadOptions()),
}


def found(root: Path, limits: Tolerances | None = None) -> list[tuple[str, int | None, int | None]]:
    return [(finding.check, finding.episode, finding.frame) for finding in validate(root, limits)]


def edit_table(root: Path, name: str, column: str, change: Callable[[list[Any]], None]) -> None:
    """Change the values of a column in place; vectors are lists."""
    table = pq.read_table(root / name)
    values = table[column].to_pylist()
    change(values)
    position, field = table.column_names.index(column), table.schema.field(column)
    pq.write_table(table.set_column(position, field, pa.array(values, field.type)), root / name)


def retype(root: Path, name: str, column: str, kind: pa.DataType) -> None:
    """The values of a column as another type."""
    table = pq.read_table(root / name)
    values = pa.array([str(value) for value in table[column].to_pylist()], kind)
    pq.write_table(table.set_column(table.column_names.index(column), column, values), root / name)


def edit_json(root: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads((root / name).read_text())
    change(value)
    (root / name).write_text(json.dumps(value))


def test_a_sound_set_has_no_faults(filmed: Path, plain: Path) -> None:
    assert list(validate(filmed)) == [] and list(validate(plain)) == []
    assert list(validate(filmed, Tolerances(decode=False))) == []


def test_what_is_no_set_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no meta/info\.json"):
        list(validate(tmp_path))


def test_a_clock_that_is_read_by_another_may_go_back_by_microseconds(plain: Path, copy: Copy) -> None:
    """As recordings with a keyboard had it; more than that is a fault, whose message says by how much."""
    root = copy(plain)
    edit_table(root, DATA, "stamp.proprio", lambda v: v.__setitem__(5, v[4] - 3e-6))
    assert list(validate(root)) == []
    edit_table(root, DATA, "stamp.proprio", lambda v: v.__setitem__(5, v[4] - 2e-3))
    assert [(f.check, f.what) for f in validate(root)] == [
        ("time goes back", "stamp.proprio 1000.3980 s after 1000.4000 s, 0.002 s less")
    ]


def test_many_faults_at_once_are_all_listed(filmed: Path, copy: Copy) -> None:
    root = copy(filmed)
    edit_table(root, DATA, "action", lambda rows: rows[16].__setitem__(0, 1.5))
    edit_table(root, DATA, "observation.state", lambda rows: [rows[i].__setitem__(2, np.nan) for i in (25, 26)])
    (root / VIDEO).unlink()
    findings = list(validate(root))
    texts = {finding.where: finding.what for finding in findings}
    assert texts[f"episode 1, frame 2, {DATA}"] == "component 0 is 1.5, expected [-1, 1]"
    assert texts[f"episode 2, frame 2, {DATA}"] == "observation.state: component 2 is nan (until frame 3)"
    assert texts[f"episode 1, {VIDEO}"] == "the file is not there"
    assert {f.check for f in findings} == {"action range", "not finite", "missing video", "stats"}


def test_a_parquet_without_its_footer(plain: Path, copy: Copy) -> None:
    root = copy(plain)
    (root / DATA).write_bytes((root / DATA).read_bytes()[:-20])
    (finding,) = validate(root)
    assert finding.check == "corrupt file" and finding.file == DATA and "episodes 0 to 2" in finding.what


def test_a_flipped_bit_in_the_data(plain: Path, copy: Copy) -> None:
    root = copy(plain)
    content = bytearray((root / DATA).read_bytes())
    content[len(content) // 3] ^= 0x40
    (root / DATA).write_bytes(content)
    assert [f.check for f in validate(root)] == ["corrupt file"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda r: edit_json(r, "meta/info.json", lambda i: i.update(total_frames=40)), ("counts", None, None)),
        (lambda r: edit_table(r, ROWS, "length", lambda v: v.__setitem__(1, 8)), ("counts", 1, None)),
        (lambda r: edit_table(r, ROWS, "length", lambda v: v.__setitem__(1, 0)), ("empty episode", 1, None)),
        (lambda r: edit_table(r, ROWS, "episode_index", lambda v: v.__setitem__(2, 1)), ("counts", 2, None)),
        (lambda r: edit_table(r, ROWS, "dataset_from_index", lambda v: v.__setitem__(2, 9)), ("counts", 2, None)),
        (lambda r: edit_table(r, DATA, "frame_index", lambda v: v.__setitem__(17, 7)), ("order", 1, 3)),
        (lambda r: edit_table(r, DATA, "index", lambda v: v.__setitem__(5, 7)), ("order", 0, 5)),
        (lambda r: edit_table(r, DATA, "task_index", lambda v: v.__setitem__(18, 5)), ("tasks", 1, 4)),
        (lambda r: (r / "meta/tasks.parquet").unlink(), ("tasks", None, None)),
        (lambda r: edit_table(r, DATA, "task_index", lambda v: v.__setitem__(18, None)), ("tasks", 1, 4)),
        (lambda r: edit_table(r, ROWS, "length", lambda v: v.__setitem__(1, None)), ("episodes", 1, None)),
        (lambda r: edit_table(r, ROWS, "episode_index", lambda v: v.__setitem__(1, None)), ("episodes", None, None)),
        (lambda r: retype(r, DATA, "episode_index", pa.string()), ("corrupt file", None, None)),
        (lambda r: retype(r, ROWS, "episode_index", pa.string()), ("episodes", None, None)),
        (lambda r: edit_json(r, "meta/info.json", lambda i: i.update(total_tasks=1)), ("counts", 2, None)),
        (lambda r: edit_table(r, "meta/tasks.parquet", "__index_level_0__", lambda v: v.__setitem__(1, " ")),
         ("tasks", 2, None)),
        (lambda r: (r / "meta/stats.json").unlink(), ("stats", None, None)),
        (lambda r: edit_json(r, "meta/stats.json", lambda s: s["action"]["mean"].__setitem__(0, 0.7)),
         ("stats", None, None)),
        (lambda r: edit_json(r, "meta/stats.json", lambda s: s["action"].update(count=[30])), ("stats", None, None)),
        (lambda r: edit_json(r, "meta/stats.json", lambda s: s.pop("action")), ("stats", None, None)),
        (lambda r: edit_table(r, ROWS, "stats/action/max", lambda v: v[1].__setitem__(0, 3.0)), ("stats", 1, None)),
        (lambda r: edit_table(r, DATA, "timestamp", lambda v: v.__setitem__(10, 1.003)), ("off the grid", 0, 10)),
        (lambda r: edit_table(r, DATA, "timestamp", lambda v: v.__setitem__(10, 0.8)), ("time goes back", 0, 10)),
        (lambda r: edit_table(r, DATA, "stamp.proprio", lambda v: v.__setitem__(20, 990.0)), ("time goes back", 1, 6)),
        (lambda r: edit_table(r, DATA, "next.reward", lambda v: v.__setitem__(3, np.inf)), ("not finite", 0, 3)),
    ],
)  # fmt: skip
def test_each_fault_of_the_tables_is_found_at_its_place(
    plain: Path, copy: Copy, damage: Callable[[Path], Any], expected: tuple
) -> None:
    root = copy(plain)
    damage(root)
    assert expected in found(root)


def test_an_episode_whose_rows_are_not_in_its_table(filmed: Path, copy: Copy) -> None:
    root = copy(filmed)
    table = pq.read_table(root / DATA)
    pq.write_table(table.filter(pc.field("episode_index") != 1), root / DATA)
    counted = [finding for finding in validate(root) if finding.check == "counts"]
    assert [(f.what, f.episode) for f in counted] == [("0 frames, meta/episodes says 9", 1)]


def test_an_episode_that_is_there_twice(tmp_path: Path, plain: Path) -> None:
    from robolearn.data.convert.edit import keep
    from robolearn.data.convert.source import open_numbers, write_dataset

    write_dataset(keep(open_numbers(plain), [0, 2, 0]), tmp_path / "out")
    (finding,) = validate(tmp_path / "out")
    assert (finding.check, finding.episode) == ("duplicate episode", 2) and "as episode 0" in finding.what


def stamped(
    root: Path, stamps: np.ndarray, hz: float = 20.0, source: str = "proprio"
) -> list[tuple[str, int | None, int | None]]:
    """What is found in a set of one episode with these raw timestamps."""
    interface = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), hz)
    with EpisodeWriter(root, interface, stamps=[source]) as writer:
        for t, stamp in enumerate(stamps):
            writer.add({"proprio": [t]}, [0.0], stamps={source: stamp})
        writer.end(success=True, terminated=True, task="wait")
    return found(root)


def test_raw_timestamps_that_stand_still_or_jump(tmp_path: Path) -> None:
    usual = 1e9 + np.arange(60) / 20 + np.random.default_rng(0).normal(0, 0.005, 60)
    assert stamped(tmp_path / "jitter", usual) == []
    assert stamped(tmp_path / "slow", 5.0 + (np.arange(60) // 2) / 10) == []  # a source at half the rate
    gap = usual + np.where(np.arange(60) >= 30, 0.5, 0.0)
    assert stamped(tmp_path / "gap", gap) == [("gap", 0, 30)]
    frozen = usual.copy()
    frozen[20:32] = frozen[20]
    assert stamped(tmp_path / "frozen", frozen) == [("frozen clock", 0, 21)]
    dead = usual.copy()
    dead[40:] = dead[40]
    assert stamped(tmp_path / "dead", dead) == [("frozen clock", 0, 41)]


def test_a_picture_may_be_as_old_as_a_station_permits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interface = Interface(
        {"proprio": ArraySpec((1,)), "images.front": ArraySpec((16, 16, 3), "uint8")}, ArraySpec((1,)), 20.0
    )

    def faults(name: str, held: float) -> list[tuple[str, int | None, int | None]]:
        """A camera that shows one picture for `held` seconds."""
        with EpisodeWriter(tmp_path / name, interface, stamps=["images.front", "proprio"]) as writer:
            for t in range(60):
                now = 1e9 + t / 20
                seen = 1e9 + 0.5 if 0.5 <= t / 20 < 0.5 + held else now
                image = np.full((16, 16, 3), t, np.uint8)
                stamps = {"images.front": seen, "proprio": now}
                writer.add({"proprio": [t], "images.front": image}, [0.0], stamps=stamps)
            writer.end(success=True, terminated=True, task="wait")
        return found(tmp_path / name)

    assert faults("busy", 0.5) == []  # record and deploy go on with pictures of this age
    limits = ("--gap-s", "0.1", "--picture-age-s", "0.2")
    assert main(["dataset", "validate", str(tmp_path / "busy"), *limits, "--json"]) == 1  # at 0.35 s: a strict station
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["check"], finding["frame"]) == ("frozen clock", 11)
    assert main(["dataset", "validate", str(tmp_path / "busy"), "--picture-age-s", "0.4", "--json"]) == 0
    assert main(["dataset", "validate", str(tmp_path / "busy"), "--picture-age-s", "0"]) == 2
    assert "--picture-age-s: got 0.0, expected a positive number" in capsys.readouterr().err
    assert faults("stuck", 0.8) == [("frozen clock", 0, 11)]


def test_what_speaks_rarely_or_late_is_no_fault(tmp_path: Path) -> None:
    usual = 1e9 + np.arange(60) / 20
    once = np.where(np.arange(60) < 7, 0.0, usual[7])  # a gripper that is commanded once
    assert stamped(tmp_path / "gripper", once, source="gripper") == []
    back = usual.copy()
    back[30] -= 1.0
    assert stamped(tmp_path / "back", back, source="gripper") == [("time goes back", 0, 30)]
    dead = usual.copy()
    dead[40:] = dead[40]
    assert stamped(tmp_path / "frame", dead, source="frame") == [("frozen clock", 0, 41)]
    late = np.where(np.arange(60) < 7, 0.0, dead)
    assert stamped(tmp_path / "late", late) == [("frozen clock", 0, 41)]
    assert stamped(tmp_path / "never", np.zeros(60)) == [("frozen clock", 0, 1)]
    assert stamped(tmp_path / "from zero", np.where(np.arange(60) < 20, 0.0, (np.arange(60) - 19) / 20)) == [
        ("frozen clock", 0, 1)
    ]


# Videos


def film(path: Path, images: np.ndarray, rate: int = 10) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options={"g": "2"})
        stream.height, stream.width, stream.pix_fmt = *images.shape[1:3], "yuv420p"
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def pictures(length: int, size: int = 64) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (length, size, size, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("length", "rate", "expected"),
    [
        (7, 10, [("video length", 1, 7)]),
        (11, 10, [("video length", 1, 9)]),
        (9, 11, [("video time", 1, 1)]),
    ],
)
def test_a_video_that_does_not_fit_its_table(
    filmed: Path, copy: Copy, length: int, rate: int, expected: list[tuple]
) -> None:
    root = copy(filmed)
    film(root / VIDEO, pictures(length), rate)
    assert found(root, Tolerances(decode=False)) == expected
    assert found(root) == expected


def test_a_video_of_another_size(filmed: Path, copy: Copy) -> None:
    root = copy(filmed)
    film(root / VIDEO, pictures(9, 96))
    (finding,) = validate(root)
    assert finding == Defect("video", "96 × 96 pixels, info.json says [64, 64, 3]", VIDEO, 1)


def test_a_video_that_stops_in_the_middle_or_is_none(filmed: Path, copy: Copy) -> None:
    root = copy(filmed)
    content = bytearray((root / VIDEO).read_bytes())
    (root / VIDEO).write_bytes(b"no video at all")
    (finding,) = validate(root)
    assert finding.check == "video" and "does not open" in finding.what and finding.file == VIDEO
    film(root / VIDEO, pictures(9))
    with av.open(str(root / VIDEO)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        where, size = packets[5].pos, packets[5].size
    content = bytearray((root / VIDEO).read_bytes())
    assert where is not None
    content[where : where + size] = bytes(size)
    (root / VIDEO).write_bytes(content)
    findings = list(validate(root))
    assert findings and {(f.file, f.episode) for f in findings} == {(VIDEO, 1)}


def recorded(root: Path, still: slice, moves: bool) -> list[tuple[str, int | None, int | None]]:
    """What is found in a recording whose camera shows one picture during `still`; a joint of little range drifts."""
    interface = Interface(
        {"proprio": ArraySpec((3,)), "images.front": ArraySpec((64, 64, 3), "uint8")}, ArraySpec((1,)), 10.0
    )
    with EpisodeWriter(root, interface) as writer:
        for e in range(2):
            for t in range(40):
                s = still.start if e == 1 and still.start <= t < still.stop else t
                image = np.full((64, 64, 3), 90, np.uint8)
                image[20:36, s : s + 16] = 255  # the arm goes on by a pixel a frame
                at = t if e == 0 or moves else min(t, still.start)
                writer.add({"proprio": [at, e, 0.002 * t], "images.front": image}, [0.0])
            writer.end(success=True, terminated=True, task=f"watch {e}")
    return found(root)


@pytest.mark.long
def test_a_camera_that_freezes_while_the_arm_moves(tmp_path: Path) -> None:
    assert recorded(tmp_path / "frozen", slice(10, 25), moves=True) == [("frozen camera", 1, 10)]
    assert recorded(tmp_path / "short", slice(10, 18), moves=True) == []
    assert recorded(tmp_path / "resting", slice(10, 40), moves=False) == []


@pytest.mark.long
def test_a_camera_of_one_of_two_arms_is_judged_by_that_arm(tmp_path: Path) -> None:
    names = ("left_pan", "left_gripper_width", "right_pan", "right_gripper_width")
    cameras = ("left_wrist", "right_wrist", "front")
    pictures = {f"images.{camera}": ArraySpec((64, 64, 3), "uint8") for camera in cameras}
    interface = Interface({"proprio": ArraySpec((4,), names=names), **pictures}, ArraySpec((1,)), 10.0)
    image = np.full((64, 64, 3), 90, np.uint8)  # of all cameras, all the time
    with EpisodeWriter(tmp_path / "set", interface) as writer:
        for t in range(40):
            writer.add({"proprio": [t, 0.0, 0.0, 0.0], **dict.fromkeys(pictures, image)}, [0.0])
        writer.end(success=True, terminated=True)
    frozen = {finding.what.split()[0] for finding in validate(tmp_path / "set") if finding.check == "frozen camera"}
    assert frozen == {"observation.images.left_wrist", "observation.images.front"}


def test_what_lies_beyond_the_last_commit_is_no_fault(filmed: Path, copy: Copy) -> None:
    root = copy(filmed)

    def two(info: dict[str, Any]) -> None:
        info.update(total_episodes=2, total_frames=23)

    (root / "meta/info.json.tmp").write_bytes((root / "meta/info.json").read_bytes())
    edit_json(root, "meta/info.json", two)
    findings = list(validate(root))
    assert {finding.check for finding in findings} == {"stats"}  # which a killed writer leaves behind
    assert all("repair brings it up to date" in finding.what for finding in findings)


def test_the_cure_of_another_makers_statistics_is_one_that_takes_the_set(filmed: Path, copy: Copy) -> None:
    """`repair` refuses what robolearn did not write."""
    root = copy(filmed)
    edit_json(root, "meta/info.json", lambda info: info.pop("robolearn_interface") and None)
    edit_json(root, "meta/stats.json", lambda stats: stats["action"].update(count=[7]))
    said = [finding.what for finding in validate(root) if finding.check == "stats"]
    assert len(said) == 1 and "repair" not in said[0] and "dataset import makes a set" in said[0]


def test_rows_that_info_does_not_count(filmed: Path, copy: Copy) -> None:
    """No commit was killed: somebody has brought back an older info.json."""
    root = copy(filmed)
    edit_json(root, "meta/info.json", lambda info: info.update(total_episodes=1, total_frames=14))
    first, *others = validate(root)
    assert (first.check, first.file) == ("counts", "meta/info.json")
    assert (
        first.what == "2 rows beyond total_episodes, which is 1; robolearn dataset repair counts those that are whole"
    )
    assert {other.check for other in others} == {"stats"} and not any("repair" in other.what for other in others)
    with EpisodeWriter(root / "live", Interface({"x": ArraySpec((1,))}, ArraySpec((1,)), 10.0)):
        assert not [f for f in validate(root / "live") if "beyond" in f.what]


def test_a_recording_that_was_killed_is_told_from_one_that_runs(tmp_path: Path, copy: Copy) -> None:
    interface = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 10.0)
    with EpisodeWriter(tmp_path / "set", interface) as writer:
        for t in range(3):
            writer.add({"proprio": [t]}, [0.0])
        writer.end(success=True, task="wait")
        writer.add({"proprio": [0.5]}, [0.0])
        assert found(tmp_path / "set") == []
        root = copy(tmp_path / "set")  # as a kill at this moment would leave it
    assert found(root) == [("unfinished episode", None, None)]


def test_weights_of_another_number_of_episodes(plain: Path, copy: Copy) -> None:
    root = copy(plain)
    (root / "meta/robolearn_weights.json").write_text('{"weights": [1, 2]}')
    (finding,) = validate(root)
    assert finding.what == "got 2 weights, expected one for each of 3 episodes"


@pytest.mark.parametrize(
    "change",
    [{"fps": 0}, {"fps": "x"}, {"total_tasks": None}, {"total_frames": -1}, {"features": []}, {"data_path": "{x}"},
     {"fps": 1e999}, {"chunks_size": "many"}, {"video_path": "{video_key.x}"}],
)  # fmt: skip
@pytest.mark.parametrize("command", ["validate", "open", "resume", "repair", "import"])
def test_nonsense_in_info_is_one_clear_error(plain: Path, copy: Copy, change: dict[str, Any], command: str) -> None:
    root = copy(plain)
    edit_json(root, "meta/info.json", lambda info: info.update(change))
    with pytest.raises(BadInput, match=rf"info\.json: {next(iter(change))}"):
        COMMANDS[command](root)


@pytest.mark.parametrize(
    ("feature", "told"),
    [
        ({"dtype": "float32"}, "action: shape"),
        ({"dtype": "float32", "shape": [-2]}, "action: shape"),
        ({"shape": [2]}, "action: dtype"),
        ({"dtype": "float32", "shape": [2], "info": "much"}, "action: info"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "open", "resume", "repair", "import"])
def test_nonsense_about_a_feature_is_one_clear_error(
    plain: Path, copy: Copy, feature: dict[str, Any], told: str, command: str
) -> None:
    root = copy(plain)
    edit_json(root, "meta/info.json", lambda info: info["features"].update(action=feature))
    with pytest.raises(BadInput, match=rf"info\.json: features: {told}"):
        COMMANDS[command](root)


@pytest.mark.parametrize("interface", [[], {"observation": []}, {"observation": {}, "action": 3}])
@pytest.mark.parametrize("command", ["open", "resume", "repair", "import"])
def test_an_interface_that_is_none(plain: Path, copy: Copy, interface: Any, command: str) -> None:
    root = copy(plain)
    edit_json(root, "meta/info.json", lambda info: info.update(robolearn_interface=interface))
    with pytest.raises(BadInput, match="robolearn_interface: got no valid interface"):
        COMMANDS[command](root)


@pytest.mark.parametrize("name", ["observation.images/../../pwned", "..", ""])
@pytest.mark.parametrize("command", ["validate", "open", "import"])
def test_names_of_features_lead_nowhere(plain: Path, copy: Copy, name: str, command: str) -> None:
    root = copy(plain)
    feature = {"dtype": "video", "shape": [64, 64, 3], "names": None}
    edit_json(root, "meta/info.json", lambda info: info["features"].update({name: feature}))
    with pytest.raises(BadInput, match=r"features: .*got this name, expected one without '/'"):
        COMMANDS[command](root)


def test_a_set_that_nobody_gave_words_is_whole(tmp_path: Path) -> None:
    """As `EpisodeWriter` writes it where no task is said; a policy trains on it."""
    with EpisodeWriter(tmp_path / "set", Interface({}, ArraySpec((1,)), 10.0)) as writer:
        for moment in range(6):
            writer.add({}, [moment / 10])
        writer.end(success=True)
    notes: list[str] = []
    assert list(validate(tmp_path / "set", notes=notes)) == []
    assert notes == ["no task has words; robolearn dataset edit rename-task gives it some"]
