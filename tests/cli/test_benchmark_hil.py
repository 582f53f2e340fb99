"""`robolearn benchmark hil`: one small run through both halves, its judgement, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robolearn.cli.main import main

SMALL = ["--tasks", "lift", "--arms", "demos+interventions", "--seeds", "3", "--demos", "2", "--train-steps", "20",
         "--env-steps", "80", "--eval-episodes", "6", "--lanes", "1"]  # fmt: skip


def test_a_run_is_judged_and_not_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["benchmark", "hil", *SMALL, "--out", str(tmp_path), "--json"]
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    (row,), (run,) = result["rows"], result["runs"]
    assert row["success"]["episodes"] == row["bc"]["episodes"] == 6 and row["rates"] == [run["success"]["rate"]]
    assert run["env_steps"] >= 80 and run["robot_minutes"] == pytest.approx(run["env_steps"] / 20 / 60)
    # A policy of twenty gradient steps stands about: the operator who watches it has much to do.
    assert run["bc"]["intervention_rate_end"] > 0.1
    folder = tmp_path / "lift-seed3-demos+interventions-proposals"
    assert (folder / "policy" / "config.json").exists()
    (folder / "benchmark.json").write_text(json.dumps(run | {"cycle_s": 7.0}))
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"][0]["cycle_s"] == 7.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("--algo sac", "got sac"), ("--tasks lifts", "got lifts"), ("--seeds", "--seeds: got nothing"),
     ("--demos 0", "demos"), ("--arms all", "--arms")],
)  # fmt: skip
def test_bad_input_is_refused(tmp_path: Path, wrong: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "hil", *wrong.split(), "--out", str(tmp_path / "b")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "b").exists()
