"""`finetune --back-policy`: a task and its way back, learned in worlds that nobody resets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from robolearn.cli.main import main
from robolearn.runs import read_metrics

SMALL = ("--worlds", 4, "--batch", 16, "--critics", 2, "--width", 16, "--checkpoint-every", 1, "--eval-episodes", 4)


def run(*args: object) -> int:
    return main([str(arg) for arg in args])


@pytest.fixture(scope="module")
def back(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A policy of the way back that has learned little, and its demonstrations."""
    folder = tmp_path_factory.mktemp("back")
    assert run("collect", "--task", "lift_back", "--quality", "expert", "--episodes", 4, "--out", folder / "data") == 0
    training = ("--steps", 20, "--batch", 32, "--width", 32, "--out", folder / "bc")
    assert run("train", "--data", folder / "data", *training) == 0
    return folder / "bc", folder / "data"


@pytest.mark.long
def test_both_learn_go_on_and_serve(
    bc: Path, demos: Path, back: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    args = ("finetune", "--policy", bc, "--algo", "proposals", "--data", demos, "--back-policy", back[0], "--back-data",
            back[1], *SMALL, "--json")  # fmt: skip
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(*args, "--env-steps", 2400, "--out", whole) == 0
    capsys.readouterr()
    assert run(*args, "--env-steps", 1200, "--out", parts) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["back"] == {"policy": str(parts / "policy" / "back"), "helped": result["back"]["helped"]}
    other = tmp_path / "other"  # another policy of the way back goes on with no run of this one
    training = ("--steps", 1, "--batch", 32, "--width", 32, "--seed", 7, "--out", other)
    assert run("train", "--data", back[1], *training) == 0
    others = [other if word == back[0] else word for word in args]
    assert run(*others, "--env-steps", 2400, "--out", parts, "--resume") == 2
    assert "back.sha256" in capsys.readouterr().err
    assert run(*args, "--env-steps", 2400, "--out", parts, "--resume") == 0
    for name in ("model.safetensors", "back/model.safetensors"):
        a, b = (load_file(out / "policy" / name) for out in (whole, parts))
        assert a.keys() == b.keys() and all((a[key] == b[key]).all() for key in a), name
    rows = list(read_metrics(whole))
    assert rows[-1]["updates"] > 50 and rows[-1]["back_updates"] > 50 and rows[-1]["helped"] >= 0
    assert sum(row["episodes"] for row in rows) >= 8 and sum(row["back_episodes"] for row in rows) >= 4
    # Each is what any command takes; the first one is judged in worlds that are reset.
    capsys.readouterr()
    for task, policy in (("lift", whole), ("lift_back", whole / "policy" / "back")):
        assert run("evaluate", "--policy", policy, "--task", task, "--episodes", 4, "--json") == 0
        assert json.loads(capsys.readouterr().out)["success"]["episodes"] == 4


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--algo", "reinflow"), "--back-policy: got --algo reinflow, expected an off-policy algorithm"),
        (("--algo", "proposals", "--task", "peg_insert"), "task with a way back: got peg_insert"),
        (("--algo", "proposals", "--env-steps", 100), "--env-steps: got 100, expected at least"),
    ],
)
def test_what_has_no_way_back_is_refused(
    bc: Path, back: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture, flags: tuple, said: str
) -> None:
    out = tmp_path / "out"
    assert run("finetune", "--policy", bc, "--back-policy", back[0], "--worlds", 4, *flags, "--out", out) == 2
    assert said in capsys.readouterr().err and not out.exists()


def test_data_without_a_policy_of_the_way_back(
    bc: Path, back: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    args = ("finetune", "--policy", bc, "--algo", "proposals", "--worlds", 4, "--out", tmp_path / "out")
    assert run(*args, "--back-data", back[1]) == 2
    assert "--back-data: got no --back-policy" in capsys.readouterr().err
    assert run(*args, "--reward", "serve:a:1", "--back-reward", "serve:a:1") == 2
    assert "--back-reward: got no --back-policy" in capsys.readouterr().err
    assert run(*args, "--back-policy", back[0], "--back-reward", "serve:a:1") == 2
    assert "--back-reward: got no reward model as --reward" in capsys.readouterr().err
