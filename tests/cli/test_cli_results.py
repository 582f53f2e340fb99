"""What a command ends with is its result, and its help and flags read as a person would say them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from untrained import make_policy

from robolearn.cli.console import make_console
from robolearn.cli.flags import switches_of
from robolearn.cli.main import main, parse, print_help, show
from robolearn.cli.registry import ENTRIES, EXAMPLES, Entry
from robolearn.runs.command import print_table
from robolearn.runs.run import read_metrics
from sim.registry import WorldConfig, make_env

WEIGHTS = Path("policy") / "model.safetensors"


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


def helped(name: str, capsys: pytest.CaptureFixture) -> str:
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    return capsys.readouterr().out


def test_a_distilled_policy_says_what_comes_next(capsys: pytest.CaptureFixture) -> None:
    from rich.console import Console

    from robolearn.cli.distill import Distill

    result = {"policy": "runs/s/policy", "run": "runs/s", "observes": ["proprio"], "steps": 9, "decisions": 4,
              "wall_s": {"total": 1.0}, "loss": None, "last_round_success": None}  # fmt: skip
    Distill(teacher=Path("t"), out=Path("runs/s"), world=WorldConfig("peg_insert")).show(result, Console(width=200))
    assert "next        robolearn evaluate --policy runs/s --task peg_insert" in capsys.readouterr().out


def test_a_command_on_a_narrow_terminal_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    from robolearn.cli.collect import Collect
    from robolearn.cli.hub.commands import HubPull

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    place = "data/" + "a-name-as-long-as-they-are/" * 4 + "lift"
    result = {"dataset": place, "episodes": 2, "frames": 9, "expert_success": 1.0, "quality": "clean", "task": "lift",
              "robot": "panda", "out": place, "kind": "dataset", "files": 3, "bytes": 9,
              "wall_s": {"total": 1.0}}  # fmt: skip
    for command in (Collect(out=Path(place)), HubPull(repo="a/b", out=Path(place))):
        show(command, result)
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "next  " in line]
        assert f"robolearn train --data {place} " in line
    print_help(ENTRIES)
    said = capsys.readouterr().out.splitlines()
    assert all(any(f"  {example} " in line for line in said) for example, _ in EXAMPLES)
    print_table(make_console(), ("policy", "success"), [["word " * 20, "90%"]], title="a title " * 20)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert all(len(line) <= 80 for line in plain.splitlines())


@pytest.mark.long
def test_training_ends_with_its_losses(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    args = ["train", "--data", demos, "--out", tmp_path / "bc", "--batch", 16, "--steps", 60, "--validation", 0.2]
    assert run(*args) == 0
    said = capsys.readouterr().out
    last = list(read_metrics(tmp_path / "bc"))[-1]
    assert f"{last['loss']:.4f} in training; {last['validation_loss']:.4f} on episodes that were held out" in said
    assert "60 gradient steps" in said and "None" not in said and "wall_s" not in said
    assert run(*args, "--resume", "--json") == 0  # there is nothing left to do, but the result is the same
    result = json.loads(capsys.readouterr().out)
    assert (result["loss"], result["validation_loss"]) == (last["loss"], last["validation_loss"])


@pytest.mark.long
def test_fine_tuning_ends_with_the_success_of_what_it_exported(bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "rl"
    args = ["finetune", "--policy", bc, "--out", out, "--worlds", 8, "--decisions", 25, "--minibatch", 50,
            "--env-steps", 4700, "--critic-warmup", 1, "--eval-episodes", 8]  # fmt: skip
    assert run(*args, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    rows = [row for row in read_metrics(out) if row["success"] is not None]
    assert result["training_success"]["episodes"] == sum(row["episodes"] for row in rows[-5:])
    # The same as whoever looks at the exported policy finds.
    assert run("evaluate", "--policy", out, "--episodes", 8, "--seed", result["evaluation"]["seed"], "--json") == 0
    assert json.loads(capsys.readouterr().out)["success"] == result["evaluation"]["success"]
    assert run(*args, "--resume") == 0
    said = capsys.readouterr().out
    (noise,) = [line for line in said.splitlines() if line.startswith("noise")]
    assert "begins at" in noise and "explores up to" in noise
    assert "of 4,700 control steps" in said and "of the last rollouts" in said and "calibration." not in said
    assert re.search(r"\(.*8 episodes\) of the policy, without noise", said)


@pytest.mark.long
def test_fine_tuning_without_a_reward_says_that_the_policy_is_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture):
    policy = make_policy(tmp_path / "untrained", make_env("lift", 1).interface)
    args = ["finetune", "--policy", policy, "--worlds", 4, "--decisions", 25, "--minibatch", 50, "--sigma-max", 0.1,
            "--env-steps", 1600, "--critic-warmup", 1, "--eval-episodes", 0]  # fmt: skip
    out = tmp_path / "rl"
    assert run(*args, "--out", out, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["training_success"]["episodes"] > 0
    assert (result["rewarded_episodes"], result["unchanged"]) == (0, True)
    assert (out / WEIGHTS).read_bytes() == (policy / WEIGHTS.name).read_bytes()
    assert run(*args, "--out", out, "--resume") == 0
    said = capsys.readouterr().out
    assert "no episode of the run: every weight of the policy is as it was; begin with a better policy, more" in said
    assert "or --reward dense" in said and "a verdict on what it gained" not in said
    assert run(*args, "--out", tmp_path / "dense", "--reward", "dense") == 0
    said = capsys.readouterr().out
    assert "as it was" not in said and "a verdict on what it gained" in said


@pytest.mark.long
def test_the_best_and_every_kth_policy_are_kept_and_nothing_else_changes(
    bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    args = ["finetune", "--policy", bc, "--worlds", 4, "--decisions", 4, "--minibatch", 8, "--sigma-max", 0.1,
            "--env-steps", 640, "--json"]  # fmt: skip
    kept, plain = tmp_path / "kept", tmp_path / "plain"
    assert run(*args, "--out", kept, "--eval-every", 3, "--eval-episodes", 4, "--keep-every", 4) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert run(*args, "--out", plain, "--eval-episodes", 0) == 0
    assert "evaluation" not in json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (kept / WEIGHTS).read_bytes() == (plain / WEIGHTS).read_bytes()
    rows = [row for row in read_metrics(kept) if "eval_success" in row]
    assert [row["step"] + 1 for row in rows] == [3, 6, 9]
    best = max(rows, key=lambda row: (row["eval_success"], -row["step"]))
    assert result["best"]["iteration"] == best["step"] + 1 and result["best"]["success"]["episodes"] == 4
    assert sorted(path.name for path in (kept / "checkpoints").iterdir()) == ["000004", "000008"]
    assert run("evaluate", "--policy", kept / "best", "--episodes", 2, "--json") == 0
    assert run("evaluate", "--policy", kept / "checkpoints" / "000004", "--episodes", 2, "--json") == 0
    assert not list(kept.glob(".kept*"))


@pytest.mark.long
def test_training_may_end_early(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """A policy that never succeeds is never better than the first."""
    args = ["train", "--data", demos, "--batch", 8, "--steps", 60, "--steps-per-iteration", 2, "--lr", 1e-9,
            "--lr-final", 0, "--out", tmp_path / "bc", "--json"]  # fmt: skip
    watched = ["--eval-task", "lift", "--eval-every", 1, "--eval-episodes", 2, "--patience", 2]
    assert run(*args, *watched) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["steps"] == 6 and result["best"]["iteration"] == 1
    assert run(*args, *watched, "--resume") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 6
    assert run(*args[:-3], "--out", tmp_path / "x", "--eval-every", 1) == 2
    assert "--eval-task" in capsys.readouterr().err


@pytest.mark.long
def test_a_training_that_is_shorter_than_what_it_waits_for_says_so(demos: Path, tmp_path: Path, caplog):
    args = ["train", "--data", demos, "--batch", 8, "--steps", 4, "--steps-per-iteration", 2, "--eval-task", "lift",
            "--eval-episodes", 2, "--json"]  # fmt: skip
    assert run(*args, "--eval-every", 2, "--keep-every", 2, "--out", tmp_path / "two") == 0
    assert "nothing comes of it" not in caplog.text and (tmp_path / "two" / "best").exists()
    assert run(*args, "--eval-every", 3, "--out", tmp_path / "three") == 0
    assert "--eval-every 3 is more than the iterations of this run, 2: nothing comes of it" in caplog.text
    assert not (tmp_path / "three" / "best").exists()


@pytest.mark.long
def test_a_warm_start_begins_where_the_other_policy_is(demos: Path, bc: Path, tmp_path: Path, capsys):
    from safetensors.torch import load_file

    args = ["train", "--data", demos, "--from", bc, "--batch", 16, "--json"]
    assert (
        run(*args, "--out", tmp_path / "same", "--steps", 1, "--lr", 1e-12, "--lr-final", 0, "--weight-decay", 0) == 0
    )
    before, after = (load_file(path / WEIGHTS) for path in (bc, tmp_path / "same"))
    assert before.keys() == after.keys()
    assert all((before[name] - after[name]).abs().max() < 1e-6 for name in before)
    stored = json.loads((tmp_path / "same" / "config.json").read_text())
    assert stored["from"]["policy"] == str(bc)
    # It goes on from there: the loss begins where that of the other one ended, not where random weights begin.
    assert run(*args, "--out", tmp_path / "on", "--steps", 50) == 0
    assert next(read_metrics(tmp_path / "on"))["loss"] < 0.8 * next(read_metrics(bc))["loss"]
    capsys.readouterr()
    assert run("train", "--data", demos, "--batch", 16, "--out", tmp_path / "on", "--steps", 60, "--resume") == 2
    assert f"--from: missing; expected {bc}, as when {tmp_path / 'on'} began" in capsys.readouterr().err
    other = tmp_path / "peg"
    assert run("collect", "--task", "peg_insert", "--episodes", 2, "--worlds", 2, "--out", other, "--json") == 0
    capsys.readouterr()
    assert run("train", "--data", other, "--from", bc, "--out", tmp_path / "x") == 2
    assert "objects" in capsys.readouterr().err and not (tmp_path / "x").exists()


# --- help and flags ----------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_help_of_every_command_is_readable(entry: Entry, capsys: pytest.CaptureFixture):
    said = helped(entry.name, capsys)
    assert "None}" not in said and "[STR [" not in said and "{STR" not in said
    for name in (f"--{name}" for name, on in switches_of(entry.load()) if on):  # both words, and the one that holds
        assert f"{name}, --no-{name.removeprefix('--')}" in said and f"(default: {name})" in " ".join(
            said.replace("│", "").split()
        )


def test_a_switch_can_be_said_either_way(demos: Path):
    entry = next(entry for entry in ENTRIES if entry.name == "train")
    given = ["--data", str(demos), "--out", "x"]
    images = [getattr(parse(entry, [*given, *more]), "images") for more in ([], ["--images"], ["--no-images"])]  # noqa: B009
    assert images == [True, True, False]


def test_optional_values_are_parsed_as_before(tmp_path: Path):
    record = next(entry for entry in ENTRIES if entry.name == "record")
    words = [[], ["--cameras"], ["--cameras", "front", "wrist"]]
    parsed = [getattr(parse(record, ["--out", "x", *more]), "cameras") for more in words]  # noqa: B009
    assert parsed == [None, (), ("front", "wrist")]
    finetune = next(entry for entry in ENTRIES if entry.name == "finetune")
    given: Any = parse(finetune, ["--policy", "a", "--out", "b", "--initial-noise", "0.5", "--minibatch", "None"])
    assert given.settings.noise.initial == 0.5 and given.settings.minibatch is None


def test_a_group_of_commands_prints_its_help(capsys: pytest.CaptureFixture):
    for words in (["dataset"], ["help", "dataset"], ["dataset", "edit"], ["hil"], ["benchmark", "--help"]):
        assert main(words) == 0
        assert words[-1] in capsys.readouterr().out or "--help" in words
