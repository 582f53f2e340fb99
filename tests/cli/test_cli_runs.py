"""``robolearn runs`` from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robolearn.cli.main import main
from robolearn.runs import Run


def test_it_tells_finished_resumable_and_in_use(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with Run.create(tmp_path / "bc", {}) as run:
        run.log(41, {"wall_s": 90.0})
        run.finish({})
    Run.create(tmp_path / "rl", {}).close()
    with Run.create(tmp_path / "now", {}):
        assert main(["runs", str(tmp_path), "--json"]) == 0
        listed = {Path(run["path"]).name: run for run in json.loads(capsys.readouterr().out)["runs"]}
        assert {name: run["status"] for name, run in listed.items()} == {
            "bc": "finished",
            "rl": "resumable",
            "now": "in use",
        }
        assert listed["bc"]["step"] == 41 and listed["bc"]["wall_s"] == 90.0 and listed["rl"]["step"] is None
        assert main(["runs", str(tmp_path)]) == 0
        out = capsys.readouterr().out
        assert "1.5 min" in out and "in use" in out and str(tmp_path / "bc") in out


def test_no_runs_yet_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == "no runs in runs\n"


def test_a_folder_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["runs", str(tmp_path / "nowhere")]) == 2
    assert "expected a folder" in capsys.readouterr().err
