"""`robolearn deploy --record`: a set of what was executed, with outcomes, that everything else opens."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from arm_listener import light_station
from running import Running
from untrained import make_constant

from robolearn.cli.main import main
from robolearn.data import Dataset
from robots.stations import load_contract

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 9
DOWN = -0.05


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that looks through one camera and moves the tool forwards along its axis, all the time."""
    contract = load_contract("sim").with_picture_sizes({})
    return make_constant(tmp_path_factory.mktemp("policy"), contract.interface, ("front",), dz=DOWN)


@pytest.mark.long
@pytest.mark.realtime
def test_a_deployment_leaves_a_set_like_others(policy: Path, tmp_path: Path) -> None:
    out = tmp_path / "deployed"
    words = ["--policy", policy, "--robot", light_station(tmp_path), "--episodes", 2, "--record", out]
    running = Running(tmp_path / "logs", "deploy", *words, domain=DOMAIN)
    try:
        code, said, err = running.end()
    finally:
        running.close()
    assert code == 0, err
    result = json.loads(said.splitlines()[-1])
    assert result["violations"] == 0 and result["recorded"] == str(out)
    kept = result["recorded_episodes"]
    assert kept + len(result["not_recorded"]) == 2
    assert kept, f"no episode was recorded: {result['not_recorded']}"
    dataset = Dataset.open(out)
    assert len(dataset) == kept and dataset.tasks == ["lift the cube"] and not dataset.success.any()
    assert set(dataset.interface.observation) == {"proprio", "objects", "images.front"}
    for number in range(kept):
        episode = dataset.episode(number)
        assert not episode.terminated and dataset.has_final(number) and not np.any(episode.reward)
        assert len(episode) / 20.0 == pytest.approx(3.2, abs=0.6), "the task's time"
        action = np.asarray(episode.action)
        assert action[1:].mean(0)[2] == pytest.approx(DOWN, abs=0.02), "what was asked for, and executed"
        assert np.abs(action[1:].mean(0)[[0, 1, 3, 4, 5]]).max() < 0.03
        picture = np.asarray(episode.observation["images.front"][0])
        assert picture.dtype == np.uint8 and picture.std() > 10.0
    assert main(["dataset", "validate", str(out)]) == 0
    run = ["--steps", "2", "--batch", "4", "--out", str(tmp_path / "run")]
    assert main(["train", "--data", str(out), "--observe", "proprio", "images", *run]) == 0


def test_what_cannot_be_recorded_is_refused(policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["deploy", "--policy", str(policy), "--record", str(tmp_path / "set")]
    assert main([*words, "--dry-run"]) == 2
    assert "nothing is executed" in capsys.readouterr().err
    assert main(["collect", "--task", "lift", "--episodes", "1", "--worlds", "1", "--out", str(tmp_path / "set")]) == 0
    capsys.readouterr()
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "set" in line and "expected" in line
