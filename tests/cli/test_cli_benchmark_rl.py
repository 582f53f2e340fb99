"""`robolearn benchmark rl`: finished runs are kept, and what it says of them is counted right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robolearn.cli.main import main
from robolearn.eval import Success

BEGUN = {"task": "lift", "seed": 0, "episodes": 100, "quality": "mixed", "train_steps": 1500, "flow": "rectified",
         "denoise_steps": 4, "env_steps": 300_000}  # fmt: skip


def finished(folder: Path, seed: int, successes: int) -> None:
    place = folder / f"lift-rectified-k4-seed{seed}"
    (place / "rl").mkdir(parents=True)
    (place / "rl" / "result.json").write_text(json.dumps({"calibration": {"success": [0.875, 0.625]}}))
    result = {
        "bc": {"success": Success.of(240, 400).to_json()},
        "rl": {"success": Success.of(successes, 400).to_json()},
        "env_steps": 280_000,
        "finetune_wall_s": {"simulation": 30.0, "total": 50.0},
        "wall_s": {"total": 70.0},
    }
    (place / "settings.json").write_text(json.dumps(BEGUN | {"seed": seed}))
    (place / "quickstart.json").write_text(json.dumps(result))


def test_counts_the_seeds_that_became_reliable(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for seed, successes in enumerate((396, 390, 386)):
        finished(tmp_path, seed, successes)
    assert main(["benchmark", "rl", "--tasks", "lift", "--seeds", "0", "1", "2", "--out", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["settings"]
    # 386 of 400 are 96.5%: below 97%.
    assert (row["reliable_seeds"], row["seeds"], row["rl_median"]) == (2, 3, 0.975)
    assert row["runs"][0]["simulation_share"] == pytest.approx(0.6)
    assert row["runs"][0]["chosen_start_success"] == 0.875
    assert main(["benchmark", "rl", "--seeds", "0", "--out", str(tmp_path)]) == 0
    assert "99.0 (97.5–99.7)" in capsys.readouterr().out


def test_finished_runs_of_other_settings_are_not_passed_off(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    finished(tmp_path, 0, 396)
    asked = ["benchmark", "rl", "--seeds", "0", "--out", str(tmp_path)]
    for flag, value, says in (("--env-steps", "60000", "got 60000, expected 300000"), ("--episodes", "20", "got 20")):
        assert main([*asked, flag, value]) == 2
        assert says in capsys.readouterr().err
    (tmp_path / "lift-rectified-k4-seed0" / "settings.json").write_text(json.dumps(BEGUN | {"train_steps": 9}))
    assert main(["benchmark", "rl", "--seeds", "7", "0", "--out", str(tmp_path)]) == 2
    assert "'train_steps': got 1500, expected 9" in capsys.readouterr().err
    assert not (tmp_path / "lift-rectified-k4-seed7").exists()
    assert main([*asked, "--tasks"]) == 2 and "--tasks" in capsys.readouterr().err


def test_refuses_unknown_tasks_and_flows(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    assert main(["benchmark", "rl", "--tasks", "lif", "--out", str(tmp_path / "x")]) == 2
    assert "did you mean lift" in capsys.readouterr().err
    assert main(["benchmark", "rl", "--flows", "straight", "--out", str(tmp_path / "x")]) == 2
    assert not (tmp_path / "x").exists()
