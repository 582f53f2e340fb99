"""The commands end to end: killed by SIGKILL and resumed bit for bit, and quickstart with its report."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from policies.settings import POLICIES, FlowConfig
from policies.storage.checkpoint import load_policy
from robolearn.cli.main import main, parse
from robolearn.cli.quickstart import Clock, Quickstart, Steps
from robolearn.cli.quickstart_report import Bars
from robolearn.cli.registry import ENTRIES
from robolearn.data.reading.reader import Dataset
from robolearn.runs.run import read_metrics

PROGRAM = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
WEIGHTS = Path("policy") / "model.safetensors"


def start(*args: Any) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [*PROGRAM, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


def kill_in_the_middle(out: Path, rows: int, *args: Any) -> None:
    """Start the command and end it with SIGKILL once it has logged `rows` iterations."""
    process = start(*args, "--out", out)
    began = time.monotonic()
    try:
        while len(list(read_metrics(out))) < rows:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() - began < 120
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    finally:
        process.kill()
        process.communicate()
    assert not (out / "result.json").exists()


def same_numbers(a: Path, b: Path) -> bool:
    """Whether the logged metrics are the same, times apart."""

    def rows(path: Path) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if "wall" not in k and k != "iteration_s"} for row in read_metrics(path)]

    return rows(a) == rows(b)


class TwinConfig(FlowConfig):
    """A kind with the settings of another one, as a plug-in may have it."""

    name = "twin"


@pytest.mark.long
def test_a_run_does_not_go_on_with_another_kind_of_the_same_settings(
    demos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(POLICIES, "twin", TwinConfig)
    args = ["train", "--data", demos, "--out", tmp_path / "run", "--steps"]
    assert run(*args, 2, "--policy", "twin") == 0
    assert run(*args, 4, "--resume") == 2
    assert 'configuration \'kind\': got "flow", expected "twin"' in capsys.readouterr().err
    assert load_policy(tmp_path / "run").config.name == "twin"
    config = tmp_path / "run" / "config.json"
    before = json.loads(config.read_text())
    del before["kind"]  # as runs of earlier versions are
    config.write_text(json.dumps(before))
    assert run(*args, 4, "--policy", "twin", "--resume") == 0


@pytest.mark.long
def test_train_goes_on_after_sigkill_bit_for_bit(demos: Path, tmp_path: Path):
    args = ["train", "--data", demos, "--steps", 600, "--batch", 64, "--checkpoint-every", 3, "--json"]
    kill_in_the_middle(tmp_path / "killed", 5, *args)
    killed_at = len(list(read_metrics(tmp_path / "killed")))
    assert 5 <= killed_at < 12
    assert run(*args, "--out", tmp_path / "killed", "--resume") == 0
    assert run(*args, "--out", tmp_path / "whole") == 0
    assert (tmp_path / "killed" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()
    assert same_numbers(tmp_path / "killed", tmp_path / "whole")
    assert json.loads((tmp_path / "killed" / "result.json").read_text())["steps"] == 600


@pytest.mark.long
def test_the_precision_is_stored_and_kept(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    args = ["train", "--data", demos, "--batch", 16, "--steps", 50, "--out", tmp_path / "mixed", "--json"]
    assert run(*args, "--precision", "bfloat16") == 0
    assert json.loads((tmp_path / "mixed" / "config.json").read_text())["imitation"]["precision"] == "bfloat16"
    assert run(*args, "--resume") == 2
    error = capsys.readouterr().err
    assert 'imitation.precision\': got "float32", expected "bfloat16", as when the run began' in error


@pytest.mark.long
def test_a_mix_of_sets_goes_on_after_sigkill_bit_for_bit(demos: Path, tmp_path: Path):
    other = tmp_path / "other"
    assert run("collect", "--task", "lift", "--episodes", 3, "--worlds", 3, "--seed", 9, "--out", other, "--json") == 0
    args = ["train", "--data", demos, other, "--mix", 3, 1, "--steps", 600, "--batch", 32, "--validation", 0.1,
            "--checkpoint-every", 3, "--json"]  # fmt: skip
    kill_in_the_middle(tmp_path / "killed", 4, *args)
    assert run(*args, "--out", tmp_path / "killed", "--resume") == 0
    assert run(*args, "--out", tmp_path / "whole") == 0
    assert (tmp_path / "killed" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()
    assert same_numbers(tmp_path / "killed", tmp_path / "whole")
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["data"] == [str(demos), str(other)] and config["mix"] == [0.75, 0.25]
    again = [word if word != 3 else 2 for word in args]
    assert run(*again, "--out", tmp_path / "whole", "--resume") == 2


@pytest.mark.long
def test_finetune_goes_on_after_sigkill_bit_for_bit(bc: Path, tmp_path: Path):
    args = ["finetune", "--policy", bc, "--task", "lift", "--worlds", 8, "--decisions", 4, "--env-steps", 3000,
            "--minibatch", 16, "--sigma-max", 0.15, "--reward", "dense", "--checkpoint-every", 3, "--json"]  # fmt: skip
    kill_in_the_middle(tmp_path / "killed", 5, *args)
    killed_at = len(list(read_metrics(tmp_path / "killed")))
    assert 5 <= killed_at < 23
    assert run(*args, "--out", tmp_path / "killed", "--resume") == 0
    assert run(*args, "--out", tmp_path / "whole") == 0
    tuned = (tmp_path / "whole" / WEIGHTS).read_bytes()
    assert (tmp_path / "killed" / WEIGHTS).read_bytes() == tuned != (bc / WEIGHTS).read_bytes()
    assert same_numbers(tmp_path / "killed", tmp_path / "whole")
    result = json.loads((tmp_path / "killed" / "result.json").read_text())
    assert result["env_steps"] <= 3000 and result["iterations"] == 23


@pytest.mark.long
def test_a_policy_is_compared_with_itself(bc: Path, capsys: pytest.CaptureFixture):
    assert run("evaluate", "--policy", bc, "--against", bc / "policy", "--episodes", 5, "--worlds", 4, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["success"] == result["against"]["success"]
    assert result["success"]["episodes"] == 5
    assert "verdict" in result and result["wall_s"]["total"] > 0


@pytest.mark.long
def test_starts_of_the_training_are_warned_of(bc: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """The default of evaluate is seed 1000: a fine-tuning with that seed has learned on these very starts."""
    run_folder = tmp_path / "rl"
    shutil.copytree(bc, run_folder)
    evaluating = ["--episodes", 2, "--worlds", 2, "--json"]
    for seed, command, warned in ((1000, "finetune", True), (0, "finetune", False), (1000, "train", False)):
        (run_folder / "config.json").write_text(json.dumps({"command": command, "seed": seed}))
        for path in (run_folder, run_folder / "policy"):
            caplog.clear()
            assert run("evaluate", "--policy", bc, "--against", path, *evaluating) == 0
            said = [record.getMessage() for record in caplog.records if "met these starts" in record.getMessage()]
            assert len(said) == warned and all(str(run_folder) in line and "\n" not in line for line in said)


def test_a_single_success_is_shown_without_an_interval(
    bc: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    from robolearn.eval.evaluation import Evaluation

    whole = Evaluation.to_json
    once = {"mean": 1.25, "low": None, "high": None, "count": 1}
    monkeypatch.setattr(Evaluation, "to_json", lambda self: whole(self) | {"cycle_time_s": once})
    assert run("evaluate", "--policy", bc, "--episodes", 2) == 0
    assert "1.25 " in capsys.readouterr().out


def test_a_resumed_quickstart_has_the_settings_that_it_began_with(tmp_path: Path, capsys: pytest.CaptureFixture):
    out = tmp_path / "quick"
    out.mkdir()
    begun = Quickstart(out=out).plan().settings
    (out / "settings.json").write_text(json.dumps(begun | {"episodes": 8}))
    assert run("quickstart", "--out", out, "--resume", "--json") == 2
    assert "'episodes': got 25, expected 8, as when the run began" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["settings.json"]
    (out / "settings.json").rename(out / "mine.json")
    assert run("quickstart", "--out", out, "--resume", "--json") == 2
    assert "no settings.json" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["mine.json"]


@pytest.mark.long
def test_quickstart_from_demonstrations_to_the_report(tmp_path: Path):
    """With an arm that is not the default: each step has to take it."""
    out = tmp_path / "quick"
    # The calibration of the noise alone may take 6 σ · 16 worlds · 100 steps.
    process = start("quickstart", "--robot", "fr3", "--out", out, "--episodes", 8, "--train-steps", 50,
                    "--eval-episodes", 8, "--worlds", 16, "--minibatch", 64, "--env-steps", 6 * 1600 + 4 * 16 * 80,
                    "--deploy-episodes", 2, "--no-videos", "--json")  # fmt: skip
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 0, stderr
    result = json.loads(stdout.splitlines()[-1])
    for part in ("bc", "rl"):
        assert set(result[part]["success"]) == {"rate", "low", "high", "episodes"}
        assert result[part]["success"]["episodes"] == 8
    assert 0 < sum(v for k, v in result["wall_s"].items() if k != "total") <= result["wall_s"]["total"] + 1e-6
    assert {"simulation", "inference", "update", "calibration", "total"} <= set(result["finetune_wall_s"])
    assert result["env_steps"] <= 6 * 1600 + 4 * 16 * 80 and result["robot"] == "fr3"
    assert result["deploy"] == {"skipped": "no station has a simulated fr3"}
    assert Dataset.open(out / "data").interface.embodiment == "fr3"
    assert json.loads((out / "rl" / "policy" / "config.json").read_text())["interface"]["embodiment"] == "fr3"
    report = (out / "report.html").read_text()
    assert result["report"] == str(out / "report.html")
    for word in ("imitation", "after RL", "robolearn finetune --policy runs/bc", "95%", "not done: no station"):
        assert word in report
    assert "--robot fr3" in report and "robolearn deploy" not in report
    assert "http://" not in report.replace("http://www.w3.org", "") and "<script src" not in report
    assert all((out / folder).is_dir() for folder in ("data", "bc/policy", "rl/policy"))
    # What is there is not begun anew.
    assert run("quickstart", "--out", out, "--json") == 2


def test_a_quickstart_evaluates_while_it_deploys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each of the two waits for the other to have begun, or ended."""
    deploying, judged = threading.Event(), threading.Event()
    found = SimpleNamespace(to_json=lambda: {"success": None})
    step: Any = SimpleNamespace(run=lambda: {"env_steps": 7, "wall_s": {}})

    def deploy_policy(_: Quickstart) -> dict[str, Any]:
        deploying.set()
        return {"success": judged.wait(30)}

    def evaluations(_: Quickstart, clock: Clock, seeing: bool) -> Bars:
        assert not seeing and clock("evaluation after RL", lambda: deploying.wait(30))
        judged.set()
        return Bars(found, found, 0.0, found)  # type: ignore[arg-type]

    monkeypatch.setattr(Quickstart, "plan", lambda _: Steps(step, step, step, None, {}))
    monkeypatch.setattr(Quickstart, "deploy_policy", deploy_policy)
    monkeypatch.setattr(Quickstart, "evaluations", evaluations)
    monkeypatch.setattr("robolearn.cli.quickstart.compile_ahead", lambda _: None)
    monkeypatch.setattr("robolearn.cli.quickstart.videos", lambda *_: ["a film"])
    monkeypatch.setattr("robolearn.cli.quickstart.write", lambda q, *_: q.out / "report.html")
    result = Quickstart(out=tmp_path / "quick", json=True).run()
    assert result["deploy"] == {"success": True} and result["report"] == str(tmp_path / "quick" / "report.html")
    wall_s = result["wall_s"]
    assert {"videos", "evaluation after RL", "rest of the deployment"} <= set(wall_s)
    assert sum(seconds for name, seconds in wall_s.items() if name != "total") <= wall_s["total"]


def test_quickstart_deploys_what_it_fine_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The process that it starts, without one: `deploy` itself is tested in `test_deploy.py`."""
    started: list[list[str]] = []
    done = subprocess.CompletedProcess([], 0, 'progress\n{"success": 1}\n', "")

    def ended(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append(command)
        return done

    monkeypatch.setattr(subprocess, "run", ended)
    quickstart = Quickstart(out=tmp_path, seed=3, deploy_episodes=2)
    assert quickstart.deploy_policy() == {"success": 1}
    (command,) = started
    name = command.index("deploy")
    assert "robolearn.cli.main" in command[name - 1]
    entry = next(entry for entry in ENTRIES if entry.name == "deploy")
    flags: Any = parse(entry, command[name + 1 :])
    assert (flags.policy, flags.task, flags.episodes, flags.seed) == (tmp_path / "rl", "lift", 2, 1003)
    assert flags.robot == "sim" and flags.json

    done = subprocess.CompletedProcess([], 1, "", "robolearn: error: the safety node was killed\n")
    assert quickstart.deploy_policy() == {"error": "the safety node was killed"}
    assert "the deployment failed: the safety node was killed" in caplog.text
