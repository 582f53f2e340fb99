"""`robolearn record` as people start it: a script and a camera, nodes killed, Ctrl-C, two writers; what is refused."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from running import ROOT, WAIT_S, Running

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2.process import wait_until
from hardware.safety import SafetyFilter
from robolearn.core import BadInput
from robolearn.data.reading.reader import Dataset
from robots.stations import CONTRACTS, load_contract

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 4


@pytest.fixture(scope="module")
def compiled() -> None:
    """Machine code is cached on disk: made here, not while a recording waits for it."""
    contract = load_contract("sim")
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)


def mid_episode(running: Running, out: Path, episodes: int) -> None:
    """Wait until so many are stored and the next one runs."""

    def stored() -> bool:
        assert running.process.poll() is None, running.process.communicate()
        return count(out) >= episodes and any((out / ".running").glob("*")) and len(running.left) == 2

    wait_until(stored, WAIT_S, f"{episodes} episodes and a running one")


def count(out: Path) -> int:
    try:
        return json.loads((out / "meta" / "info.json").read_text())["total_episodes"]
    except (OSError, ValueError):
        return 0


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*flags: object) -> Running:
        logs = tmp_path / f"logs{len(started)}"
        started.append(Running(logs, "record", "--teleop", "scripted", *flags, domain=DOMAIN))
        return started[-1]

    yield start
    for running in started:
        running.close()


def refused(capsys: pytest.CaptureFixture[str], *flags: object) -> str:
    """The line that the command ends with, in this process: it starts nothing."""
    from robolearn.cli.main import main

    assert main(["record", *map(str, flags)]) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == "" and line.startswith("robolearn: error: ")
    return line


def second_writer(out: Path) -> str:
    """What a second recording into the same set is told, in this process: it starts nothing."""
    from robolearn.cli.main import main

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        flags = ["--teleop", "scripted", "--cameras", "front", "--resume", "--episodes", "9", "--out", str(out)]
        assert main(["record", *flags]) == 2, said.getvalue()
    return said.getvalue().splitlines()[-1]


@pytest.fixture(scope="module")
def recorded(compiled: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of two episodes with a camera, recorded by script, and what is to be said of the recording itself."""
    folder = tmp_path_factory.mktemp("recorded")
    out = folder / "set"
    running = Running(
        folder / "logs", "record", "--teleop", "scripted", "--episodes", 2, "--cameras", "front", "--out", out,
        "--seed", 4, domain=DOMAIN,
    )  # fmt: skip
    try:
        wait_until(lambda: (out / "meta" / "info.json").exists(), WAIT_S, "the data set")
        line = second_writer(out)
        assert str(out) in line and "another writer" in line, line
        code, text, err = running.end()
    finally:
        running.close()
    assert code == 0 and "Traceback" not in err, err
    result = json.loads(text.splitlines()[-1])
    assert result["dataset"] == str(out) and result["task"] == "lift the cube" and result["robot"] == "sim"
    assert (result["episodes"], result["recorded"], result["successes"]) == (2, 2, 2), result
    assert result["frames"] > 40 and result["violations"] == 0, result
    assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["p99"] < 1000
    assert result["wall_s"]["total"] > 0 and result["wall_s"]["store"] < 10.0, "0.2 s, or a machine that stands still"
    assert not running.left and "recording episode 2" in err
    return out


@pytest.mark.long
@pytest.mark.realtime
def test_what_a_script_records_is_a_data_set(recorded: Path) -> None:
    data = Dataset.open(recorded)
    assert len(data.lengths) == 2 and set(data.interface.observation) == {"proprio", "objects", "images.front"}
    stamps = data.stamps
    assert set(stamps) == {"proprio", "objects", "images.front", "device", "action"}
    length = int(data.lengths[0])
    first = slice(0, length)
    steps = np.diff(stamps["action"][first])
    assert np.median(steps) == pytest.approx(0.05, abs=0.01)
    assert (stamps["action"] >= stamps["proprio"]).all() and np.median(stamps["action"] - stamps["proprio"]) < 0.05
    assert not data.intervention.any()
    pictures = data.images("front")
    assert pictures.shape == (len(data.action), 84, 84, 3) and np.std(pictures[0]) > 10
    assert (pictures[first][0] != pictures[first][-1]).any()
    # Executed actions lead from one posture towards the next.
    assert np.abs(data.action).max() <= 1.0 and np.abs(data.action[first][:, :3]).max() > 0.3
    assert data.success.tolist() == [True, True]
    assert data.reward[length - 1] == 1.0 and data.reward[: length - 1].max() == 0.0


@pytest.mark.long
@pytest.mark.realtime
@pytest.mark.parametrize("node", ["safety", "sim_arm"])
def test_a_node_killed_in_mid_episode(recorded: Path, record: Callable[..., Running], node: str) -> None:
    before = count(recorded)
    running = record("--resume", "--episodes", before + 30, "--cameras", "front", "--out", recorded)
    mid_episode(running, recorded, before)
    os.kill(running.pid(node), signal.SIGKILL)
    code, out, err = running.end()
    last = err.splitlines()[-1]
    assert code == 1 and out == "" and "Traceback" not in err, (code, err)
    assert f"the {node} node was killed by SIGKILL" in last and f"{count(recorded)} episodes are safe" in last, err
    assert not running.left
    assert len(Dataset.open(recorded).lengths) == count(recorded) >= before
    assert not any((recorded / ".running").glob("*"))


@pytest.mark.long
@pytest.mark.realtime
def test_a_safety_node_that_is_halted_in_mid_episode(recorded: Path, record: Callable[..., Running]) -> None:
    """Reported within a second on a machine that has time; the episode is dropped, and those before are safe."""
    before = count(recorded)
    running = record("--resume", "--episodes", before + 30, "--cameras", "front", "--out", recorded)
    mid_episode(running, recorded, before)
    safety = running.pid("safety")
    os.kill(safety, signal.SIGSTOP)
    halted, line = time.monotonic(), ""
    try:
        assert running.process.stderr is not None
        while "silent" not in line:
            line = running.process.stderr.readline()
            assert line, "it has ended without a word"
        took = time.monotonic() - halted
        assert "the safety node is silent for more than 0.6 s: use the hardware emergency stop" in line
        print(f"reported after {took:.2f} s")
        assert took < 3.0
    finally:
        os.kill(safety, signal.SIGCONT)
    os.killpg(running.process.pid, signal.SIGINT)
    code, out, err = running.end()
    assert code == 130 and out == "" and "Traceback" not in err, (code, err)
    assert not running.left and len(Dataset.open(recorded).success) == count(recorded) == before


@pytest.mark.long
@pytest.mark.realtime
def test_ctrl_c_in_mid_episode_keeps_every_finished_one(recorded: Path, record: Callable[..., Running]) -> None:
    before = count(recorded)
    running = record("--resume", "--episodes", before + 30, "--cameras", "front", "--out", recorded)
    mid_episode(running, recorded, before)
    pressed = time.monotonic()
    os.killpg(running.process.pid, signal.SIGINT)
    code, out, err = running.end()
    assert code == 130 and out == "" and "stopped" in err.splitlines()[-1] and "Traceback" not in err, (code, err)
    assert time.monotonic() - pressed < 60 and not running.left
    assert len(Dataset.open(recorded).success) == count(recorded) == before


@pytest.mark.long
@pytest.mark.realtime
def test_a_person_with_a_gamepad(compiled: None, tmp_path: Path) -> None:
    out, people = tmp_path / "set", ROOT / "tests" / "programs" / "record_people.py"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ROS_DOMAIN_ID": str(DOMAIN)}
    command = [sys.executable, str(people), "gamepad", "--episodes", "1", "--out", str(out), "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["teleop"], result["recorded"], result["violations"]) == ("gamepad", 1, 0), result
    data = Dataset.open(out)
    assert len(data.lengths) == 1 and np.abs(data.action[:, :3]).max() > 0.3
    assert (data.stamps["device"] <= data.stamps["action"]).all()


@pytest.mark.long
@pytest.mark.realtime
def test_enough_episodes_are_enough(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from robolearn.cli.main import main

    begun = time.monotonic()
    flags = ["--teleop", "scripted", "--cameras", "front", "--out", str(recorded), "--resume", "--episodes", "1"]
    assert main(["record", *flags, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["recorded"] == 0 and result["episodes"] == count(recorded) and time.monotonic() - begun < 30


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--teleop", "joypad"), ("joypad", "available: keyboard", "scripted")),
        (("--teleop", "keyboard"), ("keyboard", "terminal")),
        (("--teleop", "scripted", "--robot", "fr3", "--task", "x"), ("--teleop scripted", "robot fr3")),
        (("--teleop", "scripted", "--robot", "fr33"), ("fr33", "did you mean fr3")),
        (("--teleop", "scripted", "--robot", "fr3"), ("--task", "in words")),
        (("--teleop", "scripted", "--cameras", "top"), ("top", "available: front, wrist")),
        (("--teleop", "scripted", "--sim-task", "lifd"), ("lifd", "did you mean lift")),
        (("--teleop", "scripted", "--quality", "good"), ("good", "available: expert")),
        (("--teleop", "scripted", "--episodes", 0), ("--episodes", "at least 1")),
        (("--teleop", "scripted", "--seconds", 0), ("--seconds", "more than 0")),
        (("--teleop", "scripted", "--domain", 300), ("--domain", "0 to 232")),
    ],
)
def test_refused_before_anything_is_written_or_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[Any, ...], says: tuple[str, ...]
) -> None:
    line = refused(capsys, "--out", tmp_path / "set", *flags)
    assert all(word in line for word in says), line
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("out", ["file/sub", "/proc/nowhere"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str) -> None:
    (tmp_path / "file").touch()
    line = refused(capsys, "--out", tmp_path / out, "--teleop", "scripted")
    assert f"--out {tmp_path / out}: got " in line.replace("\n", "") and "expected a folder" in line


def test_what_a_start_that_failed_has_left_does_not_stand_in_the_way(tmp_path: Path) -> None:
    from hardware.recording import stamp_names
    from robolearn.cli.node_record import make_writer

    interface = load_contract("sim").with_cameras(()).interface
    for _ in range(2):
        with make_writer(tmp_path / "set", interface, "lift", resume=False) as writer:
            assert writer.episodes == 0
    with make_writer(tmp_path / "set", interface, "lift", resume=False) as writer:
        blank = {key: np.zeros(spec.shape, spec.dtype) for key, spec in interface.observation.items()}
        writer.add(blank, np.zeros(interface.action.shape), stamps=dict.fromkeys(stamp_names(interface), 0.0))
        writer.end(success=True)
    with pytest.raises(BadInput, match="existing data set"):
        make_writer(tmp_path / "set", interface, "lift", resume=False)


@pytest.mark.long
@pytest.mark.realtime
def test_an_existing_set_is_not_overwritten(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "--out", recorded, "--teleop", "scripted", "--cameras", "front")
    assert "existing data set" in line and "resume" in line


@pytest.mark.realtime
@pytest.mark.long
def test_an_arm_in_a_namespace(compiled: None, record: Callable[..., Running], tmp_path: Path) -> None:
    """As the SO-101 of `robots/stations` is: its nodes are where its topics are."""
    arm, out = tmp_path / "left.yaml", tmp_path / "set"
    arm.write_text((CONTRACTS / "sim.yaml").read_text() + "\nnamespace: left\n")
    code, text, err = record("--robot", arm, "--episodes", 1, "--out", out).end()
    assert code == 0, err
    assert json.loads(text.splitlines()[-1])["violations"] == 0 and Dataset.open(out).episodes == 1
