"""`robolearn benchmark rl`: finished runs are kept, and what it says of them is counted right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from robolearn.cli.benchmark_rl import BenchmarkRl
from robolearn.cli.main import main
from robolearn.cli.quickstart import Quickstart
from robolearn.eval import Success


def begun(seed: int) -> dict[str, Any]:
    """What a quickstart of `lift` stores when it begins."""
    return Quickstart(seed=seed, out=Path("nowhere/quick")).plan().settings


def finished(folder: Path, seed: int, successes: int) -> None:
    place = folder / f"lift-rectified-k4-seed{seed}"
    place.mkdir(parents=True)
    result = {
        "bc": {"success": Success.of(240, 400).to_json()},
        "chosen_initial_noise": {"initial_noise": 0.5, "success": Success.of(350, 400).to_json()},
        "rl": {"success": Success.of(successes, 400).to_json()},
        "env_steps": 280_000,
        "finetune_wall_s": {"simulation": 30.0, "total": 50.0},
        "wall_s": {"total": 70.0},
    }
    (place / "settings.json").write_text(json.dumps(begun(seed)))
    (place / "quickstart.json").write_text(json.dumps(result))


def test_counts_the_seeds_that_became_reliable(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for seed, successes in enumerate((396, 390, 386)):
        finished(tmp_path, seed, successes)
    assert main(["benchmark", "rl", "--tasks", "lift", "--seeds", "0", "1", "2", "--out", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["settings"]
    # 386 of 400 are 96.5%: below 97%.
    assert (row["reliable_seeds"], row["seeds"], row["rl_median"]) == (2, 3, 0.975)
    assert row["runs"][0]["simulation_share"] == pytest.approx(0.6)
    assert row["runs"][0]["chosen_initial_noise"] == 0.5 and row["runs"][0]["chosen"]["rate"] == 0.875
    assert (row["bc_median"], row["chosen_median"]) == (0.6, 0.875)
    assert main(["benchmark", "rl", "--seeds", "0", "--out", str(tmp_path)]) == 0
    assert "99.0 (97.5–99.7)" in capsys.readouterr().out
    # Settings of the algorithm are compared, too, and another algorithm is another run.
    assert main(["benchmark", "rl", "--seeds", "0", "--out", str(tmp_path), "--gamma", "0.9"]) == 2
    assert "'settings.gamma': got 0.9, expected 0.99" in capsys.readouterr().err


def test_finished_runs_of_other_settings_are_not_passed_off(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    finished(tmp_path, 0, 396)
    asked = ["benchmark", "rl", "--seeds", "0", "--out", str(tmp_path)]
    for flag, value, says in (("--env-steps", "60000", "got 60000, expected 500000"), ("--episodes", "20", "got 20")):
        assert main([*asked, flag, value]) == 2
        assert says in capsys.readouterr().err
    assert main([*asked, "--minutes", "5"]) == 2
    assert "'minutes': got 5.0, expected 0.0" in capsys.readouterr().err
    (tmp_path / "lift-rectified-k4-seed0" / "settings.json").write_text(json.dumps(begun(0) | {"train_steps": 9}))
    assert main(["benchmark", "rl", "--seeds", "7", "0", "--out", str(tmp_path)]) == 2
    assert "'train_steps': got 1500, expected 9" in capsys.readouterr().err
    assert not (tmp_path / "lift-rectified-k4-seed7").exists()
    assert main([*asked, "--tasks"]) == 2 and "--tasks" in capsys.readouterr().err


def test_dynamics_reach_the_worlds_and_are_a_setting(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    asked = BenchmarkRl(dynamics="mild", out=tmp_path)
    assert asked.quickstart_of("lift", "rectified", 4, 0).world.dynamics == "mild"
    finished(tmp_path, 0, 396)
    assert main(["benchmark", "rl", "--seeds", "0", "--dynamics", "mild", "--out", str(tmp_path)]) == 2
    assert "dynamics" in capsys.readouterr().err


def test_a_baseline_of_one_seed_has_no_interval_and_no_seed_counts_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    finished(tmp_path, 0, 396)
    judged = {"tempo": {"tempo": 1.5, "success": Success.of(348, 400).to_json()}}
    (tmp_path / "lift-rectified-k4-seed0" / "baselines.json").write_text(json.dumps(judged))
    asked = ["benchmark", "rl", "--baselines", "tempo", "--out", str(tmp_path), "--seeds", "0"]
    assert main(asked) == 0
    assert "lift, tempo, no RL: 87.0, one seed" in capsys.readouterr().out
    assert main([*asked, "0"]) == 2
    assert "--seeds: got 0 0, expected different numbers" in capsys.readouterr().err


def test_refuses_unknown_tasks_and_flows(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    assert main(["benchmark", "rl", "--tasks", "lif", "--out", str(tmp_path / "x")]) == 2
    assert "did you mean lift" in capsys.readouterr().err
    assert main(["benchmark", "rl", "--flows", "straight", "--out", str(tmp_path / "x")]) == 2
    assert not (tmp_path / "x").exists()


@pytest.mark.long
def test_what_costs_no_rl_is_judged_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Three demonstrations and two more: five are imitated, with as many epochs; the tempo is one that was tried."""
    asked = ["benchmark", "rl", "--algo", "proposals", "--tasks", "lift", "--seeds", "3", "--episodes", "3",
             "--train-steps", "30", "--env-steps", "64", "--worlds", "2", "--eval-episodes", "6",
             "--baselines", "more-demos", "tempo", "--more-demos", "2", "--out", str(tmp_path), "--json"]  # fmt: skip
    assert main(asked) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["settings"]
    more, tempo = (row["runs"][0]["baselines"][name] for name in ("more-demos 2", "tempo"))
    folder = tmp_path / "lift-rectified-k4-proposals-seed3"
    tables = {
        name: pq.read_table(next((folder / name / "data").rglob("*.parquet")))
        for name in ("data", "more-demos-2/demos")
    }
    first, further = (len(table) for table in tables.values())
    assert more["demonstrations"] == 2 and more["control_steps"] == further
    trained = json.loads((folder / "more-demos-2" / "bc" / "config.json").read_text())
    assert trained["imitation"]["steps"] == round(30 * (first + further) / first)
    assert set(tempo["tried"]) == {"0.75", "1", "1.25", "1.5", "2"} and f"{tempo['tempo']:g}" in tempo["tried"]
    assert more["success"]["episodes"] == tempo["success"]["episodes"] == 6
    assert set(row["baselines"]) == {"more-demos 2", "tempo"}
    stored = folder / "baselines.json"
    known = json.loads(stored.read_text())
    stored.write_text(json.dumps(known | {"tempo": tempo | {"cycle_s": 7.5}}))
    assert main(asked) == 0, "and is not judged again"
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["settings"]
    assert row["runs"][0]["baselines"]["tempo"]["cycle_s"] == 7.5
