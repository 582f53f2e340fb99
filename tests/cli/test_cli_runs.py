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
    assert "there is no such folder" in capsys.readouterr().err


def two_runs(folder: Path) -> tuple[Path, Path]:
    for name, lr, rate in (("a", 0.001, 0.5), ("b", 0.002, 0.75)):
        with Run.create(folder / name, {"lr": lr, "net": {"width": 8}, "sha256": name}) as run:
            run.log(0, {"gradient_steps": 50.0, "loss": 0.5})
            run.log(1, {"gradient_steps": 60.0, "loss": lr})
            success = {"rate": rate, "low": 0.1, "high": 0.9, "episodes": 8}
            run.finish({"run": str(folder / name), "evaluation": {"success": success}})
    return folder / "a", folder / "b"


def test_runs_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    a, b = two_runs(tmp_path)
    assert main(["runs", "compare", str(a), str(b), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["settings"] == {"lr": [0.001, 0.002]} and result["same_settings"] == 1
    assert result["metrics"]["loss"] == [0.001, 0.002]
    assert [success["rate"] for success in result["results"]["evaluation.success"]] == [0.5, 0.75]
    assert main(["runs", "compare", str(a), str(b)]) == 0
    said = capsys.readouterr().out
    assert "75.0% (10.0–90.0, 8 episodes)" in said and "width" not in said
    assert main(["runs", "compare", str(a), str(b), "--all"]) == 0
    assert "net.width" in capsys.readouterr().out
    assert main(["runs", "compare", str(a)]) == 2
    assert main(["runs", "compare", str(a), str(tmp_path)]) == 2
    assert "no run folder" in capsys.readouterr().err


def test_runs_are_removed_only_when_that_is_said_and_none_that_is_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    a, b = two_runs(tmp_path)
    (tmp_path / "mine").mkdir()
    assert main(["runs", "rm", str(a), str(b)]) == 0
    assert "would be removed" in capsys.readouterr().out and a.is_dir() and b.is_dir()
    assert main(["runs", "rm", str(a), str(tmp_path / "mine"), "--yes"]) == 2
    assert a.is_dir() and (tmp_path / "mine").is_dir()
    with Run.create(tmp_path / "now", {}):
        assert main(["runs", "rm", str(a), str(tmp_path / "now"), "--yes"]) == 2
        assert "a process works in" in capsys.readouterr().err and a.is_dir()
    (tmp_path / "link").symlink_to(b)
    assert main(["runs", "rm", str(tmp_path / "link"), "--yes"]) == 2 and b.is_dir()
    assert main(["runs", "rm", str(a), str(b), "--yes", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["removed"] and all(run["bytes"] > 100 for run in result["runs"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "mine", "now"]
