"""What killed edits leave: found, named, and removed on request; a split is there whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robolearn.cli.main import main
from robolearn.data import Dataset
from robolearn.data.convert import source
from robolearn.data.lerobot import layout
from robolearn.data.writing.uncommitted import leftovers
from robolearn.data.writing.writer import EpisodeWriter
from robolearn.io import atomic

Patch = Callable[[pytest.MonkeyPatch], None]


def killed(words: list[str], patch: Patch) -> None:
    """Run ``robolearn dataset <words>`` in a process of its own, which `patch` lets die on the way."""
    child = os.fork()
    if not child:
        try:
            patch(pytest.MonkeyPatch())
            main(["dataset", *words, "--json"])
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, "it was not killed"


def after(count: int, owner: Any, name: str) -> Patch:
    """Die in call number `count` of ``owner.name``, from 0 on."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        work, left = getattr(owner, name), iter(range(count))

        def dying(*arguments: Any, **more: Any) -> Any:
            if next(left, None) is None:
                os._exit(9)
            return work(*arguments, **more)

        monkeypatch.setattr(owner, name, dying)

    return patch


def mended(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["dataset", "repair", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def split(folder: Path, root: Path) -> list[str]:
    return ["edit", "split", str(root), "--out", str(folder / "train"), str(folder / "val")]


@pytest.fixture
def data(plain: Path, tmp_path: Path) -> Path:
    """A folder with one set, ``lift``."""
    shutil.copytree(plain, tmp_path / "data/lift")
    return tmp_path / "data"


@pytest.mark.long
def test_a_split_that_is_killed_leaves_no_part_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for episodes in range(3):  # in the first part or in the second
        killed(split(data, data / "lift"), after(episodes, EpisodeWriter, "take"))
        assert names(data) == [".train.part", ".val.part", "lift"]
    found = mended(capsys, str(data / "lift"))
    assert found["episodes"] == 3 and [one["cleared"] for one in found["left_over"]] == [False, False]
    assert [Path(one["path"]).name for one in found["left_over"]] == [".train.part", ".val.part"]
    assert "none of 2 parts are there, train, val not" in found["left_over"][0]["what"]
    assert mended(capsys, str(data))["left_over"] == found["left_over"], "of the folder, too"
    assert all(one["cleared"] for one in mended(capsys, str(data), "--clear")["left_over"])
    assert names(data) == ["lift"] and mended(capsys, str(data))["left_over"] == []


@pytest.mark.long
def test_a_split_that_is_killed_between_its_renames_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed(split(data, data / "lift"), after(1, source, "place_folder"))
    assert names(data) == [".train.part", "lift", "val"]
    told = {Path(one["path"]).name: one["what"] for one in mended(capsys, str(data))["left_over"]}
    assert "val of 2 parts is there, train not" in told[".train.part"]
    assert Dataset.open(data / ".train.part/set").episodes + Dataset.open(data / "val").episodes == 3
    # Its end, once more by hand: what is left over is no obstacle.
    shutil.rmtree(data / "val")
    assert main(["dataset", *split(data, data / "lift")]) == 0 and names(data) == ["lift", "train", "val"]


def test_the_next_edit_tells_of_what_others_left(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed(["edit", "drop", str(data / "lift"), "--episodes", "1", "--out", str(data / "less")],
           after(1, EpisodeWriter, "take"))  # fmt: skip
    words = ["edit", "rename-task", str(data / "lift"), "--to", "lift it", "--out", str(data / "other")]
    assert main(["dataset", *words, "--json"]) == 0
    (note,) = json.loads(capsys.readouterr().out.splitlines()[-1])["notes"]
    assert ".less.part is a copy that was to become" in note and f"repair {data} --clear` removes it" in note


def test_what_a_living_process_fills_is_nobodys_leftover(data: Path) -> None:
    with source.new_folder(data / "more") as part:
        assert names(data) == [".more.part", "lift"] and list(leftovers(data)) == []
        (part / "file").write_text("x")
    assert names(data) == ["lift", "more"]


def test_what_a_repair_sets_aside_is_cleared_with_its_folder(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aside = data / "lift" / layout.UNFINISHED_PATH / "beyond-000"
    atomic.write_text(_made(aside) / "file", "four")
    (one,) = mended(capsys, str(data / "lift"), "--clear")["left_over"]
    assert (one["bytes"], one["cleared"]) == (4, True) and not aside.parent.exists()
    assert Dataset.open(data / "lift").episodes == 3


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
