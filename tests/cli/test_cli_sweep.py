"""Flags in files and presets, and a training over seeds and settings."""

from __future__ import annotations

import importlib.util
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from robolearn.cli.config_file import flags_of
from robolearn.cli.main import main, parse
from robolearn.cli.registry import ENTRIES
from robolearn.cli.sweep import Sweep
from robolearn.presets import NAMED, PRESETS

WEIGHTS = Path("policy") / "model.safetensors"


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


def entry(name: str) -> Any:
    return next(entry for entry in ENTRIES if entry.name == name)


def file(path: Path, **flags: Any) -> Path:
    path.write_text(yaml.safe_dump(flags))
    return path


def test_flags_come_from_a_file_and_the_command_line_is_on_top(tmp_path: Path):
    config = file(tmp_path / "a.yaml", data=["x", "y"], settings={"steps": 7, "batch": 8}, images=False, weights=True,
                  policy="diffusion", eta=0.5, validation=None)  # fmt: skip
    words = ["--config", str(config), "--out", "z", "--batch", "9"]
    command: Any = parse(entry("train"), words)
    assert command.data == ("x", "y") and not command.images and command.weights
    assert (command.settings.steps, command.settings.batch) == (7, 9)
    assert command.settings.policy.eta == 0.5  # the kind of policy is read from the file before its flags are known
    assert parse(entry("train"), [f"--config={config}", *words[2:]]) == command
    other = file(tmp_path / "b.yaml", images=True, data="x")
    assert getattr(parse(entry("train"), ["--config", str(other), "--out", "z"]), "images")  # noqa: B009


@pytest.mark.long
def test_the_flags_of_a_run_do_the_same_again(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    args = ["train", "--data", demos, "--batch", 16, "--steps", 55, "--no-mask-padding", "--json"]
    assert run(*args, "--out", tmp_path / "a") == 0
    stored = tmp_path / "a" / "flags.yaml"
    assert run("train", "--config", stored, "--out", tmp_path / "b", "--json") == 0
    assert (tmp_path / "a" / WEIGHTS).read_bytes() == (tmp_path / "b" / WEIGHTS).read_bytes()
    assert yaml.safe_load(stored.read_text())["mask-padding"] is False
    assert run("train", "--config", stored, "--out", tmp_path / "c", "--seed", 1, "--json") == 0
    assert (tmp_path / "a" / WEIGHTS).read_bytes() != (tmp_path / "c" / WEIGHTS).read_bytes()
    capsys.readouterr()
    assert run("finetune", "--config", stored, "--out", tmp_path / "d") == 2
    assert "flags of robolearn train" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("name", ["train", "finetune", "distill"])
def test_every_flag_survives_the_file(name: str, tmp_path: Path):
    need = {"train": ["--data", "x"], "finetune": ["--policy", "x"], "distill": ["--teacher", "x"]}[name]
    command = parse(entry(name), [*need, "--out", "z"])
    config = file(tmp_path / "flags.yaml", **flags_of(command))
    assert parse(entry(name), ["--config", str(config), "--out", "z"]) == command


def test_files_that_are_none(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "text").write_text("- a\n- b\n")
    (tmp_path / "broken").write_text("a: [1")
    (tmp_path / "object").write_text("a: !!python/object/apply:os.system ['echo no']")
    (tmp_path / "deep").write_text("a: [[1]]")
    for config, says in (
        ("nowhere.yaml", "there is no such file, and no such preset; available: reinflow-paper"),
        (tmp_path / "text", "got list, expected flags"),
        (tmp_path / "broken", "cannot be read: expected ',' or ']'"),
        (tmp_path / "object", "cannot be read: could not determine a constructor"),
        (tmp_path / "deep", "got a list of lists"),
        (file(tmp_path / "typo", stpes=3), "there is no flag --stpes (did you mean --steps?)"),
        (file(tmp_path / "value", steps="many"), "--steps takes a whole number, not many"),
        ("dppo", "got robolearn train, expected robolearn finetune"),
    ):
        assert run("train", "--data", demos, "--out", tmp_path / "out", "--config", config) == 2
        err = capsys.readouterr().err
        assert says in err and err.count("\n") == 1
    assert run("train", "--config") == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_every_preset_is_listed_with_a_line_and_parses(capsys: pytest.CaptureFixture):
    assert run("presets") == 0
    said = capsys.readouterr().out
    assert all(name in said and preset.line in said for name, preset in (PRESETS | NAMED).items())
    for name, preset in NAMED.items():
        need = {"train": ["--data", "x"], "finetune": ["--policy", "x"], "hil learner": ["--policy", "x"]}[
            preset.command
        ]
        command: Any = parse(entry(preset.command), ["--config", name, *need, "--out", "z"])
        assert {key: flags_of(command)[key] for key in preset.flags} == preset.flags
    finetune: Any = parse(entry("finetune"), ["--config", "reinflow-paper", "--policy", "x", "--out", "z"])
    noise = finetune.settings.noise
    assert (noise.initial, noise.steps, noise.within, noise.clip_means) == (1, "all", 3, True)
    for words in (["benchmark", "rl"], ["quickstart"]):
        made: Any = parse(entry(" ".join(words)), ["--config", "reinflow-paper"])
        assert (made.settings.exponent, made.settings.clip, made.settings.average) == ("mean", 0.01, 0)
        assert made.settings.noise == noise
    rival: Any = parse(entry("benchmark hil"), ["--config", "rlpd-paper"])
    assert rival.algo == ("rlpd",) and (rival.settings.utd, rival.settings.temperature) == (20, 1)
    alone: Any = parse(entry("finetune"), ["--config", "rlpd-paper", "--policy", "x", "--out", "z"])
    assert alone.algo == "rlpd" and alone.settings.algorithm == rival.settings


def test_settings_in_simulated_worlds_are_the_algorithm_s_own() -> None:
    """OGPO's are of its paper; the others are those by which they were measured."""
    ogpo: Any = parse(entry("finetune"), ["--algo", "ogpo", "--policy", "x", "--out", "z"])
    own = ogpo.settings.algorithm
    assert (own.demo_share, own.utd, own.proposals, own.trust_after) == (0.0, 1.0, 1, 1000)
    uni_o4: Any = parse(entry("finetune"), ["--algo", "uni_o4", "--policy", "x", "--out", "z"])
    assert (uni_o4.settings.algorithm.utd, uni_o4.settings.algorithm.proposals) == (0.5, 1)
    rebrac: Any = parse(entry("finetune"), ["--algo", "rebrac", "--policy", "x", "--out", "z"])
    assert (rebrac.settings.algorithm.utd, rebrac.settings.algorithm.proposals) == (0.5, 8)


# --- sweep -------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_the_line_that_goes_on_with_a_stopped_sweep_is_one(
    resume: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def stopped(self: Sweep) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Sweep, "run", stopped)
    (tmp_path / "plan.json").write_text("{}")  # it has begun
    out = ["--out", str(tmp_path)]
    args = ["sweep", "--vary", "lr=0.001,0.01", *out, *resume, "--", "train", "--data", "x y", "--steps", "20000"]
    assert run(*args) == 130
    program, name, *words = shlex.split(capsys.readouterr().err.partition("Go on: ")[2])
    begun, again = parse(entry(name), args[1:]), parse(entry(name), words)
    assert program == "robolearn" and again == replace(begun, resume=True) and words.count("--resume") == 1
    list(again.plan())


@pytest.mark.long
def test_a_sweep_over_settings_and_seeds(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "sweep"
    training = ["--", "train", "--data", demos, "--steps", 40, "--steps-per-iteration", 20, "--batch", 16,
                "--eval-task", "lift", "--eval-episodes", 2]  # fmt: skip
    sweep = ["sweep", "--vary", "lr=0.001,0.01", "--seeds", 0, 1, "--out", out, "--json"]
    assert run(*sweep, *training) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["setting"] for row in result["settings"]] == [{"lr": "0.001"}, {"lr": "0.01"}]
    for row in result["settings"]:
        losses = [found["loss"] for found in row["runs"]]
        assert [found["seed"] for found in row["runs"]] == [0, 1] and losses[0] != losses[1]
        assert row["metrics"]["loss"]["mean"] == pytest.approx(np.mean(losses))
        for found in row["runs"]:
            config = json.loads((Path(found["run"]) / "config.json").read_text())["imitation"]
            assert (config["seed"], str(config["lr"])) == (found["seed"], row["setting"]["lr"])
    report = Path(result["report"]).read_text()
    assert "lr 0.001" in report and "Training loss" in report and "4 episodes" in report and "--vary" in report
    # What is finished is not done again; another seed is.
    before = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    assert len(before) == 4
    assert run(*[word if word != 1 else 2 for word in sweep], "--resume", *training) == 0
    again = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    assert len(again) == 6 and all(again[path] == at for path, at in before.items())
    capsys.readouterr()
    assert run(*sweep, *training) == 2
    assert "--resume goes on with a sweep" in capsys.readouterr().err
    assert run(*sweep, "--resume", *training, "--batch", 8) == 2
    assert "as when the run began" in capsys.readouterr().err


@pytest.mark.long
def test_ray_runs_the_same_side_by_side(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """Ray itself: weights bit for bit, and the same figures but for times."""
    training = ["--", "train", "--data", demos, "--steps", 20, "--batch", 16, "--width", 32]
    found = {}
    for runner in ("process", "ray"):
        words = ["--vary", "lr=0.001,0.01", "--seeds", 0, 1, "--out", tmp_path / runner, "--runner", runner, "--json"]
        assert run("sweep", *words, *training) == 0
        found[runner] = json.loads(capsys.readouterr().out.splitlines()[-1])
    here, there = (sorted(path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*") if path.is_file()
                          and "tfevents" not in path.name) for name in found)  # fmt: skip
    assert here == there and sum(path.name == "model.safetensors" for path in here) == 4
    for path in here:
        if path.suffix == ".safetensors":
            assert (tmp_path / "process" / path).read_bytes() == (tmp_path / "ray" / path).read_bytes(), path
    for one, other in zip(*(result["settings"] for result in found.values()), strict=True):
        assert one["setting"] == other["setting"] and one["metrics"]["loss"] == other["metrics"]["loss"]
    assert Path(found["ray"]["report"]).exists()


@pytest.mark.long
def test_a_run_that_fails_under_ray_is_named(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "ray"
    training = ["--", "train", "--data", demos, "--steps", 20, "--lr", "1e30", "--batch", 16, "--no-mask-padding"]
    assert run("sweep", "--seeds", 0, "--out", out, "--runner", "ray", "--json", *training) == 1
    said = capsys.readouterr().err
    assert "robolearn: error: robolearn train" in said and "imitation: the loss became" in said, said


def test_a_sweep_without_ray_is_refused(demos, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run("sweep", "--out", tmp_path / "x", "--runner", "ray", "--", "train", "--data", demos) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "--runner ray: got no package ray, expected it installed" in said
    assert "pip install" in said and "[ray]" in said
    assert not (tmp_path / "x").exists()


@pytest.mark.long
def test_what_cannot_be_swept(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    out, training = tmp_path / "sweep", ["--", "train", "--data", str(demos)]
    for args, says in (
        (["--", "evaluate"], "got evaluate; available: train, finetune, distill"),
        ([], "missing"),
        (["--vary", "lr", *training], "--vary: got lr, expected a flag and its values"),
        (["--vary", "lr=1,1", *training], "different values"),
        (["--vary", "seed=1,2", *training], "--seeds and --out"),
        (["--vary", "lr=1", "lr=2", *training], "each flag once"),
        (["--vary", "lrr=1,2", *training], "there is no flag --lrr"),
        (["--vary", "batch=8,many", *training], "--batch takes a whole number, not many"),
        (["--seeds", "1", "1", *training], "different numbers"),
        ([*training, "--seed", "3"], "neither --seed, --out nor --resume"),
    ):
        assert run("sweep", "--out", out, *args) == 2
        assert says in capsys.readouterr().err
        assert not out.exists()
