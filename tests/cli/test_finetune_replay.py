"""`finetune` by algorithms that learn from stored experience: the same command, worlds, resumption and words."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from safetensors.numpy import load_file

from robolearn.cli.main import main
from robolearn.core import Interface, RewardWithheld, Score, Window
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.replay.recorded import demonstrated
from robolearn.runs import Progress, read_metrics
from sim.registry import WorldConfig

pytestmark = pytest.mark.long


def run(*args: object) -> int:
    return main([str(arg) for arg in args])


SMALL = ("--worlds", 4, "--env-steps", 800, "--batch", 16, "--critics", 2, "--width", 16, "--eval-episodes", 4,
         "--checkpoint-every", 1)  # fmt: skip


@pytest.mark.parametrize("algo", ["proposals", "rlpd"])
def test_it_learns_from_worlds_and_demonstrations(
    bc: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture, algo: str
) -> None:
    out = tmp_path / "rl"
    args = ("finetune", "--policy", bc, "--algo", algo, "--data", demos, "--out", out, *SMALL)
    assert run(*args, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["algorithm"] == algo and 512 <= result["env_steps"] <= 800 and result["calibration"] is None
    rows = list(read_metrics(out))
    assert rows[-1]["updates"] > 50 and rows[-1]["env_steps"] == result["env_steps"]
    config = json.loads((out / "config.json").read_text())
    assert config["settings"]["num_envs"] == 4 and config["demonstrations"]["frames"] > 100
    # The exported policy is what any command takes.
    assert run("evaluate", "--policy", out, "--episodes", 4, "--seed", result["evaluation"]["seed"], "--json") == 0
    assert json.loads(capsys.readouterr().out)["success"] == result["evaluation"]["success"]
    assert run(*args, "--resume") == 0
    assert "of 800 control steps" in capsys.readouterr().out


def test_a_data_set_alone_is_learned_from_and_then_the_worlds(
    bc: Path, demos: Path, tmp_path: Path, capsys, caplog, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "rl"
    args = ("finetune", "--policy", bc, "--algo", "proposals", "--data", demos, "--out", out, *SMALL, "--updates", 60,
            "--eval-episodes", 0, "--json")  # fmt: skip
    with monkeypatch.context() as nothing:
        nothing.setattr("sim.registry.WorldConfig.build", lambda *_: pytest.fail("no world is needed"))
        assert run(*args, "--env-steps", 0) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["env_steps"] == 0 and result["updates_offline"] == 60 and result["training_success"] is None
    assert "8 episodes as they were recorded" in caplog.text
    labels = []

    class Noted(Progress):
        def __init__(self, label: str, *rest: Any, **more: Any) -> None:
            labels.append(label)
            super().__init__(label, *rest, **more)

    monkeypatch.setattr("robolearn.cli.finetune.Progress", Noted)
    assert run(*args, "--env-steps", 600, "--resume") == 0
    assert labels == ["lift with exploration noise"]
    result, rows = json.loads(capsys.readouterr().out), list(read_metrics(out))
    assert [row["updates"] for row in rows[:1]] == [60] and rows[-1]["env_steps"] == result["env_steps"] >= 512
    assert rows[-1]["updates"] > 60
    # Its critics choose among the chunks of the policy that it began with.
    assert run("evaluate", "--policy", bc, "--guide", out, "--guide-samples", 3, "--episodes", 4, "--json") == 0
    guided = json.loads(capsys.readouterr().out)["guide"]
    assert guided["samples"] == 3 and 0 < guided["departures"] < 1
    assert all(guided["latency_ms"][name][p] > 0 for name in ("policy", "guided") for p in ("p50", "p99"))
    assert run("evaluate", "--policy", bc, "--guide", out, "--goals", demos) == 2
    assert "--guide: got with --goals" in capsys.readouterr().err


def test_it_goes_on_after_sigkill_bit_for_bit(bc: Path, demos: Path, tmp_path: Path) -> None:
    args = ["finetune", "--policy", bc, "--algo", "proposals", "--data", demos, *SMALL, "--env-steps", 2000]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(*args, "--out", whole) == 0
    words = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
    process = subprocess.Popen([*words, *map(str, args), "--out", str(killed)])
    until = time.monotonic() + 120
    while len(list(read_metrics(killed)) if (killed / "metrics.jsonl").exists() else []) < 2:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert run(*args, "--out", killed, "--resume") == 0
    a, b = (load_file(path / "policy" / "model.safetensors") for path in (whole, killed))
    assert a.keys() == b.keys() and all((a[key] == b[key]).all() for key in a)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--algo", "reinflow", "--data", "{demos}"), ("--data", "off-policy", "proposals")),
        (("--algo", "nothing"), ("--algo", "reinflow", "rlpd")),
        (("--algo", "rlpd", "--worlds", "0"), ("--worlds", "at least 1")),
        (("--algo", "rlpd", "--env-steps", "100"), ("--env-steps", "16 worlds x")),
        (("--algo", "rlpd", "--proposals", "3"), ("--proposals",)),
        (("--algo", "rlpd", "--env-steps", "0", "--data", "{demos}"), ("--env-steps", "--updates")),
        (("--algo", "rlpd", "--env-steps", "0", "--updates", "9"), ("--updates", "without --data")),
        (("--algo", "h2o"), ("--data", "none for --algo h2o", "of the real arm")),
        (("--algo", "reinflow", "--env-steps", "0"), ("--env-steps",)),
        (("--algo", "reinflow", "--updates", "9"), ("--updates",)),
    ],
)
def test_what_does_not_fit_is_refused(
    bc: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    said = [flag.format(demos=demos) for flag in flags]
    assert run("finetune", "--policy", bc, "--out", tmp_path / "rl", *said) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert all(word in error for word in words), error
    assert not (tmp_path / "rl").exists()


class Moody:
    """Progress by a clock, of every other episode; a line of `calls` is a score that it made."""

    calls: ClassVar[list[int]] = []
    begun: ClassVar[list[Sequence[Window]]] = []

    def __init__(self, interface: Interface) -> None:
        pass

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        found = []
        for window in windows:
            n = len(window)
            if int(1e6 * abs(window.observation["proprio"][0]).sum()) % 2:
                raise RewardWithheld("not in the mood")
            self.calls.append(n)
            progress = np.linspace(0, 1, n, dtype=np.float32)
            found.append(Score(progress, progress, np.zeros(n, bool), np.ones(n, np.float32)))
        return found

    def strange(self, windows: Sequence[Window]) -> list[str]:
        self.begun.append(windows)
        return ["front: it moved", "wrist: it moved, too"]


def test_withheld_rewards_are_counted_and_scores_are_kept_over_a_kill(
    bc: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """And where its worlds look strange to the model, that is said in one line, of the starts of all of them."""
    monkeypatch.setitem(sys.modules, "moody", SimpleNamespace(Moody=Moody))  # type: ignore[arg-type]
    monkeypatch.setattr("robolearn.rewards.asking.IN_A_ROW", 10**6)
    out = tmp_path / "rl"
    args = ("finetune", "--policy", bc, "--algo", "rlpd", "--data", demos, "--out", out, *SMALL, "--eval-episodes", 0,
            "--reward", "moody:Moody", "--audit", "off")  # fmt: skip
    assert run(*args, "--json") == 0
    assert caplog.messages.count("worlds of lift: front: it moved; wrist: it moved, too") == 1
    ((first, *others),) = Moody.begun
    with closing(WorldConfig("lift").build(4)) as env:
        start = env.reset(seed=0)[0]["proprio"]
    shown = [window.observation["proprio"] for window in (first, *others)]
    assert np.array_equal(np.concatenate(shown), start) and len(first) == 1
    result = json.loads(capsys.readouterr().out)
    rows = list(read_metrics(out))
    assert result["withheld"] == sum(row["withheld"] for row in rows) > 0
    assert result["withheld"] < sum(row["episodes"] for row in rows) and (out / "log" / "scores").exists()
    shutil.rmtree(out / "state")  # as if it had been killed before it was saved for the first time
    (out / "result.json").unlink()
    Moody.calls.clear()
    before = ["--reward-model" if word == "--reward" else word for word in args]  # as the flag was called
    assert run(*before, "--resume") == 0
    assert f"withheld     {result['withheld']} episodes have no reward" in capsys.readouterr().out
    assert not Moody.calls, "everything that was scored is in the log"


def test_failures_are_no_demonstrations_and_what_says_nothing_can_be_mended(
    bc: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """By `finetune` and by `hil run`; then by the command that the message gives."""
    failed, silent, mended, out = (tmp_path / name for name in ("fail", "silent", "mended", "out"))
    assert run("collect", "--task", "lift", "--quality", "missed", "--episodes", 3, "--out", failed, "--json") == 0
    found = Dataset.open(demos)
    with EpisodeWriter(silent, found.interface, outcomes=False) as writer:
        writer.write_all(replace(found.episode(i), reward=np.zeros_like(found.episode(i).reward), success=False,
                                 terminated=False, truncated=True) for i in range(3))  # fmt: skip
    finetune = ("finetune", "--policy", bc, "--algo", "proposals", "--out", out, *SMALL)
    teach = ("hil", "run", "--policy", bc, "--task", "lift", "--operator", "scripted", "--out", out)
    for data, words in ((failed, "3 episodes, all failures"), (silent, "neither rewards")):
        for args in ((*finetune, "--data", data), (*teach, "--demos", data)):
            capsys.readouterr()
            assert run(*args) == 2
            (line,) = capsys.readouterr().err.strip().splitlines()
            assert words in line and not out.exists()
    assert "`robolearn dataset import SET --outcome success --out OTHER`" in line
    assert run("dataset", "import", silent, "--outcome", "success", "--out", mended, "--json") == 0
    shown = [episode for _, episode in demonstrated([Dataset.open(mended)], "--data")]
    assert [float(episode.reward.sum()) for episode in shown] == [1.0] * 3 and all(e.terminated for e in shown)
    assert run(*finetune, "--data", mended, failed, "--json") == 0
