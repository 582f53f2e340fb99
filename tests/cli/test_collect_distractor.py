"""``robolearn collect --distractor``: labelled, in the pictures, and a failure to who judges a critic."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data import Dataset
from robolearn.rollout.collected_starts import PATH


@pytest.mark.long
def test_a_grasp_of_a_distractor_is_a_labelled_failure_and_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "rewards")
    words = ["--episodes", "4", "--cameras", "front", "--distractor"]
    assert main(["collect", "--quality", "distractor", *words, "--out", "grasped", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["distractor"] and result["expert_success"] == 0.0 and result["failures"] == {"distractor": 4}
    assert main(["collect", "--quality", "expert", *words, "--out", "good"]) == 0
    grasped = Dataset.open("grasped")
    assert grasped.failure == ("distractor",) * 4 and not (Path("grasped") / PATH).exists()
    picture = np.asarray(grasped.images("front")[0]).astype(int)
    red, green, blue = np.moveaxis(picture, -1, 0)
    yellow = (red > 130) & (green > 0.6 * red) & (blue < 0.45 * green)
    assert 5 < yellow.sum() < 300, "it is drawn"
    capsys.readouterr()
    judged = ["reward", "evaluate", "--reward", "controls:AlwaysOne", "--data", "grasped", "good"]
    assert main([*judged, "--json"]) == 1
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["episodes"] == {"success": 4, "failure": 4} and set(result["by_failure"]) == {"distractor"}
    assert result["by_failure"]["distractor"]["called_done"]["rate"] == 1.0
    assert result["false_positive_rate"]["rate"] == 1.0
    assert main(judged) == 1
    assert any("distractor" in line and "called done" in line for line in capsys.readouterr().out.splitlines())
