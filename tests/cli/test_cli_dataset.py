"""``robolearn dataset …`` from the outside: results, exit codes, one line for bad input."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.cli.dataset.common import episode_list
from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter


def interface() -> Interface:
    observation = {"proprio": ArraySpec((2,), names=("x", "y")), "images.front": ArraySpec((64, 64, 3), "uint8")}
    return Interface(observation, ArraySpec((2,)), 10.0, "panda")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three episodes with one camera, of 6, 7 and 8 steps; the second one failed."""
    out = tmp_path_factory.mktemp("dataset") / "set"
    with EpisodeWriter(out, interface(), stamps=["proprio"]) as writer:
        for e in range(3):
            for t in range(6 + e):
                image = np.full((64, 64, 3), 20 * t + e, np.uint8)
                observation = {"proprio": [e, t], "images.front": image}
                writer.add(observation, [0.1 * t, e / 2], intervention=t == 2, stamps={"proprio": 50 + t / 10})
            writer.end(success=e != 1, terminated=e != 1, truncated=e == 1, task="push")
    return out


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


def result(capsys: pytest.CaptureFixture, *args: Any, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run("dataset", *args, "--json") == code
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_info(data: Path, capsys: pytest.CaptureFixture) -> None:
    info = result(capsys, "info", data)
    assert (info["robot"], info["episodes"], info["frames"], info["successes"]) == ("panda", 3, 21, 2)
    assert info["cameras"]["front"]["shape"] == [64, 64, 3] and info["cameras"]["front"]["codec"] in ("av1", "h264")
    assert info["duration_s"] == pytest.approx(2.1) and info["tasks"] == {"push": 3} and info["stamps"] == ["proprio"]
    assert info["interventions"] == {"frames": 3, "episodes": 3}
    assert info["bytes"]["total"] == sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    assert run("dataset", "info", data) == 0
    assert "64 × 64" in (out := capsys.readouterr().out) and "'push': 3 episodes" in out


def test_stats(data: Path, capsys: pytest.CaptureFixture) -> None:
    stats = result(capsys, "stats", data, "--episodes", "0,2")
    assert stats["features"]["proprio"]["max"] == [2, 7] and stats["features"]["proprio"]["names"] == ["x", "y"]
    assert stats["note"].startswith("meta/stats.json has those of pictures, too: quantiles of pictures are made of")
    assert run("dataset", "stats", data) == 0
    shown = capsys.readouterr().out
    assert "proprio" in shown and "q90 and q99 the greatest" in " ".join(shown.split())


def test_validate_says_so_by_its_exit_code(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    sound = {"dataset": str(data), "ok": True, "findings": [], "notes": []}
    assert result(capsys, "validate", data) == sound
    root = Path(shutil.copytree(data, tmp_path / "copy"))
    video = next(root.glob("videos/*/*/file-001.mp4"))
    video.unlink()
    (finding,) = result(capsys, "validate", root, code=1)["findings"]
    assert finding["check"] == "missing video" and finding["episode"] == 1
    assert run("dataset", "validate", root) == 1
    assert f"episode 1, {video.relative_to(root)}" in capsys.readouterr().out
    assert run("dataset", "validate", root, "--no-video") == 1


@pytest.mark.long
def test_every_edit(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert result(capsys, "edit", "drop", data, "--failed", "--out", tmp_path / "good")["frames"] == 14
    assert result(capsys, "edit", "drop", data, "--keep", "2,0", "--out", tmp_path / "kept")["episodes"] == 2
    parts = result(capsys, "edit", "split", data, "--out", tmp_path / "a", tmp_path / "b", "--fractions", 2, 1)
    assert [part["from_episodes"] for part in parts["datasets"]] == [[0, 1], [2]]
    assert result(capsys, "edit", "merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "ab")["frames"] == 21
    result(capsys, "edit", "rename-task", data, "--to", "pull", "--out", tmp_path / "pull")
    assert Dataset.open(tmp_path / "pull", images=False).tasks == ["pull"]
    assert result(capsys, "edit", "crop", data, "--start", 2, "--out", tmp_path / "short")["frames"] == 15
    assert result(capsys, "edit", "subsample", data, "--every", 2, "--out", tmp_path / "thin")["frames"] == 11
    for out in ("good", "kept", "ab", "pull", "short", "thin"):
        assert result(capsys, "validate", tmp_path / out)["ok"]
    assert run("dataset", "edit", "drop", data, "--episodes", "1", "--out", tmp_path / "shown") == 0
    assert "2 episodes, 14 frames, 2 successes" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "file"), [("lerobot-v2.1", "v21"), ("robomimic", "x.hdf5"), ("npz", "npz")])
def test_export_and_import(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture, name: str, file: str) -> None:
    written = result(capsys, "export", data, "--format", name, "--out", tmp_path / file)
    assert written["episodes"] == 3 and written["frames"] == 21
    read = result(capsys, "import", tmp_path / file, "--out", tmp_path / "back", "--no-images")
    assert (
        read["format"] == name and read["successes"] == 2 and all("not asked for" in line for line in read["left_out"])
    )
    assert Dataset.open(tmp_path / "back").interface.observation.keys() == {"proprio"}


@pytest.mark.long
def test_view_saves_what_rerun_reads(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "two.rrd"
    shown = result(capsys, "view", data, "--episodes", "1-2", "--save", file)
    assert shown["episodes"] == [1, 2] and shown["frames"] == 15
    done = subprocess.run([sys.executable, "-m", "rerun", "rrd", "print", "-vv", str(file)],
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("images/front", "proprio/x", "action/1", "is_intervention", "frame", "episode", "step", "time"):
        assert name in done.stdout, name
    assert run("dataset", "view", data, "--save", file) == 2


@pytest.mark.long
def test_repair_of_a_recording_that_was_killed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    script = """
import sys, time
from robolearn.core import ArraySpec, Interface
from robolearn.data import EpisodeWriter
writer = EpisodeWriter(sys.argv[1], Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 10.0), task="wait")
for t in range(5):
    writer.add({"proprio": [t]}, [0.0])
writer.end(success=True)
for t in range(7):
    writer.add({"proprio": [t]}, [0.5])
print("now", flush=True)
time.sleep(60)
"""
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "set")], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"now\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    mended = result(capsys, "repair", tmp_path / "set")
    assert mended["saved"] == [{"episode": 1, "frames": 7}] and (mended["episodes"], mended["frames"]) == (2, 12)
    assert result(capsys, "validate", tmp_path / "set")["ok"]
    assert run("dataset", "repair", tmp_path / "set") == 0
    assert "no unfinished episode" in capsys.readouterr().out
    info = tmp_path / "set/meta/info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"total_episodes": 1, "total_frames": 5}))
    mended = result(capsys, "repair", tmp_path / "set")
    assert mended["adopted"] == [{"episode": 1, "frames": 7}] and (mended["episodes"], mended["frames"]) == (2, 12)


@pytest.mark.long
def test_an_edit_that_is_killed_leaves_no_half_set(data: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time; from robolearn.data.convert import source; from robolearn.cli.main import main\n"
        "write = source._write\n"
        "def slow(*args): write(*args); print('one', flush=True); time.sleep(60)\n"
        "source._write = slow; main(sys.argv[1:])"
    )
    args = ["dataset", "edit", "crop", str(data), "--start", "1", "--out", str(tmp_path / "out")]
    child = subprocess.Popen([sys.executable, "-c", code, *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None and child.stdout.readline() == b"one\n"
    # A second one into the same place is refused while the first is at work, and welcome when that is dead.
    assert run(*args) == 2
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "out").exists()
    assert run(*args) == 0 and [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("info", "NOWHERE"), "no such folder"),
        (("validate", "NOWHERE"), "no such folder"),
        (("stats", "DATA", "--episodes", "9"), "episodes from 0 to 2"),
        (("stats", "DATA", "--episodes", "one"), "numbers and ranges"),
        (("view", "DATA", "--episodes", "3", "--save", "OUT"), "episodes from 0 to 2"),
        (("repair", "NOWHERE"), "info.json"),
        (("edit", "drop", "DATA", "--out", "OUT"), "--episodes, --failed or --keep"),
        (("edit", "drop", "DATA", "--keep", "1", "--failed", "--out", "OUT"), "--keep with other flags"),
        (("edit", "drop", "DATA", "--episodes", "0-2", "--out", "OUT"), "no episode left"),
        (("edit", "drop", "DATA", "--episodes", "1", "--out", "DATA"), "Nothing is overwritten"),
        (("edit", "split", "DATA", "--out", "OUT"), "two or more"),
        (("edit", "split", "DATA", "--out", "OUT", "OTHER", "--fractions", "1"), "one per --out"),
        (("edit", "merge", "DATA", "--out", "OUT"), "two or more"),
        (("edit", "rename-task", "DATA", "--task", "pusch", "--to", "x", "--out", "OUT"), "did you mean push?"),
        (("edit", "crop", "DATA", "--start", "7", "--out", "OUT"), "episode 0: got 6 steps"),
        (("edit", "subsample", "DATA", "--every", "0", "--out", "OUT"), "at least 2"),
        (("edit", "subsample", "DATA", "--every", "2", "--action", "best", "--out", "OUT"), "got best; available"),
        (("import", "NOWHERE", "--out", "OUT"), "that is there"),
        (("import", "EMPTY", "--out", "OUT"), "of none of the formats"),
        (("import", "DATA", "--format", "rosbag", "--out", "OUT"), "available: lerobot-v2.1"),
        (("import", "DATA", "--hz", "-1", "--out", "OUT"), "a positive number"),
        (("export", "DATA", "--format", "lerobot-v3.0", "--out", "OUT"), "available: lerobot-v2.1"),
        (("export", "DATA", "--format", "npz", "--out", "EMPTY/FULL"), "Nothing is overwritten"),
        (("edit", "drup"), "did you mean dataset edit drop?"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture, args: tuple[str, ...], message: str
) -> None:
    places = {"DATA": data, "OUT": tmp_path / "out", "OTHER": tmp_path / "other", "NOWHERE": tmp_path / "nowhere"}
    places |= {"EMPTY": tmp_path / "empty", "EMPTY/FULL": tmp_path / "full"}
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    before = sorted(data.rglob("*"))
    assert run("dataset", *(places.get(arg, arg) for arg in args)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error, error
    assert not (tmp_path / "out").exists() and sorted(data.rglob("*")) == before


def test_lists_of_episodes() -> None:
    assert episode_list("0-2,5, 1", 6) == [0, 1, 2, 5]
    for text in ("", ",", "3-1", "-1", "1-", "6", "a"):
        with pytest.raises(BadInput):
            episode_list(text, 6)


def test_help_for_the_family(capsys: pytest.CaptureFixture) -> None:
    assert run("dataset", "--help") == 0
    out = capsys.readouterr().out
    assert "dataset validate" in out and "dataset edit crop" in out and "quickstart " not in out.split("Examples")[0]
    assert run("dataset", "edit", "--help") == 0 and "dataset info" not in capsys.readouterr().out


def test_what_is_sound_can_be_taken_out_of_a_damaged_set(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    root = Path(shutil.copytree(data, tmp_path / "copy"))
    table = pq.read_table(root / "data/chunk-000/file-000.parquet")
    state = table["observation.state"].to_pylist()
    state[8][1] = float("nan")
    position, field = table.column_names.index("observation.state"), table.schema.field("observation.state")
    table = table.set_column(position, field, pa.array(state, field.type))
    pq.write_table(table, root / "data/chunk-000/file-000.parquet")
    (root / "videos/observation.images.front/chunk-000/file-001.mp4").write_bytes(b"nothing")
    findings = result(capsys, "validate", root, code=1)["findings"]
    assert {finding["episode"] for finding in findings if finding["check"] != "stats"} == {1}
    assert run("dataset", "edit", "drop", root, "--episodes", "2", "--out", tmp_path / "out") == 2
    assert "episode 1" in (error := capsys.readouterr().err) and "does not open" in error
    assert result(capsys, "edit", "drop", root, "--episodes", "1", "--out", tmp_path / "out")["frames"] == 14
    assert result(capsys, "validate", tmp_path / "out")["ok"]
