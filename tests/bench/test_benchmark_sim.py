"""`robolearn benchmark sim` and `collect`, run as a user does, for as short as they can."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data.reading.reader import Dataset

SHORT = ["--seconds", "0.05", "--repeats", "1", "--worlds", "4"]


def ask(capsys: pytest.CaptureFixture, *args: str) -> dict[str, Any]:
    assert main([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.long
def test_speeds_by_threads_beside_the_physics_bound(capsys: pytest.CaptureFixture) -> None:
    result = ask(capsys, "benchmark", "sim", *SHORT, "--no-robosuite", "--task", "peg_insert")
    threads = {"1", str(min(2, os.cpu_count() or 1))}
    assert result["task"] == "peg_insert" and result["worlds"] == 4
    assert set(result["env_steps_per_s"]) == set(result["bound_steps_per_s"]) == threads
    most = max(threads)
    assert result["ratio_bound"] == pytest.approx(
        result["env_steps_per_s"][most] / result["bound_steps_per_s"][most], rel=1e-6
    )
    assert 0.02 < result["ratio_bound"] < 1.5  # a step is the bound's physics and something more
    assert "ratio_robosuite" not in result


@pytest.mark.long
def test_the_table_for_people(capsys: pytest.CaptureFixture) -> None:
    assert main(["benchmark", "sim", *SHORT, "--no-robosuite"]) == 0
    out = capsys.readouterr().out
    assert "its bare physics" in out and "% of the physics bound" in out and "robosuite" not in out


def test_an_unknown_task_is_bad_input(capsys: pytest.CaptureFixture) -> None:
    assert main(["benchmark", "sim", *SHORT, "--no-robosuite", "--task", "lfit"]) == 2
    assert "did you mean lift?" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "value"), [("--seconds", "0.0"), ("--repeats", "0"), ("--worlds", "0")])
def test_nothing_to_measure_is_bad_input(capsys: pytest.CaptureFixture, flag: str, value: str) -> None:
    assert main(["benchmark", "sim", "--no-robosuite", *SHORT, flag, value]) == 2
    err = capsys.readouterr().err
    assert f"got {value}" in err and err.count("\n") == 1


@pytest.mark.long
def test_collect_writes_demonstrations_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = str(tmp_path / "lift")
    result = ask(capsys, "collect", "--episodes", "3", "--quality", "expert", "--out", out)
    assert (result["episodes"], result["expert_success"], result["dataset"]) == (3, 1.0, out)
    assert main(["collect", "--episodes", "5", "--quality", "expert", "--out", out]) == 2
    assert "an existing data set" in capsys.readouterr().err
    result = ask(capsys, "collect", "--episodes", "5", "--quality", "expert", "--out", out, "--resume")
    data = Dataset.open(out)
    assert data.episodes == result["episodes"] == 5 and data.frames == result["frames"]
    starts = np.stack([data.episode(i).observation["objects"][0] for i in range(5)])
    assert len(np.unique(starts, axis=0)) == 5  # the second part does not repeat the first one's starts
    again = ask(capsys, "collect", "--episodes", "5", "--out", out, "--resume")
    assert again["episodes"] == 5 and again["expert_success"] == data.success.mean()
