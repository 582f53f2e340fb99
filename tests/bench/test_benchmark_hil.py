"""`robolearn benchmark hil`: one small run through both halves, its judgement, and what is refused."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from robolearn.bench.hil import BenchmarkHil, _ratio_of_equals, summary
from robolearn.cli.main import main

pytestmark = pytest.mark.long

SMALL = ["--tasks", "lift", "--arms", "demos+interventions", "--seeds", "3", "--demos", "2", "--train-steps", "20",
         "--env-steps", "80", "--eval-episodes", "6", "--lanes", "1", "--delay-steps", "5", "--caution", "0.25",
         "--free", "0.5"]  # fmt: skip


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
    policy = json.loads((folder / "policy" / "config.json").read_text())
    # The settings reached the learner; imitation predicts as far as the delay reaches.
    assert policy["settings"]["caution"] == 0.25 and policy["proposer"]["settings"]["horizon"] == 9
    assert json.loads((folder / "config.json").read_text())["curriculum"]["free"] == 0.5
    assert run["delayed"]["delay_steps"] == 5 and row["bc_delayed"]["episodes"] == row["delayed"]["episodes"] == 6
    assert set(run["doubts"]) == {"failures", "within_steps", "critics", "proposals", "value"}
    failed = round(6 * (1 - run["success"]["rate"]))
    assert abs(run["doubts"]["failures"] - failed) <= 3 and run["doubts"]["critics"]["threshold"] > 0
    (folder / "benchmark.json").write_text(json.dumps(run | {"cycle_s": 7.0}))
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"][0]["cycle_s"] == 7.0
    assert main([*words, "--caution", "0.5"]) == 2
    assert "of other settings" in capsys.readouterr().err


def test_arms_without_a_loop_are_judged_from_the_same_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ["--arms", "more-demos", "tempo", "--more-demos", "1", "--delay-steps", "0"]
    assert main(["benchmark", "hil", *SMALL, *arms, "--out", str(tmp_path), "--json"]) == 0
    more, tempo = json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]
    assert more["bc"]["success"] == tempo["bc"]["success"] and more["env_steps"] > 0 == tempo["env_steps"]
    assert more["robot_minutes"] == pytest.approx(more["env_steps"] / 20 / 60)
    assert max(tempo["tried"].values()) == tempo["tried"][f"{tempo['tempo']:g}"]
    assert not list(tmp_path.glob("*tempo*/transitions*")), "nothing learned in a loop"


def run_of(rate: float) -> dict[str, Any]:
    success = {"rate": rate, "low": 0.0, "high": 1.0, "episodes": 100}
    return {"task": "lift", "arm": "demos", "algo": "rlpd", "success": success, "bc": {"success": success},
            "delayed": None, "utd": 1.0, "initial_temperature": 0.01, "intervention_rate_end": 0.1}  # fmt: skip


def test_a_row_states_the_spread_of_its_seeds() -> None:
    """By hand: x̄ = .31, s = .0822, t = 2.776 with four degrees of freedom: 2.776 · .0822 / √5 = .102."""
    rates = [0.20, 0.29, 0.43, 0.32, 0.31]
    row = summary([run_of(rate) for rate in rates], "lift", "demos", "rlpd")
    seeds = row["over_seeds"]["success"]
    assert seeds["median"] == 0.31 and seeds["mean"] == pytest.approx(0.31)
    assert seeds["high"] - seeds["mean"] == pytest.approx(0.102, abs=0.001)
    assert row["success"] == {"rate": seeds["mean"], "low": seeds["low"], "high": seeds["high"], "episodes": 500}
    assert summary([run_of(0.2)], "lift", "demos", "rlpd")["bc"] == run_of(0.2)["success"], "of one seed its own"
    screen = StringIO()
    BenchmarkHil().show({"rows": [row]}, Console(file=screen, width=200))
    assert "31.0% (20.8–41.2, 5 seeds)" in screen.getvalue() and "0.01" in screen.getvalue()


def test_cycle_times_are_compared_on_the_starts_that_both_solved() -> None:
    mine, theirs = [2.0, 3.0, 9.0, None], [4.0, 6.0, None, 1.0]
    assert _ratio_of_equals(mine, theirs) == 0.5
    assert _ratio_of_equals([1.0, None], [None, 1.0]) is None


def test_settings_are_those_of_the_one_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    """One way for `hil run` and `benchmark hil`: what the one takes, the other takes."""
    for words, has, lacks in (
        ([], "--caution", "--backup-entropy"),
        (["--algo", "rlpd"], "--backup-entropy", "--caution"),
        (["--algo=dsrl"], "--magnitude", "--caution"),
        (["--algo", "rlpd", "dsrl", "--json"], "--free-steps", "--gamma"),
    ):
        with pytest.raises(SystemExit):
            main(["benchmark", "hil", *words, "--help"])
        said = capsys.readouterr().out
        assert has in said and lacks not in said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("--algo sac", "got sac"), ("--tasks lifts", "got lifts"), ("--seeds", "--seeds: missing"),
     ("--demos 0", "demos"), ("--arms all", "--arms"), ("--delay-steps -1", "--delay-steps"),
     ("--algo rlpd dsrl --gamma 0.9", "gamma"), ("--algo rlpd --caution 1", "caution")],
)  # fmt: skip
def test_bad_input_is_refused(tmp_path: Path, wrong: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "hil", *wrong.split(), "--out", str(tmp_path / "b")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "b").exists()
