"""Stored actions beside the motion that followed, of an arm that does what is commanded one step late."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import Dataset
from robolearn.data.replay.recorded import LAGS, demonstrated, motion_explained, predicted_alone, recorded
from robolearn.data.writing.writer import EpisodeWriter

NAMES = ("q", *(f"tcp_{a}" for a in "xyz"), *(f"tcp_rot{i}" for i in range(6)))
INTERFACE = Interface(
    {"proprio": ArraySpec((10,), names=NAMES)},
    ArraySpec((4,), names=("dx", "dy", "dz", "gripper")),
    20.0,
    embodiment="panda",
    action_kind="tcp_delta",
)
TURN = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # a quarter about z
LENGTH = 60


def played(seed: int, *, predicted: bool, late: int = 1, noise: float = 0.2) -> Episode:
    """p ← p + 0.02 R a, `late` steps after a. A person acts in the second half, in which a `predicted` set holds other
    actions than those."""
    draw = np.random.default_rng(seed)
    executed = draw.uniform(-1, 1, (LENGTH, 4)).astype(np.float32)
    person = np.arange(LENGTH) >= LENGTH // 2
    motion = 0.02 * np.roll(executed[:, :3], late, 0) @ TURN.T + 0.02 * noise * draw.standard_normal((LENGTH, 3))
    place = np.concatenate((np.zeros((1, 3)), np.cumsum(motion, 0)[:-1]))
    turn = np.tile(np.concatenate((TURN[:, 0], TURN[:, 1])), (LENGTH, 1))
    seen = np.concatenate((np.zeros((LENGTH, 1)), place, turn), 1).astype(np.float32)
    other = draw.uniform(-1, 1, (LENGTH, 4)).astype(np.float32)
    stored = np.where(person[:, None] & predicted, other, executed)
    reward = (np.arange(LENGTH) == LENGTH - 1).astype(np.float32)
    return Episode({"proprio": seen}, stored, reward, True, True, False, "lift", intervention=person)


def stored(path: Path, episodes: list[Episode], interface: Interface = INTERFACE) -> Dataset:
    with EpisodeWriter(path, interface) as writer:
        writer.write_all(episodes)
    return Dataset.open(path)


@pytest.mark.parametrize("late", [0, 1, LAGS - 1])
def test_actions_that_were_executed_explain_the_motion_of_either_author(tmp_path: Path, late: int) -> None:
    """a · Δ of an arm that turned a quarter: 1 without noise, whenever the motion follows."""
    found = motion_explained(stored(tmp_path / "a", [played(s, predicted=False, late=late, noise=0.0) for s in (0, 1)]))
    assert found == pytest.approx((1.0, 1.0), abs=1e-4)


def test_actions_that_were_predicted_alone_do_not_and_are_named(tmp_path: Path, caplog) -> None:
    sound, wrong = (
        stored(tmp_path / str(predicted), [played(seed, predicted=predicted) for seed in range(3)])
        for predicted in (False, True)
    )
    assert predicted_alone(sound) is None
    policy, person = predicted_alone(wrong) or (0.0, 1.0)
    assert policy > 0.9 and abs(person) < 0.25
    with caplog.at_level(logging.WARNING):
        recorded([sound])
        demonstrated([sound], "--data")
        assert not caplog.text
        recorded([wrong])
        assert f"--data {wrong.path}: got actions that explain the arm's motion where the policy" in caplog.text
        assert f"(cosine {policy:.2f})" in caplog.text and "--map EXECUTED=action" in caplog.text
        caplog.clear()
        demonstrated([wrong], "--demos")
        assert f"--demos {wrong.path}: got actions" in caplog.text


def test_nothing_is_said_of_what_cannot_be_compared(tmp_path: Path) -> None:
    """One author alone, other actions than displacements, and an arm that follows nothing."""
    alone = [replace(played(s, predicted=True), intervention=np.ones(LENGTH, np.bool_)) for s in range(3)]
    assert motion_explained(stored(tmp_path / "a", alone)) is None
    joints = replace(INTERFACE, action_kind="joint_position")
    assert motion_explained(stored(tmp_path / "b", [played(0, predicted=True)] * 3, joints)) is None
    unknown = stored(tmp_path / "c", [played(s, predicted=True, noise=30.0) for s in range(3)])
    assert motion_explained(unknown) is not None and predicted_alone(unknown) is None
