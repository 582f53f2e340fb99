"""The folder of a command's logs: kept after an error of any sort, removed where nothing went wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from robolearn.core import RobolearnError
from robolearn.deploy import excited
from robolearn.deploy.processes import log_folder
from robots.stations import load_contract


@pytest.mark.parametrize("error", [RobolearnError("a node died"), ZeroDivisionError("a crash"), OSError(28, "full")])
def test_an_error_of_any_sort_keeps_the_logs_and_names_them(error: Exception, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(type(error)) as raised, log_folder("deploy", None) as logs:
        raise error
    assert logs.path.is_dir() and logs.path.name.startswith("robolearn-deploy-")
    assert raised.value.__notes__ == [f"logs: {logs.path}"]


def test_logs_of_what_went_well_or_was_stopped_are_removed(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with log_folder("deploy", None):
        assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(KeyboardInterrupt), log_folder("deploy", None):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_logs_that_were_asked_for_or_are_wanted_in_the_end_stay(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with log_folder("deploy", None) as logs:
        logs.kept = True
    assert logs.path.is_dir()
    with log_folder("deploy", logs.path) as asked:
        pass
    assert asked.path == logs.path and asked.path.is_dir() and asked.kept


def test_a_crash_on_the_way_to_a_motion_keeps_its_logs(monkeypatch, tmp_path: Path) -> None:
    def crash(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a crash")

    monkeypatch.setenv("ROS_DOMAIN_ID", "17")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(excited, "arm_programs", crash)
    contract = load_contract("sim")
    station = excited.Station(contract=contract, robot="sim", realtime_priority=0, enclaves=False, seed=0)
    with pytest.raises(ZeroDivisionError) as raised:
        excited.record_motion(station, crash, crash, domain=None, logs=None)  # pyright: ignore[reportArgumentType]
    (logs,) = tmp_path.glob("robolearn-identify-*")
    assert raised.value.__notes__ == [f"logs: {logs}"]
