"""Recordings that were interrupted, edited or taken apart."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware"))

from recording_rig import RecordingRig

from hardware.recording.episodes import Phase
from hardware.teleop.device import EpisodeEvent
from policies.normalize import Normalizer
from robolearn.core import ArraySpec, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.video.encoder import VideoConfig

Run = Callable[..., tuple[int, Any]]
Make = Callable[..., Path]
INTERFACE = Interface({"images.front": ArraySpec((32, 32, 3), "uint8")}, ArraySpec((1,)), 10.0)
RECORD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_recordings_that_broke import filmed, record
with filmed(Path(sys.argv[1])) as writer:
    record(writer, 40); record(writer, 80)
    for _ in range(5):
        writer.add({"images.front": __import__("numpy").zeros((32, 32, 3), "uint8")}, [0.0])
    print("running", flush=True)
    time.sleep(60)
"""


def filmed(path: Path, **more: Any) -> EpisodeWriter:
    return EpisodeWriter(path, INTERFACE, video=VideoConfig(codec="libx264"), task="lift", **more)


def record(writer: EpisodeWriter, level: int, steps: int = 6) -> None:
    """An episode whose pictures are of one grey, with a thing that moves."""
    for step in range(steps):
        picture = np.full((32, 32, 3), level, np.uint8)
        picture[4:8, 4 + step : 8 + step] = 250
        writer.add({"images.front": picture}, [level / 200 + step / 100])
    writer.end(success=True, terminated=True)


def greys(path: Path) -> list[int]:
    """The grey of each episode, to the next ten."""
    opened = Dataset.open(path, cache=False)
    films = [opened.episode(k).observation["images.front"] for k in range(opened.episodes)]
    assert all(int(np.ptp(film.mean(axis=(1, 2, 3)))) <= 3 for film in films), "one episode, one grey"
    return [round(float(film[:, 16:].mean()) / 10) * 10 for film in films]


def test_lerobot_2495_an_exception_while_recording_loses_the_running_episode_alone(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="unplugged"), filmed(tmp_path / "set") as writer:
        record(writer, 40)
        record(writer, 80)
        writer.add({"images.front": np.zeros((32, 32, 3), np.uint8)}, [0.0])
        raise RuntimeError("a camera was unplugged")
    assert greys(tmp_path / "set") == [40, 80]
    named = {one["check"] for one in run("dataset", "validate", tmp_path / "set")[1]["findings"]}
    assert named <= {"unfinished episode"}, named


def goes_on_after(how: signal.Signals, run: Run, tmp_path: Path) -> None:
    """A recording in a process of its own gets the signal `how` in its third episode, and another one goes on."""
    words = [sys.executable, "-c", RECORD, tmp_path / "set", Path(__file__).parent]
    child = subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None and child.stdout.readline() == "running\n"
    child.send_signal(how)
    child.wait(20)
    with filmed(tmp_path / "set", resume=True) as writer:
        record(writer, 160)
    found = greys(tmp_path / "set")
    assert found[:2] == [40, 80] and found[-1] == 160, "each by its number, whatever was lost"
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    rows = pq.read_table(tmp_path / "set/data/chunk-000/file-000.parquet").num_rows
    assert info["total_episodes"] == len(found) and rows <= info["total_frames"] <= 18 + 5
    named = {one["check"] for one in run("dataset", "validate", tmp_path / "set")[1]["findings"]}
    assert named <= {"unfinished episode"}, "which `dataset repair` can save"


@pytest.mark.long
def test_lerobot_3522_a_recording_that_was_killed_goes_on_where_it_was(run: Run, tmp_path: Path) -> None:
    goes_on_after(signal.SIGKILL, run, tmp_path)


@pytest.mark.long
def test_leisaac_129_a_recording_that_a_person_broke_off_goes_on_where_it_was(run: Run, tmp_path: Path) -> None:
    goes_on_after(signal.SIGINT, run, tmp_path)


@pytest.mark.parametrize(("period_s", "named"), [(0.05, False), (0.055, False), (0.075, True), (0.025, True)])
def test_lerobot_2786_steps_that_came_slower_than_they_are_played_are_named(
    period_s: float, named: bool, run: Run, tmp_path: Path
) -> None:
    interface = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 20.0)
    steps = {"stamps": ("action",), "real_time": False}
    with EpisodeWriter(tmp_path / "set", interface, task="lift", **steps) as writer:
        for step in range(120):
            writer.add({"proprio": [step / 120]}, [step / 120], stamps={"action": 1000.0 + step * period_s})
        writer.end(success=True, terminated=True)
    found = [one["what"] for one in run("dataset", "validate", tmp_path / "set")[1]["findings"]]
    assert found == [f"{1 / period_s:.3g} control steps a second are stored as 20"] * named


def test_lerobot_4423_rows_are_control_steps_however_often_commands_are_sent() -> None:
    rig = RecordingRig()
    rig.until(lambda: rig.phase is Phase.WAITING)
    rig.follow()
    rig.record()
    sent, began = len(rig.commands), rig.now
    rig.steps(60)
    rig.press(EpisodeEvent.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    commands, seconds = len(rig.commands) - sent, rig.now - began
    rig.settled()
    ((_, rows),) = rig.paper.episodes
    assert commands == pytest.approx(200 * seconds, abs=3) and len(rows) == pytest.approx(20 * seconds, abs=2)
    assert rig.logic.rates == pytest.approx([20.0], abs=0.5)


def test_lerobot_2712_a_number_that_is_not_there_deletes_nothing(make: Make, run: Run, tmp_path: Path) -> None:
    root = make(lengths=(5, 6))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    code, said = run("dataset", "edit", "drop", root, "--episodes", "14", "--out", tmp_path / "new")
    assert code == 2 and "14" in said and "0" in said
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "new").exists()


@pytest.mark.long
def test_lerobot_1170_after_an_episode_is_dropped_films_numbers_and_words_agree(run: Run, tmp_path: Path) -> None:
    with filmed(tmp_path / "set") as writer:
        for level in (40, 80, 120, 160):
            record(writer, level, steps=3 + level // 40)
    assert run("dataset", "edit", "drop", tmp_path / "set", "--episodes", "1", "--out", tmp_path / "new")[0] == 0
    assert greys(tmp_path / "new") == [40, 120, 160]
    table = pq.read_table(tmp_path / "new/data/chunk-000/file-000.parquet")
    assert table["index"].to_pylist() == list(range(4 + 6 + 7))
    assert table["episode_index"].to_pylist() == [0] * 4 + [1] * 6 + [2] * 7
    assert run("dataset", "validate", tmp_path / "new")[0] == 0


@pytest.mark.long
def test_lerobot_2283_a_set_of_many_files_is_dropped_from_and_split(run: Run, tmp_path: Path) -> None:
    for name, levels in (("a", (40, 80)), ("b", (120, 160))):
        with filmed(tmp_path / name) as writer:
            for level in levels:
                record(writer, level)
    assert run("dataset", "edit", "merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "set")[0] == 0
    assert len(list((tmp_path / "set/videos").rglob("*.mp4"))) > 1
    assert run("dataset", "edit", "drop", tmp_path / "set", "--episodes", "2", "--out", tmp_path / "less")[0] == 0
    assert greys(tmp_path / "less") == [40, 80, 160]
    parts = (tmp_path / "first", tmp_path / "last")
    assert run("dataset", "edit", "split", tmp_path / "set", "--out", *parts)[0] == 0
    assert [greys(part) for part in parts] == [[40, 80], [120, 160]]


def test_lerobot_2775_idle_frames_at_the_ends_are_cropped_from_numbers_and_films(run: Run, tmp_path: Path) -> None:
    with filmed(tmp_path / "set") as writer:
        for level in (0, 0, 100, 100, 100, 200):
            writer.add({"images.front": np.full((32, 32, 3), level, np.uint8)}, [level / 200])
        writer.end(success=True, terminated=True)
    words = ("--start", 2, "--end", 1, "--out", tmp_path / "new")
    assert run("dataset", "edit", "crop", tmp_path / "set", *words)[0] == 0
    episode = Dataset.open(tmp_path / "new", cache=False).episode(0)
    np.testing.assert_allclose(episode.action[:, 0], [0.5, 0.5, 0.5])
    np.testing.assert_allclose(episode.observation["images.front"].mean(axis=(1, 2, 3)), [100, 100, 100], atol=4)


def test_axol_158_a_hole_in_the_episodes_is_no_shift_of_those_behind_it(run: Run, tmp_path: Path) -> None:
    with filmed(tmp_path / "set") as writer:
        for level in (40, 80, 120):
            record(writer, level)
    for path in sorted((tmp_path / "set/meta/episodes").rglob("*.parquet")):
        table = pq.read_table(path)
        pq.write_table(table.filter(pc.not_equal(table["episode_index"], 1)), path)
    code, said = run("dataset", "import", tmp_path / "set", "--out", tmp_path / "in")
    assert code == 2 and "1" in said, "never read as if the third were the second"
    code, said = run("dataset", "validate", tmp_path / "set")
    assert code != 0


def test_lerobot_2610_an_episode_by_itself_has_no_padding_where_it_has_frames(make: Make) -> None:
    opened = Dataset.open(make(lengths=(8, 6, 7)))
    np.testing.assert_array_equal(opened.episode(1).observation["proprio"][:, 1], np.arange(6))


def test_robots_1668_a_set_is_not_continued_at_another_rate(tmp_path: Path) -> None:
    with filmed(tmp_path / "set") as writer:
        record(writer, 40)
    faster = Interface(dict(INTERFACE.observation), INTERFACE.action, 20.0)
    with pytest.raises(Exception, match="10") as error, EpisodeWriter(tmp_path / "set", faster, resume=True):
        pass
    assert "20" in str(error.value)


def test_lerobot_211_a_joint_that_never_moved_does_not_blow_up_what_is_divided_by_its_spread() -> None:
    interface = Interface({"proprio": ArraySpec((2,))}, ArraySpec((2,)), 10.0)
    seen = {"mean": [0.0, 0.7], "std": [0.5, 0.0], "min": [-1.0, 0.7], "max": [1.0, 0.7]}
    normal = Normalizer.from_statistics(interface, {"proprio": seen, "action": seen})
    half_a_degree_off = normal.observation({"proprio": torch.tensor([[0.0, 0.7 + 0.0087]])})["proprio"]
    assert half_a_degree_off.abs().max() < 0.1, "of the spread that a moving joint has"
    back = normal.action_back(normal.action(torch.tensor([[0.3, 0.7]])))
    torch.testing.assert_close(back, torch.tensor([[0.3, 0.7]]))


def test_lerobot_4099_one_frame_is_one_step_of_control(tmp_path: Path) -> None:
    with filmed(tmp_path / "set") as writer:
        record(writer, 40, steps=20)
    stamps = pq.read_table(tmp_path / "set/data/chunk-000/file-000.parquet")["timestamp"].to_pylist()
    np.testing.assert_allclose(np.diff(stamps), 0.1, atol=1e-6)
