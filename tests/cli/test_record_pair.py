"""`robolearn record` on two arms: the script on the simulated pair, over DDS, and what is refused before."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from running import Running

from hardware.safety import SafetyFilter
from robolearn.cli.main import main
from robolearn.data.reading.reader import Dataset
from robots import make_control
from robots.stations import load_pair

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 9
PAIR = load_pair("panda_pair")


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.long
@pytest.mark.realtime
def test_what_a_script_records_with_two_arms_is_learned_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "set"
    # Machine code is cached on disk: made here, not while a recording waits for it.
    SafetyFilter(PAIR.robot, PAIR.joints, PAIR.limits, 1.0 / PAIR.stream_hz)
    flags = ("--robot", "panda_pair", "--sim-task", "lift_two", "--teleop", "scripted", "--episodes", 2, "--seed", 4)
    recording = Running(tmp_path / "logs", "record", *flags, "--cameras", "left_wrist", "--out", out, domain=DOMAIN)
    try:
        code, text, err = recording.end()
    finally:
        recording.close()
    assert code == 0 and "Traceback" not in err and not recording.left, err
    result = json.loads(text.splitlines()[-1])
    assert (result["robot"], result["task"]) == ("panda_pair", "lift the bar with both arms")
    assert (result["recorded"], result["successes"], result["violations"]) == (2, 2, 0), result

    data = Dataset.open(out)
    assert data.success.tolist() == [True, True] and data.interface.embodiment == "panda_pair"
    assert data.interface.action.names == PAIR.interface.action.names
    assert set(data.interface.observation) == {"proprio", "objects", "images.left_wrist"}
    pictures = data.images("left_wrist")
    assert pictures.shape[1:] == (84, 84, 3) and (pictures[0] != pictures[int(data.lengths[0]) - 1]).any()
    # What is stored as the action of a step leads both arms from its posture towards that of the next.
    first = slice(0, int(data.lengths[0]))
    proprio, action = data.observation["proprio"][first], data.action[first]
    q = proprio[:, [*range(7), *range(17, 24)]].astype(np.float64)
    goal, _ = make_control("tcp_delta", PAIR.robot).targets(q, None, action)
    for arm in (slice(0, 7), slice(7, 14)):
        asked, done = (goal - q)[:-1, arm], np.diff(q, axis=0)[:, arm]
        assert np.abs(done).max() > 0.02, "it moved"
        assert np.corrcoef(asked.ravel(), done.ravel())[0, 1] > 0.8
    assert np.abs(action[:, [6, 13]]).min() > 0.9, "grippers are open or closed"

    assert main(["dataset", "validate", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["findings"] == []
    train = ("train", "--data", out, "--out", tmp_path / "run", "--steps", 2, "--json")
    assert main([str(word) for word in train]) == 0
    learned = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert learned["episodes"] == 2 and learned["observes"] == ["proprio", "images.left_wrist"]


@pytest.mark.long
def test_what_a_recording_with_two_arms_does_not_take_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def line(*flags: object, robot: str = "panda_pair") -> str:
        said = refused(capsys, "record", "--robot", robot, "--out", tmp_path / "set", *flags)
        assert not (tmp_path / "set").exists()
        return said

    script = ("--teleop", "scripted")
    assert "robot of lift: got panda_pair, expected an arm that can do it" in line(*script)
    words = "robot of lift_two: got panda, expected 2 arms that can do it; available: panda_pair"
    assert words in line(*script, "--sim-task", "lift_two", robot="sim")
    both = ("--sim-task", "lift_two")
    words = "camera of contract panda_pair: got wrist; available: front, left_wrist, right_wrist"
    assert words in line(*both, *script, "--cameras", "wrist")
    assert "got keyboard for the arms left, right; available: gamepad" in line(*both, "--teleop", "keyboard")
    assert "got browser for the arms left, right" in line(*both, "--teleop", "browser")
    leader = ("--teleop", "leader", "--task", "fold")
    assert "leader_port: got /dev/ttyACM0, expected 2 that differ" in line(*leader, robot="so101_pair")
    ports = ("--leader-port", "/dev/ttyNO,/dev/ttyNE", "--leader-id", "one,two")
    assert "left: leader: robot: got panda" in line(*both, "--teleop", "leader", *ports)
    assert "--teleop scripted: got robot so101_pair" in line(*script, "--task", "fold", robot="so101_pair")
