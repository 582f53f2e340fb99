"""What a command writes is checked before it works: a place that cannot be written costs nobody an hour."""

from __future__ import annotations

import dataclasses
import json
import shutil
import types
import typing
from pathlib import Path

import pytest

from robolearn.cli.main import main
from robolearn.cli.registry import ENTRIES, Entry
from robolearn.core import BadInput
from robolearn.io.paths import check_writable
from robolearn.runs.command import OUTPUTS

NOWHERE = "/proc/robolearn/x"  # nobody may make a folder there, not even root
INPUTS = {
    "policy",
    "against",
    "teacher",
    "data",
    "demos",
    "folder",
    "lerobot_python",
    "certs",
    "path",
    "start",
    "runs",
    "guide",
    "world_python",
    "checkout_python",
    "trial",
    "urdf",
    "mjcf",
    "log",
    "before",
    "paired_with",
    "back_policy",
    "back_data",
    "launch",
}
INPUTS |= {"what", "labelled"}  # of hub push, of dataset label-actions

COMMANDS = [
    ("collect", "--out", NOWHERE),
    ("train", "--data", "none", "--out", NOWHERE),
    ("finetune", "--policy", "none", "--out", NOWHERE),
    ("distill", "--teacher", "none", "--out", NOWHERE),
    ("evaluate", "--policy", "none", "--out", NOWHERE),
    ("quickstart", "--out", NOWHERE),
    ("record", "--out", NOWHERE),
    ("record", "--out", "data", "--logs", NOWHERE),
    ("deploy", "--policy", "none", "--logs", NOWHERE),
    ("hil", "run", "--policy", "none", "--out", NOWHERE),
    ("hil", "certs", "--out", NOWHERE),
    ("calibrate", "--board", f"{NOWHERE}.pdf"),
    ("identify", "--out", NOWHERE),
    ("permissions", "--robot", "fr3", "--out", NOWHERE),
    ("dataset", "quality", "none", "--out", f"{NOWHERE}.html"),
    ("dataset", "view", "none", "--save", f"{NOWHERE}.rrd"),
    ("dataset", "edit", "drop", "none", "--episodes", "0", "--out", NOWHERE),
    ("dataset", "edit", "split", "none", "--out", "a", NOWHERE),
    ("dataset", "export", "none", "--format", "mcap", "--out", NOWHERE),
    ("benchmark", "rl", "--out", NOWHERE),
]


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:-1]))
def test_a_place_that_cannot_be_written_is_refused_first(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(list(command)) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and "Errno" not in err
    assert f"{NOWHERE}" in err and "cannot be written" in err
    assert not list(tmp_path.iterdir())


def _is_path(hint: object) -> bool:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) in (tuple, typing.Annotated):
        return any(_is_path(part) for part in typing.get_args(hint))
    return hint is Path


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_path_of_a_command_is_read_or_checked(entry: Entry) -> None:
    kind = entry.load()
    hints = typing.get_type_hints(kind)
    paths = {field.name for field in dataclasses.fields(kind) if _is_path(hints[field.name])}
    assert paths <= INPUTS | set(OUTPUTS)


def test_names_and_files_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    check_writable(tmp_path / "a" / "b" / "c", "--out")
    check_writable(tmp_path / "file", "--out")  # whether a file will do is for the command to say
    with pytest.raises(BadInput, match="file, which is a file"):
        check_writable(tmp_path / "file" / "x", "--out")
    with pytest.raises(BadInput, match="file name too long"):
        check_writable(tmp_path / ("x" * 300) / "y", "--out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.long
def test_a_result_is_shown_although_its_report_cannot_be_written(
    bc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The folder goes while the episodes run."""
    import robolearn.cli.evaluate as module

    out, whole = tmp_path / "gone" / "verdict", module.evaluate_policy

    def and_then_a_file(*args: object) -> object:
        done = whole(*args)
        shutil.rmtree(tmp_path / "gone", ignore_errors=True)
        (tmp_path / "gone").write_text("a file")
        return done

    monkeypatch.setattr(module, "evaluate_policy", and_then_a_file)
    monkeypatch.setattr("robolearn.eval.video.record_episodes", lambda *args, **more: [])
    args = ["evaluate", "--policy", str(bc), "--episodes", "2", "--worlds", "2", "--out", str(out)]
    assert main([*args, "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["success"]["episodes"] == 2 and result["report"] is None
    assert "could not be written" in result["report_error"]
    (tmp_path / "gone").unlink()
    assert main(args) == 1
    out_text = capsys.readouterr().out
    assert "2 episodes" in out_text and "could not be written" in out_text and "None" not in out_text
