"""Inverse dynamics: inputs by hand, actions that are found again, sets without any, and marks on what was predicted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.train.inverse_dynamics import InverseDynamics, bins, fit, shared_features, transitions
from robolearn.train.settings import InverseDynamicsConfig

INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "wide": ArraySpec((1,))}, ArraySpec((2,), names=("x", "y")), 20.0, "panda", "tcp_delta"
)
CONFIG = InverseDynamicsConfig(steps=300, width=32)
MATRIX = np.array([[0.3, 0.1], [-0.1, 0.2]], np.float32)


def written(
    path: Path, episodes: int, seed: int, *, blind: bool = False, final: bool = True, **changes: object
) -> Path:
    """Steps s′ = s + M a of random actions; `blind`: actions do nothing. `wide` is noise."""
    rng = np.random.default_rng(seed)
    with EpisodeWriter(path, replace(INTERFACE, **changes)) as writer:  # type: ignore[arg-type]
        for _ in range(episodes):
            s = rng.standard_normal(2).astype(np.float32)
            for _ in range(12):
                a = rng.uniform(-1, 1, 2).astype(np.float32)
                writer.add({"proprio": s, "wide": rng.standard_normal(1).astype(np.float32)}, a)
                s = s + (rng.standard_normal(2).astype(np.float32) if blind else MATRIX @ a)
            last = {"proprio": s, "wide": np.zeros(1, np.float32)}
            writer.end(success=True, terminated=True, task="reach", final=last if final else None)
    return path


def without_actions(path: Path) -> Path:
    """The set at `path` as one that never had actions."""
    info = json.loads((path / "meta/info.json").read_text())
    del info["features"]["action"], info["robolearn_interface"]
    (path / "meta/info.json").write_text(json.dumps(info | {"robot_type": "panda"}))
    for file in path.glob("data/*/*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns("action"), file)
    return path


def test_inputs_by_hand() -> None:
    seen = np.array([[1.0], [3.0], [7.0], [8.0]], np.float32)
    expected = [[1, 2, 0, 0], [3, 4, 2, 0], [7, 1, 4, 2]]
    assert transitions(seen, 2, 0).tolist() == expected, "s, s′ − s, s − s of before, that of before − that before it"
    assert transitions(seen, 0, 0).tolist() == [row[:2] for row in expected]
    assert transitions(seen, 1, 2).tolist() == [[1, 2, 4, 1, 0], [3, 4, 1, 0, 2], [7, 1, 0, 0, 4]], "what comes, first"


@pytest.mark.long
def test_a_motion_that_shows_a_step_later_is_found(tmp_path: Path) -> None:
    """s_{t+1} = s_t + a_{t−1}: the next observation says nothing of a_t, which is U(−1, 1), the one after it all."""
    rng = np.random.default_rng(0)
    with EpisodeWriter(tmp_path / "a", INTERFACE) as writer:
        for _ in range(20):
            s, before = np.zeros(2, np.float32), np.zeros(2, np.float32)
            for _ in range(20):
                a = rng.uniform(-1, 1, 2).astype(np.float32)
                writer.add({"proprio": s, "wide": np.zeros(1, np.float32)}, a)
                s, before = s + before, a
            last = {"proprio": s, "wide": np.zeros(1, np.float32)}
            writer.end(success=True, terminated=True, task="reach", final=last)
    dataset = Dataset.open(tmp_path / "a")
    _, errors = fit(CONFIG, dataset, ("proprio",))
    assert errors.model.mean() < 0.1, "of a variance of 1/3, the last step of 20 apart"
    with pytest.raises(BadInput, match="the mean action has"):
        fit(replace(CONFIG, ahead=0), dataset, ("proprio",))


@pytest.mark.long
def test_a_gripper_s_command_is_one_that_was_given(tmp_path: Path) -> None:
    """Closed on an object of any width it shows this width, whatever was commanded: ±0.98, or 0.5 where it is shown."""
    rng = np.random.default_rng(0)
    interface = replace(INTERFACE, action=ArraySpec((2,), names=("x", "gripper")))
    with EpisodeWriter(tmp_path / "a", interface) as writer:
        for _ in range(20):
            s = np.zeros(2, np.float32)
            for _ in range(12):
                x, command = rng.uniform(-1, 1), rng.choice([-0.98, 0.5, 0.98], p=[0.2, 0.2, 0.6])
                writer.add({"proprio": s, "wide": np.zeros(1, np.float32)}, np.array([x, command], np.float32))
                shown = 0.5 if command == 0.5 else rng.uniform(0.8, 1.0)
                s = np.array([s[0] + x, shown], np.float32)
            writer.end(
                success=True, terminated=True, task="reach", final={"proprio": s, "wide": np.zeros(1, np.float32)}
            )
    dataset = Dataset.open(tmp_path / "a")
    model, errors = fit(replace(CONFIG, ahead=0), dataset, ("proprio",))
    true, label = dataset.action, np.concatenate([model.label(dataset, e) for e in range(dataset.episodes)])
    assert errors.model[0] < 0.05 > np.mean((label[:, 0] - true[:, 0]) ** 2)
    assert set((100 * label[:, 1]).round().tolist()) <= {-98, 50, 98}, "the mean of those that fit is about 0.5"
    half = true[:, 1] == 0.5
    assert np.mean(label[half, 1] == 0.5) > 0.8 and np.mean(label[~half, 1] > 0.9) > 0.8


def test_commands_lie_in_bins_of_equal_width_whose_median_stands_for_them() -> None:
    """Nine bins of 2/9; the last one has its upper edge, too."""
    action = torch.tensor([[0.0, -1.0], [0.0, -0.8], [0.0, -0.9], [0.0, 1.0], [0.0, 0.12], [0.0, 0.10]])
    assert bins(action[:, 1]).tolist() == [0, 0, 0, 8, 5, 4]
    model = InverseDynamics(CONFIG, ("wide",), replace(INTERFACE, action=ArraySpec((2,), names=("x", "gripper"))))
    model.standardise(torch.arange(24.0).view(6, 4), action)
    torch.testing.assert_close(model.commands, torch.tensor([[-0.9, 0, 0, 0, 0.10, 0.12, 0, 0, 1.0]]))
    motions, logits = torch.tensor([[0.5]] * 6), torch.full((6, 1, 9), 0.0)
    logits[:, :, 0] = 2.0
    model.forward = lambda x: (motions, logits)  # type: ignore[method-assign]
    # squares of 0.25; −ln p = ln(e² + 8) − 2 for the three in the first bin, ln(e² + 8) for the others
    expected = 0.25 + np.log(np.e**2 + 8) - 1.0
    assert float(model.loss(torch.zeros(6, 4), action)) == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(model.predict(torch.zeros(6, 4)), torch.tensor([[0.5, -0.9]] * 6))


@pytest.mark.long
def test_the_actions_are_found_again_and_the_errors_are_of_episodes_held_out(tmp_path: Path) -> None:
    dataset = Dataset.open(written(tmp_path / "a", 20, 0))
    model, errors = fit(CONFIG, dataset, ("proprio", "wide"))
    other = Dataset.open(written(tmp_path / "b", 3, 1))
    square = np.mean([(model.label(other, e) - other.episode(e).action) ** 2 for e in range(3)])
    assert errors.episodes == 4
    assert errors.mean_action.mean() == pytest.approx(1 / 3, rel=0.15), "the variance of U(−1, 1)"
    assert errors.model.mean() < 0.05 > square
    assert errors.model.shape == errors.mean_action.shape == (2,)
    again, same = fit(CONFIG, dataset, ("proprio", "wide"))
    assert np.array_equal(again.label(other, 0), model.label(other, 0)) and np.array_equal(same.model, errors.model)
    short = Dataset.open(written(tmp_path / "c", 1, 1, final=False))
    label = model.label(short, 0)
    assert np.array_equal(label[:-2], model.label(other, 0)[:-2]) and np.array_equal(label[-1], label[-2])


@pytest.mark.long
def test_what_shows_no_action_is_refused(tmp_path: Path) -> None:
    blind = Dataset.open(written(tmp_path / "a", 10, 0, blind=True))
    with pytest.raises(BadInput, match=r"error of .* on held-out episodes; the mean action has .*proprio"):
        fit(CONFIG, blind, ("proprio",))
    with pytest.raises(BadInput, match="1 episode"):
        fit(CONFIG, Dataset.open(written(tmp_path / "b", 1, 0)), ("proprio",))


def test_only_a_set_of_the_same_arm_can_be_labelled() -> None:
    joints = replace(INTERFACE, action=ArraySpec((7,)), action_kind="joint_position")
    assert shared_features(INTERFACE, joints, "b") == ("proprio", "wide"), "its own actions do not count"
    assert shared_features(INTERFACE, replace(INTERFACE, observation={"wide": ArraySpec((1,))}), "b") == ("wide",)
    for wrong, said in (
        ({"control_hz": 10.0}, "control rate"), ({"embodiment": "fr3"}, "one arm, one policy"),
        ({"observation": {"proprio": ArraySpec((3,))}}, "proprio"), ({"observation": {}}, "pictures alone"),
    ):  # fmt: skip
        with pytest.raises(BadInput, match=said):
            shared_features(INTERFACE, replace(INTERFACE, **wrong), "b")  # type: ignore[arg-type]


@pytest.mark.long
def test_the_command_labels_and_the_mark_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    labelled, truth = written(tmp_path / "a", 20, 0), Dataset.open(written(tmp_path / "truth", 4, 1)).action
    watched, out = without_actions(written(tmp_path / "b", 4, 1)), tmp_path / "new"
    with pytest.raises(BadInput, match="no feature 'action'"):
        Dataset.open(watched)
    words = ["dataset", "label-actions", str(watched), "--from", str(labelled), "--out"]
    assert main([*words, str(out), "--steps", "300", "--width", "32", "--json"]) == 0
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert result["error"] < 0.05 < result["mean_action_error"] and result["observes"] == ["proprio", "wide"]
    made = Dataset.open(out)
    assert np.mean((made.action - truth) ** 2) < 0.05
    assert made.interface.action == INTERFACE.action and made.interface.action_kind == "tcp_delta"
    mark = made.interface.extra["predicted_actions"]
    assert mark == {"from": str(labelled), **{key: result[key] for key in ("error", "mean_action_error")}}
    assert main(["dataset", "validate", str(out)]) == 0
    capfd.readouterr()
    caplog.clear()

    small = ["--width", "16", "--depth", "1", "--batch", "8", "--steps", "5", "--json"]
    assert main(["train", "--data", str(labelled), str(out), "--out", str(tmp_path / "run"), *small]) == 0
    assert f"data set {out}: its actions are predicted, not executed" in caplog.text
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["predicted_actions"] == [str(out)]
    stored = json.loads((tmp_path / "run" / "policy" / "config.json").read_text())
    assert stored["interface"]["extra"]["predicted_actions"] == {str(out): mark}

    for data, source, line in ((watched, out, "predicted actions"), (watched, watched, "no feature 'action'")):
        assert main(["dataset", "label-actions", str(data), "--from", str(source), "--out", str(tmp_path / "x")]) == 2
        assert line in capfd.readouterr().err.splitlines()[-1]
    assert main([*words, str(tmp_path / "x"), "--validation", "0"]) == 2
    assert not (tmp_path / "x").exists()
