"""Who succeeded where nobody said so: unknown is not failed, through every format, every edit and the measures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from robolearn.cli.main import main
from robolearn.core import BadInput
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert.edit import keep, merge
from robolearn.data.convert.formats import ReadOptions, guess, reader, writer
from robolearn.data.convert.source import EpisodeSource, open_numbers, write_dataset
from robolearn.data.quality import Demonstrations, assess
from robolearn.data.validate import validate
from robolearn.data.writing.repair import repair

Copy = Callable[[Path], Path]
ROUND = {"lerobot-v2.1": "v21", "robomimic": "demos.hdf5", "npz": "npz"}


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


@pytest.fixture
def silent(plain: Path, copy: Copy) -> Path:
    """A set as most of LeRobot's are: it has no feature next.success, no reward, and no interface of ours."""
    root = copy(plain)
    info = json.loads((root / "meta/info.json").read_text())
    del info["robolearn_interface"]
    for name in ("next.success", "next.reward", "next.terminated", "next.truncated"):
        del info["features"][name]
        for path in root.glob("data/*/*.parquet"):
            pq.write_table(pq.read_table(path).drop_columns([name]), path)
    (root / "meta/info.json").write_text(json.dumps(info))
    return root


def bring(path: Path, out: Path, **options: Any) -> EpisodeSource:
    """Import `path` as the set `out`."""
    name = guess(path)
    assert name is not None
    source = reader(name)(path, ReadOptions(**options))
    write_dataset(source, out)
    assert list(validate(out)) == []
    return source


def test_a_set_that_does_not_say_who_succeeded_keeps_its_silence(silent: Path, tmp_path: Path) -> None:
    source = bring(silent, tmp_path / "set")
    assert any("nor as a failure; --outcome says it" in note for note in source.account.left_out)
    dataset = open_numbers(tmp_path / "set")
    assert not dataset.outcomes and "next.success" not in dataset.features
    found = Demonstrations.of(dataset)
    assert found.success is None
    assert "failed" not in {reason for episode in assess(found).episodes for reason in episode.reasons}

    # Edits keep it.
    write_dataset(keep(dataset, [0, 2]), tmp_path / "kept")
    assert not open_numbers(tmp_path / "kept").outcomes
    assert repair(tmp_path / "kept").episodes == 2 and not open_numbers(tmp_path / "kept").outcomes


@pytest.mark.parametrize("outcome", [True, False])
def test_a_user_may_say_it(silent: Path, tmp_path: Path, outcome: bool) -> None:
    assert not any("--outcome" in note for note in bring(silent, tmp_path / "set", success=outcome).account.left_out)
    dataset = open_numbers(tmp_path / "set")
    assert dataset.outcomes and dataset.success.tolist() == [outcome] * 3
    assert dataset.terminated.tolist() == [outcome] * 3 and dataset.truncated.tolist() == [not outcome] * 3


def test_what_a_file_says_is_believed(plain: Path, tmp_path: Path) -> None:
    bring(plain, tmp_path / "set", success=True)
    assert open_numbers(tmp_path / "set").success.tolist() == [True, False, True]


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(ROUND))
def test_silence_goes_through_every_format(silent: Path, tmp_path: Path, name: str) -> None:
    bring(silent, tmp_path / "set")
    writer(name)(open_numbers(tmp_path / "set"), tmp_path / ROUND[name], None)
    bring(tmp_path / ROUND[name], tmp_path / "back")
    assert not open_numbers(tmp_path / "back").outcomes
    bring(tmp_path / ROUND[name], tmp_path / "said", success=True)
    assert open_numbers(tmp_path / "said").success.all()


def test_files_without_rewards_say_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "push"
    folder.mkdir()
    for e in range(2):
        np.savez(folder / f"{e}.npz", action=np.zeros((4, 2)), proprio=np.eye(4) + e, reward=np.zeros(4))
    bring(folder, tmp_path / "a", hz=10.0)
    assert not open_numbers(tmp_path / "a").outcomes
    np.savez(folder / "1.npz", action=np.zeros((4, 2)), proprio=np.eye(4) + 1, reward=[0, 0, 0, 1])
    for name, said, expected in (("b", None, [False, True]), ("all", True, [True, True])):
        bring(folder, tmp_path / name, hz=10.0, success=said)
        assert open_numbers(tmp_path / name).success.tolist() == expected

    with h5py.File(tmp_path / "demos.hdf5", "w") as file:
        demo = file.create_group("data/demo_0")
        demo["actions"], demo["obs/robot0_eef_pos"], demo["rewards"] = np.zeros((4, 2)), np.eye(4)[:, :3], np.zeros(4)
    bring(tmp_path / "demos.hdf5", tmp_path / "c")
    assert not open_numbers(tmp_path / "c").outcomes


@pytest.mark.parametrize("steps", [[False, False, True], [False, False, False]])
def test_npz_facts_may_stand_at_every_step(tmp_path: Path, steps: list[bool]) -> None:
    folder = tmp_path / "push"
    folder.mkdir()
    facts: dict[str, Any] = {"success": steps, "terminated": steps, "truncated": np.logical_not(steps)}
    np.savez(folder / "0.npz", action=np.zeros((3, 2)), proprio=np.eye(3), **facts)
    bring(folder, tmp_path / "set", hz=10.0)
    dataset = open_numbers(tmp_path / "set")
    assert dataset.success.tolist() == dataset.terminated.tolist() == [any(steps)]
    np.savez(folder / "0.npz", action=np.zeros((3, 2)), proprio=np.eye(3), success=[True, False])
    with pytest.raises(BadInput, match=r"0\.npz: success: got \(2,\) bool, expected a bool, or one for each step"):
        reader("npz")(folder, ReadOptions(hz=10.0)).drafts.__iter__().__next__()  # type: ignore[attr-defined]


def test_said_and_unsaid_do_not_mix(silent: Path, plain: Path, tmp_path: Path) -> None:
    bring(silent, tmp_path / "set")
    unsaid, said = open_numbers(tmp_path / "set"), open_numbers(bring_said(silent, tmp_path / "said"))
    with pytest.raises(BadInput, match="got no word on which episodes succeeded"):
        merge([said, unsaid])
    with pytest.raises(BadInput, match="got one that says which episodes succeeded"):
        merge([unsaid, said])
    assert not merge([unsaid, unsaid]).outcomes
    # Nor is an episode recorded into a set that could not say how it ended.
    with pytest.raises(BadInput, match=r"next\.success"):
        EpisodeWriter(unsaid.path, unsaid.interface, stamps=list(unsaid.stamps), resume=True)


def bring_said(path: Path, out: Path) -> Path:
    bring(path, out, success=True)
    return out


def test_the_commands(silent: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run("dataset", "import", silent, "--out", tmp_path / "set", "--json") == 0
    assert any("--outcome" in note for note in json.loads(capsys.readouterr().out)["left_out"])
    assert run("dataset", "edit", "drop", tmp_path / "set", "--failed", "--out", tmp_path / "none") == 2
    assert "no word on which episodes succeeded" in capsys.readouterr().err
    assert run("dataset", "info", tmp_path / "set", "--json") == 0
    assert json.loads(capsys.readouterr().out)["successes"] is None
    assert run("dataset", "info", tmp_path / "set") == 0
    assert "not recorded" in capsys.readouterr().out
    assert run("dataset", "quality", tmp_path / "set", "--json") == 0
    assert json.loads(capsys.readouterr().out)["success"] is None
    assert run("dataset", "import", silent, "--outcome", "success", "--out", tmp_path / "said") == 0
    assert Dataset.open(tmp_path / "said").success.all()
