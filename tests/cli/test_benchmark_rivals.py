"""`robolearn benchmark rivals`: few enough demonstrations, finished cells, intervals over seeds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from robolearn.bench.rivals import checkouts, process
from robolearn.bench.rivals.checkouts import CodeFailed
from robolearn.cli.main import main
from robolearn.cli.rival_cells import few_enough
from robolearn.eval import Success

FEW = "--worlds 4 --chunks-per-rollout 16 --sigma-max 0.1 --initial-noise 0"
TINY = Path(__file__).parents[1] / "bench" / "rival_checkout"
QUICK, OTHER = f"quick=--algo reinflow {FEW}", f"other=--algo reinflow --gamma 0.9 {FEW}"


def asked(out: Path, *more: str) -> list[str]:
    return ["benchmark", "rivals", "--out", str(out), "--tasks", "lift", "--rivals", QUICK, OTHER,
            "--seeds", "0", "1", "--episodes", "4", "--band", "0", "1", "--train-steps", "30",
            "--env-steps", "2000", "--eval-episodes", "6", *more]  # fmt: skip


def test_the_number_of_demonstrations_is_halved_until_imitation_is_weak() -> None:
    band = (0.35, 0.45)
    assert few_enough(40, band, {40: 0.9, 20: 0.6, 10: 0.4}.__getitem__) == (10, {40: 0.9, 20: 0.6, 10: 0.4})
    # 10 are too few: between 10 and 20, then between 10 and 15.
    found = few_enough(40, band, {40: 0.9, 20: 0.6, 10: 0.2, 15: 0.5, 12: 0.44}.__getitem__)
    assert found[0] == 12 and list(found[1]) == [40, 20, 10, 15, 12]
    # No number is within: the nearest to 0.40.
    assert few_enough(4, band, {4: 0.9, 2: 0.5, 1: 0.1}.__getitem__)[0] == 2
    # The first is too few already: more are the user's to ask for.
    assert few_enough(40, band, {40: 0.3}.__getitem__) == (40, {40: 0.3})


def finished(place: Path, settings: dict, successes: int, wall: float) -> None:
    place.mkdir(parents=True)
    cell = {"settings": settings | {"train_steps": 30, "eval_episodes": 100}, "env_steps": 2000, "resumed": False}
    success = Success.of(successes, 100).to_json()
    (place / "cell.json").write_text(
        json.dumps(cell | {"success": success, "wall_s": {"total": wall + 1}, "seconds": {"tuned": wall}})
    )


@pytest.mark.long
def test_means_over_tasks_have_intervals_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Two tasks, three seeds: means of the seeds 50, 60 and 70%; 4.3027 = t(0.975, 2), s = 0.1."""
    reached = {"lift": (60, 60, 80), "peg_insert": (40, 60, 60)}
    for task, successes in reached.items():
        for seed, count in enumerate(successes):
            place = tmp_path / task / f"seed{seed}"
            finished(place / "flow-8", {"words": ["--steps", "30", "--policy", "flow"], "demonstrations": 8}, 40, 9.0)
            settings = {"words": ["--algo", "proposals"], "demonstrations": 8, "env_steps": 2000}
            finished(place / "proposals", settings, count, 10.0 * (seed + 1))
    words = ["benchmark", "rivals", "--out", str(tmp_path), "--tasks", *reached, "--rivals", "proposals", "--seeds",
             "0", "1", "2", "--episodes", "8", "--train-steps", "30", "--env-steps", "2000",
             "--eval-episodes", "100"]  # fmt: skip
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    (mean,) = result["means"]
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert mean["success"]["mean"] == pytest.approx(0.6) and mean["success"]["count"] == 3
    assert mean["success"]["low"] == pytest.approx(0.6 - half, abs=1e-6)
    assert mean["imitation"]["mean"] == pytest.approx(0.4) and mean["tuning_s"]["mean"] == pytest.approx(20)
    assert mean["success"]["median"] == pytest.approx(0.6) and mean["env_steps"]["mean"] == 2000
    assert [one["demonstrations"] for one in result["tasks"]] == [8, 8] and result["tasks"][0]["within"]
    assert json.loads((tmp_path / "rivals.json").read_text())["means"] == [mean]
    page = (tmp_path / "report.html").read_text()
    assert "60.0 (35.2–84.8)" in page and "40.0 with 8" in page and "<svg" in page
    assert main(words) == 0 and "60.0 (35.2–84.8)" in capsys.readouterr().out
    words[words.index("2000")] = "3000"
    assert main(words) == 2 and "configuration 'env_steps'" in capsys.readouterr().err


@pytest.mark.long
def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "x"
    for more, says in (
        (["--rivals", "reinflo"], "--rivals: got reinflo"),
        (["--rivals", "a=--algo reinflow --gama 1"], "--gama"),
        (["--rivals", "a=--algo reinflow --seed 1"], "--rivals a: got --seed"),
        (["--band", "0.5", "0.4"], "--band"),
        (["--seeds", "1", "1"], "--seeds"),
        (["--tasks", "lif"], "did you mean lift"),
        (["--tasks", "gym:gymnasium:Pendulum-v1"], "a world that reports no success"),
        (["--env-steps", "10"], "expected at least 1024"),
    ):
        assert main(asked(out, *more)) == 2, more
        assert says in capsys.readouterr().err, more
    assert not out.exists()


@pytest.mark.long
def test_a_stopped_benchmark_goes_on_cell_by_cell(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = asked(tmp_path, "--seeds", "0", "--json")
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    place = tmp_path / "lift" / "seed0"
    (place / "other" / "cell.json").unlink()  # as a kill before the judging leaves it
    before = (place / "quick" / "cell.json").read_text()
    assert main(words) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (place / "quick" / "cell.json").read_text() == before
    for one, other in zip(first["rows"], again["rows"], strict=True):
        cell, same = one["cells"][0], other["cells"][0]
        assert cell["success"] == same["success"] and 0 < cell["env_steps"] <= 2000
    assert [row["cells"][0]["resumed"] for row in again["rows"]] == [False, True]


@pytest.mark.long
def test_checkouts_stand_in_the_table_beside_ours_and_failures_are_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "lift" / "seed0"
    finished(place / "flow-8", {"words": ["--steps", "30", "--policy", "flow"], "demonstrations": 8}, 40, 9.0)
    settings = {"words": ["--algo", "proposals"], "demonstrations": 8, "env_steps": 2000}
    finished(place / "proposals", settings, 80, 10.0)
    monkeypatch.setattr("robolearn.cli.rival_cells.Cells.demonstrations", lambda *_: tmp_path / "demos")
    jobs: list[process.Job] = []

    def run_job(job: process.Job) -> dict[str, Any]:
        jobs.append(job)
        if job.repaired and len(jobs) < 3:
            raise CodeFailed("the code of reinflow ended with exit code 3: out of memory")
        rates = {name: Success.of(count, 100).to_json() for name, count in (("imitation", 30), ("success", 70))}
        return {**rates, "env_steps": 1900, "repairs": ["W2"] * job.repaired, "stopped": "",
                "seconds": {"imitation": 5.0, "tuned": 6.0}}  # fmt: skip

    monkeypatch.setattr(process, "run_job", run_job)
    words = ["benchmark", "rivals", "--out", str(tmp_path), "--tasks", "lift", "--rivals", "proposals", "--seeds", "0",
             "--episodes", "8", "--train-steps", "30", "--env-steps", "2000", "--eval-episodes", "100",
             "--checkout", f"reinflow={TINY}", "--json"]  # fmt: skip
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["rival"] for row in result["means"]] == ["proposals", "reinflow-published"]
    assert [(one["rival"], one["seed"]) for one in result["failed"]] == [("reinflow-repaired", 0)]
    assert "exit code 3: out of memory" in (tmp_path / "report.html").read_text()
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [job.repaired for job in jobs] == [False, True, True] and not result["failed"]
    row = result["rows"][2]
    assert row["rival"] == "reinflow-repaired" and row["imitation"]["mean"] == 0.3 and row["success"]["mean"] == 0.7
    assert (jobs[0].seed, jobs[0].judge_seed, jobs[0].env_steps, jobs[0].eval_episodes) == (0, 1000, 2000, 100)
    assert jobs[0].out == place / "reinflow-published" / "run"
    assert "reinflow-repaired" in (tmp_path / "report.html").read_text()
    assert jobs[0].base == jobs[1].base, "what they imitate does not depend on the repairs"
    assert main([*words, "--checkout-as", "repaired"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["rival"] for row in result["rows"]] == ["proposals", "reinflow-repaired"]
    late = [*words[: words.index("--checkout")], "--rivals", "proposals", f"late=--algo reinflow {FEW}", "--json"]
    assert main(late) == 0, "a rival of ours that refuses only when it runs does not end the others"
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["rival"] for row in result["rows"]] == ["proposals"]
    assert [(one["rival"], "flow-8" in one["why"]) for one in result["failed"]] == [("late", True)]
    own = f"{checkouts.CODEBASES['reinflow'].tuning},{checkouts.CODEBASES['reinflow'].tuning}"
    assert main([*words, "--checkout-configs", f"reinflow={own}"]) == 2
    assert "configuration 'configs'" in capsys.readouterr().err
    assert main([*words, "--checkout-configs", "dppo=a,b"]) == 2
    assert (
        "--checkout-configs: got dppo, expected configs of a codebase that --checkout names" in capsys.readouterr().err
    )
    assert main([*words, "--checkout", "reinflow=/nowhere"]) == 2
    assert "no such folder" in capsys.readouterr().err
