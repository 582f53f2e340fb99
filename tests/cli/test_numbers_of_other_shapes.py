"""Sets whose observations are a single number or a matrix: commands read them, and a policy learns from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from policies.storage.loading import open_policy
from robolearn.cli.main import main
from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import EpisodeWriter


@pytest.fixture
def data(tmp_path: Path) -> Path:
    specs = {"proprio": ArraySpec((2,)), "force": ArraySpec(()), "pose": ArraySpec((2, 3))}
    t = np.arange(6, dtype=np.float32)
    seen = {"proprio": np.stack([t, -t], 1), "force": 2 * t, "pose": t[:, None, None] * np.arange(6).reshape(2, 3)}
    seen = {key: value.astype(np.float32) for key, value in seen.items()}
    actions = np.stack([t / 6, -t / 6], 1, dtype=np.float32)
    with EpisodeWriter(tmp_path / "data", Interface(specs, ArraySpec((2,)), 20.0)) as writer:
        writer.write_all([Episode(seen, actions, 0 * t, True, True, False, "press")])
    return tmp_path / "data"


def test_stats_name_each_element(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dataset", "stats", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["features"]
    assert found["force"]["max"] == 10.0 and found["pose"]["max"] == [[0, 5, 10], [15, 20, 25]]
    assert main(["dataset", "stats", str(data)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (force,) = [line for line in lines if line[0] == "force"]
    assert (force[1], force[-1]) == ("0", "10"), "no name of a component: the smallest and the largest"
    matrix = {line[0]: line[-1] for line in lines if "," in line[0]} | {
        line[1]: line[-1] for line in lines if line[0] == "pose"
    }
    assert matrix == {"0,0": "0", "0,1": "5", "0,2": "10", "1,0": "15", "1,1": "20", "1,2": "25"}


def test_a_policy_sees_them(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["train", "--data", str(data), "--steps", "3", "--batch", "4", "--out", str(out)]) == 0
    policy = open_policy(out)
    assert policy.interface.observation["force"].shape == () and policy.interface.observation["pose"].shape == (2, 3)
    seen = {"proprio": np.zeros((4, 2)), "force": np.zeros(4), "pose": np.zeros((4, 2, 3))}
    policy.reset(0)
    assert policy.act({key: value.astype(np.float32) for key, value in seen.items()}).shape[0] == 4
