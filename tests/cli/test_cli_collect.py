"""``robolearn collect``: arms and ranges of starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.collect import Collect
from robolearn.core import BadInput
from robolearn.data.reading.reader import Dataset
from sim.registry import WorldConfig


def cubes(path: Path) -> np.ndarray:
    """(episodes, 2) where the cubes lie at the start."""
    data = Dataset.open(path)
    names = data.interface.observation["objects"].names
    columns = [names.index("cube_x"), names.index("cube_y")]
    return np.stack([data.episode(i).observation["objects"][0, columns] for i in range(data.episodes)])


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
