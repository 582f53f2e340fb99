"""The shared loop: exact resume after Ctrl-C and SIGKILL, policy exported, progress told."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from robolearn.core import BadInput
from robolearn.runs import Progress, Run, inspect_run
from robolearn.runs.checkpoint import load_latest_state, pack_optimizer, prefixed, unpack_optimizer, unprefixed
from robolearn.runs.loop import run_loop
from robolearn.runs.run import read_metrics


class Walk:
    """A small trainer with weights, an optimiser and randomness of its own."""

    def __init__(self, iterations: int = 12, stop_at: int | None = None, signal_at: int | None = None) -> None:
        self.iterations = iterations
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 3)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.05)
        self.generator = torch.Generator().manual_seed(1)
        self.stop_at, self.signal_at = stop_at, signal_at

    def iterate(self, i: int) -> dict[str, float]:
        if i == self.stop_at:
            raise KeyboardInterrupt
        if i == self.signal_at:
            os.kill(os.getpid(), signal.SIGINT)
        loss = self.model(torch.randn(4, 3, generator=self.generator)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.item()}

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        tensors, optimizer = pack_optimizer(self.optimizer)
        return {
            **prefixed("model", self.model.state_dict()),
            **prefixed("optimizer", tensors),
            "noise": self.generator.get_state(),
        }, {"optimizer": optimizer}

    def load_state(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        self.model.load_state_dict(unprefixed("model", tensors))
        unpack_optimizer(self.optimizer, unprefixed("optimizer", tensors), meta["optimizer"])
        self.generator.set_state(tensors["noise"])

    def export(self, path: Path) -> None:
        (path / "weights.json").write_text(json.dumps(self.model.weight.tolist()))


def exported(path: Path) -> list:
    return json.loads((path / "policy" / "weights.json").read_text())


def losses(path: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in read_metrics(path)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run that the others must equal."""
    path = tmp_path_factory.mktemp("whole")
    with Run.create(path, {}) as run:
        result = run_loop(run, Walk(), checkpoint_every=5)
    assert result["iterations"] == 12 and result["resumed_at"] == 0
    return path


def test_every_iteration_is_logged_with_its_time(whole: Path) -> None:
    rows = list(read_metrics(whole))
    assert [row["step"] for row in rows] == list(range(12))
    assert all(row["wall_s"] >= row["iteration_s"] > 0 for row in rows)


def test_an_interrupt_inside_an_iteration_leaves_the_last_state_and_resume_is_exact(
    tmp_path: Path, whole: Path
) -> None:
    with Run.create(tmp_path, {}) as run, pytest.raises(KeyboardInterrupt):
        run_loop(run, Walk(stop_at=8), checkpoint_every=5)
    found = load_latest_state(tmp_path / "state")
    assert found is not None and found[1]["iteration"] == 5
    assert len(exported(tmp_path)) == 3
    with Run.create(tmp_path, {}, resume=True) as run:
        assert run_loop(run, Walk(), checkpoint_every=5)["resumed_at"] == 5
    assert exported(tmp_path) == exported(whole)
    assert losses(tmp_path) == losses(whole)


def test_ctrl_c_lets_the_iteration_end_and_saves_it(tmp_path: Path, whole: Path) -> None:
    with Run.create(tmp_path, {}) as run, pytest.raises(KeyboardInterrupt):
        run_loop(run, Walk(signal_at=6), checkpoint_every=5)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with Run.create(tmp_path, {}, resume=True) as run:
        assert run_loop(run, Walk(), checkpoint_every=5)["resumed_at"] == 7
    assert exported(tmp_path) == exported(whole)


def test_what_runs_out_of_time_is_saved_stays_ended_and_goes_on_with_more(tmp_path: Path, whole: Path) -> None:
    least = 1e-9  # minutes: over before the first iteration ends, and no iteration is cut short
    with Run.create(tmp_path, {}) as run:
        done = run_loop(run, Walk(), checkpoint_every=5, minutes=least)
    assert done["iterations"] == 1 and done["out_of_time"] and len(losses(tmp_path)) == 1
    found = load_latest_state(tmp_path / "state")
    assert found is not None
    with Run.create(tmp_path, {}, resume=True) as run:
        again = run_loop(run, Walk(), checkpoint_every=5, minutes=found[1]["wall_s"] / 60)
    assert again["iterations"] == again["resumed_at"] == 1 and again["out_of_time"], "time counts over all resumptions"
    with Run.create(tmp_path, {}, resume=True) as run:
        done = run_loop(run, Walk(), checkpoint_every=5, minutes=60)
    assert done["resumed_at"] == 1 and not done["out_of_time"]
    assert exported(tmp_path) == exported(whole)
    assert losses(tmp_path) == losses(whole)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from test_loop import Walk
from robolearn.runs import Run
from robolearn.runs.loop import run_loop

class Killed(Walk):
    exports = 0
    def iterate(self, i):
        if i == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().iterate(i)
    def export(self, path):
        self.exports += 1
        if sys.argv[3] == "export" and self.exports == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        super().export(path)

with Run.create(sys.argv[1], {}) as run:
    run_loop(run, Killed(), checkpoint_every=4)
"""


def test_an_interrupt_while_the_last_state_is_saved_stops_what_would_follow(tmp_path: Path) -> None:
    class Late(Walk):
        def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
            os.kill(os.getpid(), signal.SIGINT)
            return super().state()

    with Run.create(tmp_path, {}) as run, pytest.raises(KeyboardInterrupt):
        run_loop(run, Late(3), checkpoint_every=5)
    with Run.create(tmp_path, {}, resume=True) as run:
        assert run_loop(run, Walk(3), checkpoint_every=5)["resumed_at"] == 3


@pytest.mark.long
@pytest.mark.parametrize("where", ["iterate", "export"])
def test_sigkill_and_resume_equal_an_uninterrupted_run(tmp_path: Path, whole: Path, where: str) -> None:
    here = str(Path(__file__).parent)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), here, where], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert inspect_run(tmp_path).status == "resumable"
    with Run.create(tmp_path, {}, resume=True) as run:
        assert run_loop(run, Walk(), checkpoint_every=4)["resumed_at"] == 8
    assert exported(tmp_path) == exported(whole)
    assert losses(tmp_path) == losses(whole)


def test_resuming_a_finished_run_writes_a_missing_policy_and_a_longer_total_goes_on(tmp_path: Path) -> None:
    with Run.create(tmp_path, {}) as run:
        run_loop(run, Walk(3), checkpoint_every=5)
    before = exported(tmp_path)
    (tmp_path / "policy").rename(tmp_path / ".policy.old")  # as a kill between two renames leaves it
    with Run.create(tmp_path, {}, resume=True) as run:
        assert run_loop(run, Walk(3), checkpoint_every=5)["resumed_at"] == 3
        assert exported(tmp_path) == before
        run_loop(run, Walk(4), checkpoint_every=5)
        with pytest.raises(BadInput, match="total iterations: got 2"):
            run_loop(run, Walk(2), checkpoint_every=5)


def test_the_state_of_another_model_is_refused(tmp_path: Path) -> None:
    with Run.create(tmp_path, {}) as run:
        run_loop(run, Walk(1), checkpoint_every=1)
        other = Walk(2)
        other.model = torch.nn.Linear(4, 3)
        with pytest.raises(BadInput, match="does not fit"):
            run_loop(run, other, checkpoint_every=1)


def test_progress_is_told_and_logged_without_a_terminal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "robolearn"),
        Run.create(tmp_path, {}) as run,
        Progress("walking", 3, quiet=True, unit="iterations", show=("loss",), every_s=0.0) as progress,
    ):
        run_loop(run, Walk(3), checkpoint_every=5, progress=progress)
    lines = [record.message for record in caplog.records if record.message.startswith("walking")]
    assert len(lines) == 3 and lines[-1].startswith("walking: 3 of 3 iterations, 0 s, loss 0.")


def test_progress_stays_silent_when_the_work_is_short(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "robolearn"), Progress("walking", 2, quiet=True) as progress:
        progress(1)
        progress(2, {"loss": 0.5})
    assert not caplog.records


def test_log_lines_estimate_the_rest_and_say_the_end_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed at 400 of 1000: 100 steps in 20 s leave 500 for 100 s. Calls after the end are not new ends."""
    clock = [0.0]
    monkeypatch.setattr("robolearn.runs.progress.time.monotonic", lambda: clock[0])
    with caplog.at_level(logging.INFO, "robolearn"), Progress("walking", 1000, unit="steps", quiet=True) as progress:
        for clock[0], done in ((1.0, 400), (21.0, 500), (25.0, 520), (121.0, 1000), (122.0, 1000), (140.0, 1000)):
            progress(done)
    said = [record.message for record in caplog.records]
    assert said == ["walking: 500 of 1000 steps, 21 s, 100 s left", "walking: 1000 of 1000 steps, 121 s"]


def test_the_bar_draws_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress("walking", 2) as progress:
        progress(2, {"loss": 0.5, "success": 1})
    out, err = capsys.readouterr()
    assert not out and "walking" in err and "2/2" in err and "loss 0.5" in err
