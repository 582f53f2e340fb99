"""A folder that is not there: the one beside it with nearly its name is offered."""

from __future__ import annotations

from pathlib import Path

from robolearn.io.paths import no_such_folder


def test_the_nearest_folder_is_offered(tmp_path: Path) -> None:
    (tmp_path / "lift-100").mkdir()
    (tmp_path / "lift").mkdir()
    (tmp_path / "lfit.txt").touch()
    assert no_such_folder(tmp_path / "lfit") == f"there is no such folder (did you mean {tmp_path / 'lift'}?)"


def test_nothing_is_offered_where_nothing_is_near(tmp_path: Path) -> None:
    (tmp_path / "peg").mkdir()
    assert no_such_folder(tmp_path / "cups") == "there is no such folder"
    assert no_such_folder(tmp_path / "not" / "there") == "there is no such folder"
