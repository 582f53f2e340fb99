"""Metrics in other people's places: doubles of their modules, which take only what the originals take."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from robolearn.core import BadInput
from robolearn.runs import Run, read_metrics
from robolearn.runs.trackers import check_tracker, open_tracker


class Double(ModuleType):
    """A module that writes down what it is told."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.said: list[tuple[Any, ...]] = []
        self.fails = False

    def init(self, *, project: str, name: str, config: dict, dir: str = "", id: str = "", resume: str = "") -> None:
        self.said.append(("init", project, name, config, id))

    def log(self, data: dict, step: int) -> None:
        if self.fails:
            raise ConnectionError("the network is gone")
        self.said.append((step, data))

    def finish(self) -> None:
        self.said.append(("end",))

    def set_experiment(self, name: str) -> None:
        self.said.append(("experiment", name))

    def start_run(self, *, run_name: str) -> None:
        self.said.append(("init", run_name))

    def log_params(self, params: dict[str, str]) -> None:
        self.said.append(("params", params))

    log_metrics = log
    end_run = finish


@pytest.fixture
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Double:
    double = Double(request.param)
    monkeypatch.setitem(sys.modules, request.param, double)
    return double


@pytest.mark.parametrize("tracker", ["wandb", "trackio", "mlflow"], indirect=True)
def test_a_tracker_gets_the_numbers_over_what_was_paid_for(tracker: Double, tmp_path: Path) -> None:
    for step, resume in ((0, False), (1, True)):
        with Run.create(tmp_path / "bc", {"lr": 0.1, "net": {"width": 8}}, resume=resume) as run:
            run.track(tracker.__name__)
            run.log(step, {"gradient_steps": 50.0 * (step + 1), "loss": 0.5, "none": float("nan"), "word": "x"})
    rows = [said for said in tracker.said if isinstance(said[0], int)]
    assert rows == [(50, {"gradient_steps": 50.0, "loss": 0.5}), (100, {"gradient_steps": 100.0, "loss": 0.5})]
    begun = [said for said in tracker.said if said[0] == "init"]
    assert len(begun) == 2 and begun[0] == begun[1] and "bc" in begun[0]  # wandb: one run there, too
    assert [said for said in tracker.said if said == ("end",)] == [("end",)] * 2
    if tracker.__name__ == "mlflow":
        assert ("params", {"lr": "0.1", "net.width": "8"}) in tracker.said


@pytest.mark.parametrize("tracker", ["wandb"], indirect=True)
def test_a_tracker_that_fails_does_not_end_the_training(
    tracker: Double, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Run.create(tmp_path / "bc", {}) as run:
        run.track("wandb")
        run.log(0, {"loss": 1.0})
        tracker.fails = True
        run.log(1, {"loss": 0.5})
        tracker.fails = False
        run.log(2, {"loss": 0.25})
    assert [row["loss"] for row in read_metrics(tmp_path / "bc")] == [1.0, 0.5, 0.25]
    assert [said for said in tracker.said if isinstance(said[0], int)] == [(0, {"loss": 1.0})]
    assert caplog.text.count("takes no more metrics (the network is gone)") == 1


@pytest.mark.parametrize("tracker", ["trackio"], indirect=True)
def test_what_is_not_there_is_refused(tracker: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_tracker("none")
    assert open_tracker("none", tmp_path, {}) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name != "trackio" else tracker.__spec__)
    with pytest.raises(
        BadInput, match=r"got wandb, which is not installed; available: none, trackio.*pip install wandb"
    ):
        check_tracker("wandb")
    with pytest.raises(BadInput, match=r"got wandbb; available: none, wandb.*did you mean wandb"):
        check_tracker("wandbb")

    def refuse(**_: Any) -> None:
        raise PermissionError("no account")

    tracker.init = refuse  # type: ignore[method-assign]
    with pytest.raises(BadInput, match="--log trackio could not begin: no account"):
        open_tracker("trackio", tmp_path, {})
