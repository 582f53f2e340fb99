"""`finetune --begin-along`: which sets it takes, and that a run goes on and is judged from the task's own starts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from robolearn.cli.main import main
from robolearn.runs import read_metrics

FILE = "meta/robolearn_starts.json"


def run(*args: object) -> int:
    return main([str(arg) for arg in args])


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 demonstrations of `lift` that all succeed, in two parts."""
    out = tmp_path_factory.mktemp("along") / "shown"
    args = ("collect", "--quality", "expert", "--out", out, "--json")
    assert run(*args, "--episodes", 2) == 0 and run(*args, "--episodes", 4, "--resume") == 0
    return out


@pytest.mark.long
@pytest.mark.parametrize("algo", ["reinflow", "proposals"])
def test_a_run_is_resumed_exactly_and_judged_from_the_task_s_own_starts(
    bc: Path, shown: Path, tmp_path: Path, capsys: pytest.CaptureFixture, algo: str
) -> None:
    small = {
        "reinflow": ("--decisions", 8),
        "proposals": ("--batch", 16, "--critics", 2, "--width", 16, "--utd", 0.05),
    }[algo]
    args = ("finetune", "--policy", bc, "--algo", algo, "--worlds", 4, *small, "--checkpoint-every", 1, "--begin-along",
            shown, "--along-share", 1, "--along-until", 0.9, "--env-steps", 2400, "--eval-episodes", 4,
            "--json")  # fmt: skip
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(*args, "--out", whole) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = list(read_metrics(whole))
    assert sum(row.get("along_episodes", 0) for row in rows) > 4
    assert not rows[-1]["along_episodes"], "the last tenth of the budget begins as the task has it"
    counted = result["training_success"]
    assert counted is None or counted["episodes"] <= sum(row["episodes"] for row in rows)
    assert run("evaluate", "--policy", whole, "--episodes", 4, "--seed", 1000, "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["success"] == result["evaluation"]["success"]
    with pytest.MonkeyPatch.context() as patch:
        _stop_after(patch, 2)
        assert run(*args, "--out", parts) == 130
    assert run(*args, "--out", parts, "--resume") == 0
    a, b = (load_file(out / "policy" / "model.safetensors") for out in (whole, parts))
    assert a.keys() == b.keys() and all((a[key] == b[key]).all() for key in a)


def _stop_after(patch: pytest.MonkeyPatch, iterations: int) -> None:
    from robolearn.runs.loop import Kept

    iterate = Kept.iterate

    def stopped(self: Any, i: int) -> Any:
        if i >= iterations:
            raise KeyboardInterrupt
        return iterate(self, i)

    patch.setattr(Kept, "iterate", stopped)


def _changed(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        entries = json.loads((folder / FILE).read_text())["collected"]
        (folder / FILE).write_text(json.dumps({"collected": [entry | values for entry in entries]}))

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / FILE).unlink(), "got episodes without the seeds of their starts"),
        (lambda folder: (folder / FILE).write_text('{"collected": [1]}'), "got other entries, expected ['dynamics'"),
        (_changed(task="peg_insert"), ": task: got peg_insert, expected lift, as in training"),
        (_changed(robot="fr3"), ": robot: got fr3, expected panda, as in training"),
        (_changed(dynamics="wild"), ": dynamics: got wild, expected none, as in training"),
        (_changed(seed=7), "that do not reproduce: demonstration 0 begins at no start of its seed"),
    ],
)
def test_sets_that_cannot_be_begun_along_are_refused(
    bc: Path, shown: Path, tmp_path: Path, capsys: pytest.CaptureFixture, change: Callable, said: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(shown, copy)
    change(copy)
    out = tmp_path / "out"
    assert run("finetune", "--policy", bc, "--worlds", 4, "--begin-along", copy, "--out", out) == 2
    error = capsys.readouterr().err
    assert f"--begin-along {copy}" in error and said in error and not out.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--algo", "proposals", "--env-steps", 0, "--updates", 9), "--begin-along: got it with --env-steps 0"),
        (("--algo", "proposals", "--back-policy", "BC"), "--begin-along: got it with --back-policy"),
        (("--along-until", 0), "--along-until: got 0.0, expected a share above 0, at most 1"),
        (("--cousins", "held-out"), ": cousins: got none, expected held-out, as in training"),
        (("--task", "robosuite:Lift"), "task robosuite:Lift: got option begin along, expected an embedded task"),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    bc: Path, shown: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture, flags: tuple, said: str
) -> None:
    flags = tuple(bc if flag == "BC" else flag for flag in flags)
    data = ("--data", demos) if "--updates" in flags else ()
    args = ("finetune", "--policy", bc, *flags, *data, "--begin-along", shown, "--out", tmp_path / "out")
    assert run(*args) == 2
    assert said in capsys.readouterr().err
