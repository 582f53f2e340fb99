"""Budgets are met and reported as they were used, and curves are drawn over what was paid for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from robolearn.cli.main import main
from robolearn.runs.run import read_metrics

pytestmark = pytest.mark.long

WEIGHTS = Path("policy") / "model.safetensors"


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


def ticks(folder: Path, name: str) -> list[int]:
    """The x-axis of a curve in TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    # Files of one second, as of two commands of a test, are read in any order.
    return sorted(event.step for event in events.Scalars(name))


def test_training_takes_as_many_steps_as_it_is_asked_for(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    out, other = tmp_path / "bc", tmp_path / "other"
    args = ["train", "--data", demos, "--batch", 16, "--json"]
    assert run(*args, "--out", out, "--steps", 60) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 60
    assert [row["gradient_steps"] for row in read_metrics(out)] == [50, 60]
    assert ticks(out, "loss") == [50, 60]
    # The same sixty steps in one piece: the same weights, but for the noise, whose seed is the iteration's.
    assert run(*args, "--out", other, "--steps", 10, "--steps-per-iteration", 100) == 0
    assert [row["gradient_steps"] for row in read_metrics(other)] == [10]
    capsys.readouterr()
    assert run("runs", tmp_path) == 0
    assert "60 gradient steps" in capsys.readouterr().out


def test_a_finished_training_goes_on_with_more_steps(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "bc"
    args = ["train", "--data", demos, "--out", out, "--batch", 16, "--json"]
    assert run(*args, "--steps", 60) == 0
    first = (out / WEIGHTS).read_bytes()
    assert run(*args, "--steps", 60, "--resume") == 0
    assert (out / WEIGHTS).read_bytes() == first
    assert run(*args, "--steps", 130, "--resume") == 0
    assert [row["gradient_steps"] for row in read_metrics(out)] == [50, 60, 110, 130]
    assert ticks(out, "loss") == [50, 60, 110, 130]
    assert json.loads((out / "config.json").read_text())["imitation"]["steps"] == 130
    assert json.loads((out / "result.json").read_text())["steps"] == 130
    assert (out / WEIGHTS).read_bytes() != first
    capsys.readouterr()
    assert run(*args, "--steps", 60, "--resume") == 2
    assert "got 60, expected 130" in capsys.readouterr().err


def test_a_finished_fine_tuning_goes_on_with_a_larger_budget(bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "rl"
    args = ["finetune", "--policy", bc, "--out", out, "--worlds", 4, "--decisions", 4, "--minibatch", 8,
            "--sigma-max", 0.1, "--json"]  # fmt: skip
    assert run(*args, "--env-steps", 300) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["budget"] == 300 and 300 - 4 * 16 < result["env_steps"] <= 300
    rows = list(read_metrics(out))
    assert result["env_steps"] == rows[-1]["env_steps"] and ticks(out, "episodes") == [row["env_steps"] for row in rows]
    assert run(*args, "--env-steps", 500, "--resume") == 0
    result = json.loads(capsys.readouterr().out)
    assert 500 - 4 * 16 < result["env_steps"] <= 500
    assert list(read_metrics(out))[: len(rows)] == rows
    assert run("runs", out.parent) == 0
    assert f"{result['env_steps']} control steps" in capsys.readouterr().out


def test_a_killed_extension_is_resumable_and_ends_as_one_that_was_not(demos: Path, tmp_path: Path):
    args = ["train", "--data", demos, "--batch", 16, "--steps-per-iteration", 10, "--checkpoint-every", 1, "--json"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(*args, "--steps", 30, "--out", whole) == 0
    shutil.copytree(whole, killed)
    assert run(*args, "--steps", 60, "--out", whole, "--resume") == 0

    import robolearn.cli.train as module  # noqa: F401  (its loop is imported late)
    import robolearn.runs.loop as loop

    log, seen = loop.Run.log, []

    def stop(self: Any, step: int, metrics: Any) -> None:
        log(self, step, metrics)
        seen.append(step)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Run, "log", stop)
        assert run(*args, "--steps", 60, "--out", killed, "--resume") == 130
    assert not (killed / "result.json").exists()
    assert run(*args, "--steps", 60, "--out", killed, "--resume") == 0
    assert (killed / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
