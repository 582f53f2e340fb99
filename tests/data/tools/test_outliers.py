"""One wrong frame: named where it is, and no scale goes by it where the user says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.lerobot.statistics import outliers
from robolearn.data.validate import validate


def test_what_is_an_outlier() -> None:
    rng = np.random.default_rng(0)
    frames = rng.normal(size=(60, 3))
    assert outliers(frames) == []
    frames[17, 1] = -9999.0
    assert outliers(frames) == [(17, 1)]
    gripper = np.where(np.arange(60) == 30, 1.0, 0.0)[:, None]
    assert outliers(gripper) == [], "what rarely moves has no range to be beyond"
    spikes = np.append(rng.normal(size=200), [30.0, -30.0])[:, None]
    assert outliers(spikes) == [], "a tail is no fault"


def test_validate_names_the_episode(tmp_path: Path) -> None:
    interface = Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), 10.0)
    with EpisodeWriter(tmp_path / "set", interface) as writer:
        for e in range(3):
            proprio = np.stack([np.sin(np.arange(30) + e), np.cos(np.arange(30) + e)], 1)
            proprio[12, 1] = 9999.0 if e == 1 else proprio[12, 1]
            writer.write(Episode({"proprio": proprio}, np.zeros((30, 1)), np.zeros(30), True, True, False, "reach"))
    (finding,) = validate(tmp_path / "set")
    assert (finding.check, finding.episode, finding.frame) == ("outlier", 1, 12)
    assert finding.what == "observation.state: component 1 is 9999, far beyond all others"


def test_import_names_it_and_scales_by_quantiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder := tmp_path / "push").mkdir()
    rng, actions = np.random.default_rng(0), []
    for e in range(4):
        actions.append(np.stack([rng.uniform(-40, 40, 50), np.full(50, 3.0)], 1))
        actions[e][7, 0] = -9999.0 if e == 2 else actions[e][7, 0]
        np.savez(folder / f"{e}.npz", action=actions[e], proprio=rng.normal(size=(50, 2)))
    words = ["dataset", "import", str(folder), "--hz", "10", "--json", "--out"]
    assert main([*words, str(tmp_path / "plain")]) == 0
    changed = json.loads(capsys.readouterr().out.splitlines()[-1])["changed"]
    assert any("2.npz: action at frame 7, component 0 is -9999, far beyond" in line for line in changed)
    assert "these components of the action never change: 1" in changed
    assert np.ptp(np.delete(Dataset.open(tmp_path / "plain").action[:, 0], 107)) < 0.02, "all motion is squeezed"

    assert main([*words, str(tmp_path / "robust"), "--scale", "quantiles"]) == 0
    changed = json.loads(capsys.readouterr().out.splitlines()[-1])["changed"]
    assert any("by its quantiles q01 and q99; 4 of 200 reach further and are cut" in line for line in changed)
    dataset = Dataset.open(tmp_path / "robust")
    every = np.concatenate(actions)[:, 0]
    low, high = np.quantile(every, (0.01, 0.99))
    expected = np.clip(2 * (every - low) / (high - low) - 1, -1, 1)
    np.testing.assert_allclose(dataset.action[:, 0], expected, atol=1e-5)
    scale = dataset.interface.extra["action_scale"]
    np.testing.assert_allclose([scale["low"], scale["high"]], [[low, 3.0], [high, 3.0]], rtol=1e-6)
