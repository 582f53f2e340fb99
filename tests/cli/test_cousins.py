"""``--cousins``: collect and train on cousins of the scene, then judge in others and in the twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data import Dataset


def run(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.long
def test_what_learned_from_cousins_is_judged_in_the_twin_and_in_others(tmp_path: Path, capsys) -> None:
    data, policy = str(tmp_path / "data"), str(tmp_path / "bc")
    few = ("--sim-threads", "1", "--worlds", "4")
    made = run(capsys, "collect", "--task", "lift", "--cousins", "train", "--quality", "expert", "--episodes", "8",
               "--out", data, *few)  # fmt: skip
    assert made["expert_success"] == 1.0 and made["cousins"] == "train"
    stored = Dataset.open(data)
    assert stored.interface.extra["cousins"]["width"] == [0.030, 0.046]
    scenes = np.stack([stored.episode(i).observation["cousin"][0] for i in range(8)])
    assert len(np.unique(scenes, axis=0)) == 8
    assert main(["collect", "--task", "lift", "--quality", "expert", "--episodes", "9", "--out", data, "--resume"]) == 2
    capsys.readouterr()
    run(capsys, "train", "--data", data, "--steps", "5", "--steps-per-iteration", "5", "--out", policy, "--eval-task",
        "lift", "--eval-cousins", "held-out", "--eval-episodes", "2")  # fmt: skip
    assert main(["train", "--data", data, "--eval-cousins", "train", "--out", str(tmp_path / "none")]) == 2
    assert "--eval-cousins: got train, expected --eval-task with it" in capsys.readouterr().err
    settings = json.loads((tmp_path / "bc/policy/config.json").read_text())
    assert set(settings["interface"]["observation"]) == {"proprio", "objects"}
    judged = ("evaluate", "--policy", policy, "--task", "lift", "--episodes", "4", *few)
    assert "cousins" not in run(capsys, *judged)
    assert run(capsys, *judged, "--cousins", "held-out")["cousins"] == "held-out"
    seeing = (
        *judged[:2],
        str(tmp_path / "seeing"),
        *judged[3:],
    )  # one that asked for the shape has it in the twin, too
    run(capsys, "train", "--data", data, "--steps", "5", "--steps-per-iteration", "5", "--out", seeing[2], "--observe",
        "proprio", "objects", "cousin")  # fmt: skip
    assert run(capsys, *seeing)["cousins"] == "twin"
    tuned = run(capsys, "finetune", "--policy", policy, "--task", "lift", "--cousins", "train", "--env-steps", "600",
                "--worlds", "4", "--decisions", "4", "--out", str(tmp_path / "ft"))  # fmt: skip
    assert json.loads((Path(tuned["run"]) / "config.json").read_text())["cousins"] == "train"


def test_what_differs_is_shown_and_bad_ranges_are_one_line(tmp_path: Path, capsys) -> None:
    assert run(capsys, "worlds", "show", "lift")["cousins"] == []
    assert main(["worlds", "show", "lift", "--cousins", "train"]) == 0
    shown = capsys.readouterr().out
    assert "differs       shape: box, cylinder\n" in shown and "width: 0.03 to 0.046 m" in shown
    rows = {row["name"]: row["cousins"] for row in run(capsys, "tasks")["tasks"]}
    assert [name for name, differs in rows.items() if differs] == ["lift", "lift_to", "pick_place"]
    (tmp_path / "wide.yaml").write_text("width: [0.03, 0.09]\n")
    out = str(tmp_path / "out")
    for found, line in (
        ("heldout", "cousins: got heldout; available: none, twin, train, held-out"),
        (str(tmp_path / "wide.yaml"), "width: got 0.09, expected at most 0.06 m: the gripper of panda opens by 0.08 m"),
    ):
        assert main(["collect", "--task", "lift", "--cousins", found, "--out", out]) == 2
        error = capsys.readouterr().err
        assert line in error and error.count("\n") == 1
    assert not Path(out).exists()
