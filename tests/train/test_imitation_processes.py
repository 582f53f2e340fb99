"""`train --processes 2`: the losses and the weights of one process, and the same exact continuation."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from policies.registry import config_from_json, config_to_json
from policies.settings import DiffusionConfig, FlowConfig, NetworkConfig
from robolearn.cli.main import main
from robolearn.cli.train import Train
from robolearn.cli.train_process import command_of
from robolearn.core import ArraySpec, BadInput, Interface, RobolearnError
from robolearn.core.installation import install_command
from robolearn.data import EpisodeWriter
from robolearn.train.imitation import ImitationTrainer
from robolearn.train.settings import ImitationConfig

pytestmark = pytest.mark.long

INTERFACE = Interface({"proprio": ArraySpec((3,)), "objects": ArraySpec((2,))}, ArraySpec((2,)), control_hz=20.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes") / "data"
    rng = np.random.default_rng(0)
    with EpisodeWriter(folder, INTERFACE) as writer:
        for _ in range(6):
            for _ in range(9):
                seen = rng.standard_normal(5).astype(np.float32)
                writer.add({"proprio": seen[:3], "objects": seen[3:]}, 0.5 * np.tanh(seen[:2]))
            writer.end(success=True, terminated=True, task="toy")
    return folder


def train(data: Path, out: Path, *more: str, code: int = 0) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """The metrics and the exported weights of a run; its last batches of an epoch have an odd number of windows."""
    flags = ["--flow", "shortcut", "--width", "32", "--depth", "2", "--batch", "15", "--steps-per-iteration", "2"]
    args = ["train", "--data", str(data), "--out", str(out), "--steps", "8", *flags, "--json", *more]
    assert main([*args, "--device", "cpu", "--checkpoint-every", "1"]) == code
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return rows, load_file(out / "policy" / "model.safetensors")


def test_two_processes_learn_what_one_learns_and_go_on_exactly(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, weights = train(data, tmp_path / "one")
    rows, shared = train(data, tmp_path / "two", "--processes", "2", "--accumulate", "2")
    assert len(rows) == len(alone) == 4
    for a, b in zip(alone, rows, strict=True):
        for key in ("loss", "loss_consistency", "loss_flow", "grad_norm"):
            assert b[key] == pytest.approx(a[key], rel=1e-4)
    for key, value in weights.items():
        torch.testing.assert_close(shared[key], value, rtol=1e-3, atol=1e-5)
    stopped, iterate = tmp_path / "stopped", ImitationTrainer.iterate

    def until_killed(trainer: ImitationTrainer, i: int) -> dict[str, float]:
        if i == 2:
            raise RobolearnError("killed")
        return iterate(trainer, i)

    with monkeypatch.context() as patch:
        patch.setattr(ImitationTrainer, "iterate", until_killed)
        train(data, stopped, "--processes", "2", "--accumulate", "2", code=1)
    again, resumed = train(data, stopped, "--processes", "2", "--accumulate", "2", "--resume")
    assert [row["loss"] for row in again] == [row["loss"] for row in rows]
    for key, value in shared.items():
        assert torch.equal(resumed[key], value)


def test_the_others_are_told_the_same_command() -> None:
    for policy, kind in ((DiffusionConfig(steps=7, network=NetworkConfig(channels=(8, 16))), "diffusion"),
                         (FlowConfig(), "flow")):  # fmt: skip
        command = Train(
            data=("a", "b"), out=Path("out"), policy=kind, settings=ImitationConfig(policy, steps=9, lr=0.5, batch=12),
            observe=("images",), mix=(0.25, 0.75), processes=3, weights=True,
        )  # fmt: skip
        told = command_of(json.loads(json.dumps(command.task(Path("out/state")))))
        assert told.settings == command.settings
        for name in ("data", "policy", "observe", "images", "mix", "weights", "device", "processes"):
            assert getattr(told, name) == getattr(command, name)


def test_a_batch_that_is_no_number_is_refused() -> None:
    settings = config_to_json(ImitationConfig())
    assert settings["batch"] is None and config_from_json(ImitationConfig, {"batch": None}, "it").batch is None
    assert config_from_json(ImitationConfig, {"batch": 15}, "it").batch == 15
    with pytest.raises(BadInput, match="setting 'batch': got '15', expected int or NoneType"):
        config_from_json(ImitationConfig, {"batch": "15"}, "it")


def test_one_that_ends_before_they_meet_ends_it_all(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Train, "task", lambda self, state: {"flags": {}, "policy": "flow", "settings": "nonsense"})
    asked = ["train", "--data", str(data), "--out", str(tmp_path / "x"), "--device", "cpu", "--processes", "2"]
    began = time.monotonic()
    assert main(asked) == 1
    assert "a process of the training failed" in capsys.readouterr().err
    assert time.monotonic() - began < 60.0


def test_bad_input_is_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["train", "--data", str(data), "--out", str(tmp_path / "x"), "--device", "cpu"]
    for flags, says in (
        (("--processes", "0"), "expected at least 1"),
        (("--processes", "9", "--batch", "8"), "expected at most 8"),
        (("--accumulate", "9", "--batch", "8"), "expected at most the 8 windows"),
    ):
        assert main([*asked, *flags]) == 2
        error = capsys.readouterr().err
        assert says in error and error.count("\n") == 1
    monkeypatch.setitem(sys.modules, "accelerate", None)
    assert main([*asked, "--processes", "2"]) == 2
    error = capsys.readouterr().err
    assert "got no accelerate, expected it installed." in error and error.endswith(f"{install_command('processes')}\n")
    assert not (tmp_path / "x").exists()
