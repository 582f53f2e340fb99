"""``robolearn collect``: arms and ranges of starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.collect import Collect
from robolearn.cli.console import make_console
from robolearn.core import BadInput
from robolearn.data.convert.edit import merge
from robolearn.data.convert.source import write_dataset
from robolearn.data.reading.reader import Dataset
from sim.experts.failures import KINDS
from sim.registry import WorldConfig


def cubes(path: Path) -> np.ndarray:
    """(episodes, 2) where the cubes lie at the start."""
    data = Dataset.open(path)
    names = data.interface.observation["objects"].names
    columns = [names.index("cube_x"), names.index("cube_y")]
    return np.stack([data.episode(i).observation["objects"][0, columns] for i in range(data.episodes)])


@pytest.mark.long
def test_narrow_demonstrations_succeed_and_come_from_the_middle(tmp_path: Path) -> None:
    wide = Collect(quality="expert", episodes=40, out=tmp_path / "wide").run()
    narrow = Collect(quality="narrow", episodes=40, out=tmp_path / "narrow").run()
    assert (wide["start_range"], narrow["start_range"]) == (1.0, 0.5)
    assert narrow["expert_success"] >= 0.95
    middle = np.array([0.5, 0.0])
    for result, half in ((wide, np.array([0.1, 0.12])), (narrow, np.array([0.05, 0.06]))):
        away = np.abs(cubes(Path(result["dataset"])) - middle)
        assert np.all(away.max(0) <= half + 1e-6) and np.all(away.max(0) > 0.8 * half)
    asked = Collect(quality="narrow", world=WorldConfig(start_range=0.2), episodes=2, out=tmp_path / "asked").run()
    assert asked["start_range"] == 0.2


def test_another_arm_and_what_does_not_fit(tmp_path: Path) -> None:
    result = Collect(world=WorldConfig(robot="ur5e"), quality="expert", episodes=4, out=tmp_path / "data").run()
    assert result["robot"] == "ur5e" and result["expert_success"] == 1.0
    assert Dataset.open(tmp_path / "data").interface.embodiment == "ur5e"
    with pytest.raises(BadInput, match="robot: got ur5; available: panda, fr3, ur5e"):
        Collect(world=WorldConfig(robot="ur5"), episodes=1, out=tmp_path / "none").run()
    with pytest.raises(BadInput, match="start range: got 0"):
        Collect(world=WorldConfig(start_range=0.0), episodes=1, out=tmp_path / "none").run()
    with pytest.raises(BadInput, match="quality: got good; available: expert, narrow, fair, mixed, poor"):
        Collect(quality="good", episodes=1, out=tmp_path / "none").run()
    assert not (tmp_path / "none").exists()


@pytest.mark.long
def test_failures_are_labelled_with_their_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each world's episodes take the kinds in turn; merged with successes, all keep theirs."""
    command = Collect(quality="failures", episodes=14, worlds=6, out=tmp_path / "failed")
    result = command.run()
    command.show(result, make_console())
    assert "robolearn reward train --data SUCCESSES" in (said := capsys.readouterr().out) and "imitates" not in said
    assert result["expert_success"] == 0.0 and sum(result["failures"].values()) == 14
    assert set(result["failures"]) == set(KINDS)
    failed = Dataset.open(tmp_path / "failed")
    heights = {kind: [] for kind in KINDS}
    names = failed.interface.observation["objects"].names
    for e, kind in enumerate(failed.failure):
        z = failed.episode(e).observation["objects"][:, names.index("cube_z")]
        assert failed.episode(e).failure == kind
        heights[kind].append((z.max(), z[-1]))
    assert max(most for most, _ in heights["missed"] + heights["pushed_away"]) < 0.03
    for most, last in heights["dropped"]:
        assert most > 0.025 > last, "it was up, and lies again"
    assert all(0.03 < last < 0.08 for _, last in heights["nearly"])
    Collect(quality="expert", episodes=2, out=tmp_path / "good").run()
    assert not Dataset.open(tmp_path / "good").labels_failures
    write_dataset(merge([Dataset.open(tmp_path / name) for name in ("good", "failed")]), tmp_path / "both")
    both = Dataset.open(tmp_path / "both")
    assert both.failure == ("", "", *failed.failure) and both.success.tolist() == [True, True, *[False] * 14]


@pytest.mark.long
def test_a_set_that_labels_failures_goes_on_with_successes(tmp_path: Path) -> None:
    Collect(quality="frozen", episodes=1, out=tmp_path / "data").run()
    Collect(quality="expert", episodes=2, out=tmp_path / "data", resume=True).run()
    assert Dataset.open(tmp_path / "data").failure == ("frozen", "")
    Collect(quality="expert", episodes=1, out=tmp_path / "plain").run()
    with pytest.raises(BadInput, match="no 'failure'"):
        Collect(quality="frozen", episodes=2, out=tmp_path / "plain", resume=True).run()


def test_a_task_without_such_a_failure_refuses_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="got missed; available: dropped, wrong_place, nearly, frozen"):
        Collect(world=WorldConfig("peg_insert"), quality="missed", episodes=1, out=tmp_path / "none").run()
    assert not (tmp_path / "none").exists()


def test_a_world_s_own_expert_has_one_quality_which_need_not_be_said() -> None:
    assert Collect.defaults(["--task", "metaworld:reach-v3"]) == {"quality": "expert"}
    assert Collect.defaults(["--task=libero:libero_goal/3", "--episodes", "2"]) == {"quality": "expert"}
    assert Collect.defaults(["--task", "lift"]) == Collect.defaults([]) == {}
