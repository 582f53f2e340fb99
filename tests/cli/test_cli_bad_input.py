"""Bad input to the learning commands: exit code 2, one clear line, and nothing on disk is touched."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from robolearn.cli.main import main
from robolearn.core import ArraySpec, Interface
from robolearn.data.writing.writer import EpisodeWriter


def tree(folder: Path) -> dict[str, str]:
    """Every file below `folder` and what is in it; lock files apart, which hold a process id."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != ".lock")
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


class Refusal:
    """Runs a command in `folder` and expects that it is refused."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture) -> None:
        self.folder, self._capsys = folder, capsys

    def __call__(self, *args: Any, says: tuple[str, ...]) -> None:
        before = tree(self.folder)
        self._capsys.readouterr()
        code = main([str(arg) for arg in args])
        out, err = self._capsys.readouterr()
        assert code == 2, err
        assert not out
        assert err.startswith("robolearn: error: ") and err.count("\n") == 1 and err.endswith("\n")
        for word in says:
            assert word in err, err
        assert tree(self.folder) == before


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> Refusal:
    return Refusal(tmp_path, capsys)


@pytest.fixture
def policy(bc: Path, tmp_path: Path) -> Path:
    """A checkpoint folder of one's own to damage."""
    return Path(shutil.copytree(bc / "policy", tmp_path / "policy"))


def edit(file: Path, **changes: Any) -> None:
    config = json.loads(file.read_text())
    config["interface"].update(changes)
    file.write_text(json.dumps(config))


# --- names and numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["collect", "finetune", "evaluate", "quickstart"])
def test_an_unknown_task_suggests_the_nearest(refused: Refusal, bc: Path, tmp_path: Path, command: str):
    args = ["--policy", bc] if command in ("finetune", "evaluate") else []
    says = ("got peg_insrt", "lift", "did you mean peg_insert?")
    refused(command, *args, "--task", "peg_insrt", "--out", tmp_path / "out", "--json", says=says)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["collect", "--episodes", 0], ("--episodes", "got 0", "at least 1")),
        (["collect", "--worlds", 0], ("--worlds", "got 0")),
        (["collect", "--seed", -1], ("--seed", "got -1")),
        (["collect", "--quality", "mixd"], ("quality", "did you mean mixed?")),
        (["collect", "--task", "gym:gymnasium:Pendulum-v1"], ("gym:gymnasium:Pendulum-v1", "lift")),
        (["train", "--steps", 0], ("steps", "got 0")),
        (["train", "--batch", 0], ("batch", "got 0")),
        (["train", "--lr", -1], ("lr", "positive")),
        (["train", "--checkpoint-every", 0], ("--checkpoint-every", "got 0")),
        (["train", "--seed", -1], ("--seed", "got -1")),
        (["train", "--threads", 0], ("threads", "got 0")),
        (["train", "--validation", 1.0], ("validation",)),
        (["train", "--execute", 5], ("at most the horizon Tp = 4",)),
        (["train", "--flow", "shortcut", "--denoise-steps", 20], ("shortcut steps", "got 20", "16")),
        (["train", "--denoise-steps", 0], ("at least 1",)),
        (["finetune", "--env-steps", 0], ("--env-steps", "got 0")),
        (["finetune", "--env-steps", 54613], ("got 54613", "at least 54614", "--worlds 127 are")),
        (["finetune", "--env-steps", 3000], ("at least 54614", "128 worlds x 80 steps", "--worlds 7 are")),
        (["finetune", "--env-steps", 300], ("at least 54614", "A lower --worlds (now 128) and --decisions")),
        (["finetune", "--env-steps", 9000, "--algo", "grpo"], ("--worlds 104 are",)),
        (["finetune", "--worlds", 0], ("worlds", "got 0")),
        (["finetune", "--decisions", 0], ("--chunks-per-rollout", "got 0")),
        (["finetune", "--algo", "ppo"], ("--algo", "got ppo", "dppo")),
        (["finetune", "--algo", "grpo", "--group", 5], ("--group", "got 5", "a divisor of --worlds 128")),
        (["finetune", "--algo", "dppo", "--clip-first", 0], ("--clip-first", "got 0")),
        (["finetune", "--initial-noise", 2], ("initial-noise", "got 2")),
        (["finetune", "--device", "tpu"], ("--device", "got tpu", "cpu")),
        (["train", "--policy", "gaussian"], ("--policy", "got gaussian", "flow, diffusion")),
        (["finetune", "--minibatch", 1], ("minibatch",)),
        (["finetune", "--sigma-max", -0.1], ("noise", "-0.1")),
        (["finetune", "--actor-lr", 0], ("--actor-lr", "got 0")),
        (["finetune", "--gamma", 2], ("gamma", "got 2")),
        (["finetune", "--threads", 0], ("--threads", "got 0")),
        (["finetune", "--checkpoint-every", 0], ("--checkpoint-every", "got 0")),
        (["finetune", "--seed", -1], ("--seed", "got -1")),
        (["evaluate", "--episodes", 0], ("--episodes", "got 0")),
        (["evaluate", "--worlds", -3], ("--worlds", "got -3")),
        (["evaluate", "--seed", -1], ("--seed", "got -1")),
        (["evaluate", "--shuffle", "object"], ("--shuffle", "got object", "did you mean objects")),
        (["quickstart", "--episodes", 0], ("--episodes", "got 0")),
        (["quickstart", "--env-steps", 0], ("--env-steps", "got 0")),
        (["quickstart", "--eval-episodes", 0], ("--eval-episodes", "got 0")),
        (["quickstart", "--task", "robosuite:Lift"], ("robosuite:Lift", "lift")),
        (["quickstart", "--env-steps", 1000], ("--env-steps", "got 1000", "at least 54614")),
        (["quickstart", "--denoise-steps", 0], ("at least 1",)),
        (["quickstart", "--robot", "fr33"], ("got fr33", "did you mean fr3")),
        (["quickstart", "--robot", "so101", "--task", "peg_insert"], ("got so101", "panda, fr3, ur5e", "no peg")),
        (["quickstart", "--demos", "narow"], ("quality: got narow", "did you mean narrow")),
        (
            ["benchmark", "rl", "--robot", "so101", "--tasks", "lift", "peg_insert"],
            ("robot of peg_insert: got so101", "panda, fr3, ur5e"),
        ),
        (["train", "--seed", 2**64], ("--seed", "expected 0 to")),
        (["finetune", "--seed", 2**63], ("--seed", "expected 0 to")),
        (
            ["finetune", "--worlds", 1, "--decisions", 1, "--env-steps", 999, "--sigma-max", 0.1],
            ("--worlds times --chunks-per-rollout", "got 1"),
        ),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_numbers_and_names(refused: Refusal, demos: Path, bc: Path, tmp_path: Path, args: list, says: tuple[str, ...]):
    given = {"train": ["--data", demos], "finetune": ["--policy", bc], "evaluate": ["--policy", bc]}.get(args[0], [])
    refused(*args, *given, "--out", tmp_path / "out", "--json", says=says)
    assert not (tmp_path / "out").exists()  # so that the corrected command can take the same name


# --- policies ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("command", ["finetune", "evaluate"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"embodiment": "ur5"}, ("made for ur5, this is panda",)),
        (
            {"action_kind": "joint_velocity"},
            ("action kind", "made for actions of kind joint_velocity, this has tcp_delta"),
        ),
        ({"control_hz": 50.0}, ("got 20.0 Hz, expected 50.0 Hz",)),
    ],
)
def test_a_policy_of_another_robot(
    refused: Refusal, policy: Path, tmp_path: Path, command: str, change: dict, says: tuple[str, ...]
):
    edit(policy / "config.json", **change)
    refused(command, "--policy", policy, "--out", tmp_path / "out", says=says)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize("command", ["finetune", "evaluate"])
def test_a_policy_in_worlds_that_it_was_not_made_for(refused: Refusal, bc: Path, tmp_path: Path, command: str):
    out = tmp_path / "out"
    args = [command, "--policy", bc, "--out", out]
    refused(*args, "--task", "gym:gymnasium:Pendulum-v1", says=("it was made for panda, this is none",))
    refused(
        *args,
        "--task",
        "pick_place",
        says=("observation 'objects'", "18 numbers (target_x, ", "trained on another task"),
    )
    refused(*args, "--task", "gym:no_such_module:X-v0", says=("no_such_module",))
    assert not out.exists()


@pytest.mark.long
@pytest.mark.parametrize("command", ["finetune", "evaluate"])
def test_a_damaged_checkpoint(refused: Refusal, policy: Path, bc: Path, tmp_path: Path, command: str):
    args = (command, "--policy", policy, "--out", tmp_path / "out")
    weights, config = policy / "model.safetensors", policy / "config.json"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    refused(*args, says=("model.safetensors", "damaged"))
    tensors = load_file(bc / "policy" / "model.safetensors")
    name = next(key for key in tensors if key.endswith("last.bias"))
    save_file({**tensors, name: torch.full_like(tensors[name], torch.nan)}, weights)
    refused(*args, says=(name, "NaN"))
    save_file({key: value for key, value in tensors.items() if key != name}, weights)
    refused(*args, says=(f"no tensor {name!r}",))
    weights.unlink()
    refused(*args, says=("model.safetensors",))
    weights.write_bytes(whole)
    text = config.read_text()
    config.write_text(text[: len(text) // 2])
    refused(*args, says=("config.json", "unreadable"))
    config.write_text("[]")
    refused(*args, says=("config.json",))
    config.write_text(text.replace('"kind": "flow"', '"kind": "flwo"', 1))
    refused(*args, says=("flwo", "did you mean flow?"))
    refused(command, "--policy", tmp_path / "missing", "--out", tmp_path / "out", says=("missing", "no such folder"))
    (tmp_path / "empty").mkdir()
    refused(command, "--policy", tmp_path / "empty", "--out", tmp_path / "out", says=("an empty folder",))
    assert not (tmp_path / "out").exists()


def test_a_sampler_with_noise_of_its_own_is_not_fine_tuned(refused: Refusal, demos: Path, tmp_path: Path):
    args = ["--data", demos, "--out", tmp_path / "dp", "--policy", "diffusion", "--eta", 1, "--steps", 1, "--json"]
    assert main(["train", *map(str, args)]) == 0
    refused("finetune", "--policy", tmp_path / "dp", "--out", tmp_path / "rl", says=("eta = 1.0", "eta = 0 (DDIM)"))


def test_a_second_policy_that_does_not_fit_is_refused_before_the_first_is_evaluated(
    refused: Refusal, bc: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
):
    import robolearn.cli.evaluate as module

    monkeypatch.setattr(module, "evaluate_policy", lambda *args: pytest.fail("it was evaluated"))
    edit(policy / "config.json", embodiment="ur5e")
    refused("evaluate", "--policy", bc, "--against", policy, says=("made for ur5e, this is panda",))


# --- data sets ---------------------------------------------------------------------------------------------


def other_features(path: Path, episodes: int = 2) -> Path:
    """A data set of a robot with another observation and action."""
    interface = Interface({"proprio": ArraySpec((3,))}, ArraySpec((2,)), control_hz=10.0)
    with EpisodeWriter(path, interface) as writer:
        for _ in range(episodes):
            for _ in range(8):
                writer.add({"proprio": np.zeros(3)}, np.zeros(2))
            writer.end(success=True, terminated=True)
    return path


@pytest.mark.long
def test_a_data_set_with_other_features(refused: Refusal, demos: Path, tmp_path: Path):
    data = other_features(tmp_path / "other")
    refused("collect", "--task", "lift", "--out", data, "--resume", says=("other", "interface"))
    mine = Path(shutil.copytree(demos, tmp_path / "mine"))
    refused("collect", "--task", "peg_insert", "--out", mine, "--episodes", 9, "--resume", says=("mine", "interface"))
    out = tmp_path / "run"
    train = ["train", "--out", out, "--steps", 50, "--batch", 8]
    assert main([*map(str, train), "--data", str(mine), "--json"]) == 0
    # The folder may have moved, but its content must be what the run began with.
    refused(*train, "--data", data, "--resume", says=("run",))
    assert main([*map(str, train), "--data", str(mine.rename(tmp_path / "moved")), "--resume", "--json"]) == 0


@pytest.mark.long
def test_data_sets_that_cannot_be_mixed(refused: Refusal, demos: Path, tmp_path: Path):
    train = ["train", "--out", tmp_path / "run", "--steps", 50]
    other = other_features(tmp_path / "other")
    refused(*train, "--data", demos, other, says=("other", "beside", "made for panda, this is none"))
    fast = Path(shutil.copytree(demos, tmp_path / "fast"))
    info = json.loads((fast / "meta/info.json").read_text()) | {"fps": 50}
    info["robolearn_interface"]["control_hz"] = 50.0
    (fast / "meta/info.json").write_text(json.dumps(info))
    for file in fast.glob("data/**/*.parquet"):
        table = pq.read_table(file)
        times = pa.array(table["timestamp"].to_numpy() * 0.4, table.schema.field("timestamp").type)
        column = table.schema.get_field_index("timestamp")
        pq.write_table(table.set_column(column, table.schema.field("timestamp"), times), file)
    refused(*train, "--data", demos, fast, says=("fast", "control rate", "got 50.0 Hz, expected 20.0 Hz"))
    for mix, says in (
        ([1], "got 1 numbers, expected one for each of 2"),
        ([1, 2, 3], "got 3 numbers"),
        ([1, -0.5], "got 1, -0.5, expected finite numbers ≥ 0"),
        ([0, 0], "one of them positive"),
        (["nan", 1], "got nan, 1"),
        (["x", 1], "--mix"),
    ):
        refused(*train, "--data", demos, demos, "--mix", *mix, says=("--mix", says))
    refused(*train, "--data", demos, "--mix", 1, says=("--mix", "one data set"))
    refused(*train, "--data", demos, "--data", other, says=("--data", "it twice"))
    refused(*train, "--data", says=("--data", "missing"))
    refused(*train, "--data", demos, demos, "--weights", says=("no sampling weights",))
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_too_few_episodes(refused: Refusal, tmp_path: Path):
    out = tmp_path / "run"
    refused("train", "--data", tmp_path / "none", "--out", out, says=("none", "no such folder"))
    (tmp_path / "empty").mkdir()
    refused("train", "--data", tmp_path / "empty", "--out", out, says=("empty",))
    refused("train", "--data", other_features(tmp_path / "nil", 0), "--out", out, says=("nil",))
    one = other_features(tmp_path / "one", 1)
    refused("train", "--data", one, "--out", out, "--validation", 0.2, says=("got 1 episodes, expected at least 2",))
    assert not out.exists()


@pytest.mark.long
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none_in_a_data_set(refused: Refusal, tmp_path: Path, value: float):
    data = other_features(tmp_path / "data")
    file = next((data / "data").rglob("*.parquet"))
    table = pq.read_table(file)
    column = table.schema.get_field_index("action")
    rows = table["action"].to_pylist()
    rows[11][1] = value
    field = table.schema.field(column)
    pq.write_table(table.set_column(column, field, pa.array(rows, field.type)), file)
    refused("train", "--data", data, "--out", tmp_path / "run", says=("action", "finite"))
    assert not (tmp_path / "run").exists()


def test_a_damaged_data_set(refused: Refusal, tmp_path: Path):
    data = other_features(tmp_path / "data")
    file = next((data / "data").rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:100])
    refused("train", "--data", data, "--out", tmp_path / "run", says=("parquet",))
    (data / "meta" / "info.json").write_text("{")
    refused("train", "--data", data, "--out", tmp_path / "run", says=("info.json",))


# --- folders -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_is_there_is_not_overwritten(refused: Refusal, demos: Path, bc: Path, tmp_path: Path):
    run = Path(shutil.copytree(bc, tmp_path / "run"))
    data = Path(shutil.copytree(demos, tmp_path / "data"))
    refused("train", "--data", demos, "--out", run, "--steps", 50, says=("run", "--resume"))
    small = ["--worlds", 2, "--decisions", 2, "--env-steps", 100, "--sigma-max", 0.1]
    refused("finetune", "--policy", bc, "--out", run, *small, says=("run", "--resume"))
    refused("finetune", "--policy", bc, "--out", run, *small, "--resume", says=("run",))  # a run of `train`
    refused("collect", "--out", data, says=("data", "existing"))
    refused("quickstart", "--out", run, says=("not empty", "expected a new folder"))
    (tmp_path / "file").write_text("mine")
    refused("quickstart", "--out", tmp_path / "file", says=("got a file",))
    refused("train", "--data", demos, "--out", tmp_path / "file", says=("got a file",))
    refused("collect", "--out", tmp_path / "file", says=("got a file",))
    refused("train", "--data", demos, "--out", tmp_path / "new", "--resume", says=("new",))
    assert not (tmp_path / "new").exists()
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.html").write_text("mine")
    refused("evaluate", "--policy", bc, "--out", tmp_path / "report", says=("a folder with a report",))
    refused("evaluate", "--policy", bc, "--out", tmp_path / "file", says=("got a file",))
    refused("evaluate", "--policy", bc, "--out", tmp_path / "file" / "x", says=("file, which is a file",))


@pytest.mark.long
def test_a_run_of_other_settings_is_not_resumed(refused: Refusal, demos: Path, bc: Path, tmp_path: Path):
    run = Path(shutil.copytree(bc, tmp_path / "run"))
    same = ["train", "--data", demos, "--out", run, "--batch", 64, "--resume"]
    refused(*same, "--steps", 99, says=("steps", "99", "100"))
    refused(*same, "--steps", 100, "--seed", 1, says=("seed",))
    result = (run / "result.json").read_text()
    (run / "result.json").unlink()
    refused(*same, "--steps", 101, says=("steps", "101", "100"))  # it has not had its hundred yet
    (run / "result.json").write_text(result)
    state = next((run / "state").rglob("*.safetensors"))
    state.write_bytes(state.read_bytes()[:-8])
    refused(*same, "--steps", 100, says=("training state", "damaged"))


@pytest.mark.long
def test_a_tuned_policy_is_not_resumed_from_another_one(refused: Refusal, bc: Path, policy: Path, tmp_path: Path):
    args = ["finetune", "--out", tmp_path / "rl", "--worlds", 2, "--decisions", 2, "--env-steps", 64,
            "--sigma-max", 0.1, "--json"]  # fmt: skip
    assert main([*map(str, args), "--policy", str(bc)]) == 0
    tensors = load_file(policy / "model.safetensors")
    tensors["normalizer.action_half"] = tensors["normalizer.action_half"] * 0.5
    save_file(tensors, policy / "model.safetensors")
    refused(*args, "--policy", policy, "--resume", says=("sha256",))
    # Nor where the weights are the same and what is done with them is not.
    other = Path(shutil.copytree(bc / "policy", tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    config["settings"]["steps"] = 2
    (other / "config.json").write_text(json.dumps(config))
    refused(*args, "--policy", other, "--resume", says=("settings.steps", "got 2, expected 4"))
    # The same policy from another place is fine.
    moved = shutil.copytree(bc / "policy", tmp_path / "moved")
    assert main([*map(str, args), "--policy", str(moved), "--resume"]) == 0


HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_a_run_folder_in_use(refused: Refusal, demos: Path, bc: Path, tmp_path: Path):
    run = Path(shutil.copytree(bc, tmp_path / "run"))
    args = [sys.executable, "-c", HOLD, str(run / ".lock")]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        same = ["train", "--data", demos, "--out", run, "--batch", 64, "--steps", 100, "--json"]
        refused(*same, "--resume", says=("in use by process",))
        holder.communicate()
    assert main([*map(str, same), "--resume"]) == 0
