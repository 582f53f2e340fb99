"""`finetune --adversary` and `evaluate --push`: a run that goes on, and the worst of several pushes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robolearn.cli.main import main
from robolearn.eval import Success, least_of
from robolearn.runs import read_metrics


def run(*args: object) -> int:
    return main([str(arg) for arg in args])


@pytest.mark.long
def test_a_run_under_pushes_goes_on_with_its_adversary(
    bc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robolearn.rl.adversary.RISES_AT", 0.0)  # this policy solves nothing
    monkeypatch.setattr("robolearn.rl.adversary.FALLS_AT", 0.0)
    args = ("finetune", "--policy", bc, "--worlds", 4, "--decisions", 8, "--checkpoint-every", 1, "--adversary",
            "quantal", "--sigma-max", 0.1, "--initial-noise", 0, "--eval-episodes", 0, "--json")  # fmt: skip
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(*args, "--env-steps", 2600, "--out", whole) == 0
    assert run(*args, "--env-steps", 1300, "--out", parts) == 0
    assert run(*args, "--env-steps", 2600, "--out", parts, "--resume") == 0
    rows, others = list(read_metrics(whole)), list(read_metrics(parts))
    assert sum(row["pushed_episodes"] for row in rows) > sum(row["episodes"] for row in rows) > 0
    for key in ("push_force", "pushed_episodes", "pushed_success"):
        assert [row.get(key) for row in rows] == [row.get(key) for row in others], key
    assert rows[-1]["push_force"] > rows[0]["push_force"] == 0.0


@pytest.mark.long
def test_the_worst_push_stands_beside_success_without_one(
    bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    args = ("evaluate", "--policy", bc, "--episodes", 6, "--seed", 4, "--json")
    assert run(*args) == 0
    plain = json.loads(capsys.readouterr().out)
    assert run(*args, "--push", 60) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["success"] == plain["success"]
    found = result["pushes"]
    assert found["force_n"] == 60 and found["on"] == "arm"
    assert [(one["direction_deg"], one["step"]) for one in found["each"]] == [
        (side, step) for step in (13, 28) for side in (0, 90, 180, 270)
    ]
    assert all(one["success"]["episodes"] == 6 for one in found["each"])
    each = [Success(**one["success"]) for one in found["each"]]
    assert found["worst"]["success"] == least_of(each).to_json()
    assert run(*args[:-1], "--push", 60, "--against", bc) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("pushed by 60 N on the arm, the worst of 8:") == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("finetune", "--adversary", "random", "--begin-along", "d"), "--begin-along: got it with --adversary"),
        (("finetune", "--adversary", "random", "--env-steps", 0, "--algo", "proposals", "--updates", 5),
         "--adversary: got it with --env-steps 0, expected"),
        (("finetune", "--adversary", "quantal", "--adversary-force", 0), "--adversary-force: got 0.0"),
        (("finetune", "--adversary", "random", "--task", "robosuite:Lift"), "got option pushed, expected an embedded"),
        (("evaluate", "--push", -1), "--push: got -1, expected a force from 0 to 1000 N"),
        (("evaluate", "--push", 1e9), "--push: got 1e+09, expected a force from 0 to 1000 N"),
        (("finetune", "--adversary", "quantal", "--adversary-force", 1e9),
         "--adversary-force: got 1e+09, expected at most 1000 N"),
        (("evaluate", "--push", 5, "--paired-with", "d"), "--paired-with: got with --push, expected one of them"),
    ],
)  # fmt: skip
def test_what_cannot_be_pushed_is_refused(
    bc: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture, flags: tuple, said: str
) -> None:
    data = ("--data", demos) if "--updates" in flags else ()
    out = ("--out", tmp_path / "out") if flags[0] == "finetune" else ()
    assert run(*flags, "--policy", bc, *data, *out) == 2
    assert said in capsys.readouterr().err
