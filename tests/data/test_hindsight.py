"""Goals in hindsight: which observation is a window's goal, drawn alike in every process and after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter, Windows
from robolearn.data.mixture import Mixture
from robolearn.data.windows import HindsightWindows

INTERFACE = Interface({"proprio": ArraySpec((2,)), "objects": ArraySpec((1,))}, ArraySpec((1,)), control_hz=20.0)
LENGTHS = (5, 1, 8)
GOALS = ("goal.objects",)


def write(path: Path, offset: int = 0) -> Dataset:
    """`objects` is 100 · episode + step."""
    with EpisodeWriter(path, INTERFACE) as writer:
        for episode, length in enumerate(LENGTHS):
            for step in range(length):
                value = offset + 100.0 * episode + step
                writer.add({"proprio": np.zeros(2), "objects": np.full(1, value)}, np.zeros(1))
            writer.end(success=True, terminated=True, task="go")
    return Dataset.open(path)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write(tmp_path_factory.mktemp("hindsight") / "set")


def told(windows: Any) -> tuple[np.ndarray, np.ndarray]:
    """(n,) `objects` now, and the goal, of all windows."""
    batch = windows.gather(torch.arange(len(windows)))
    assert batch.observation["goal.objects"].shape == (len(windows), 1, 1)
    return batch.observation["objects"][:, -1, 0].numpy(), batch.observation["goal.objects"][:, 0, 0].numpy()


@pytest.mark.parametrize("steps", [1, 3])
def test_the_goal_is_the_last_observation_of_the_same_episode(dataset: Dataset, steps: int) -> None:
    now, goal = told(HindsightWindows(Windows(dataset, steps, 4), GOALS, "end"))
    np.testing.assert_array_equal(goal, [4] * 5 + [100] + [207] * 8)
    np.testing.assert_array_equal(now, [*range(5), 100, *range(200, 208)])


def test_a_later_goal_is_any_that_follows_and_another_one_in_the_next_epoch(dataset: Dataset) -> None:
    windows = HindsightWindows(Windows(dataset, 1, 4), GOALS, "later")
    seen = []
    for epoch in range(300):
        windows.order(3, epoch)
        now, goal = told(windows)
        seen.append(goal - now)
    ahead = np.stack(seen)  # (epochs, windows)
    left = np.concatenate([np.arange(length)[::-1] for length in LENGTHS])
    np.testing.assert_array_equal(ahead.max(0), left)  # as far as the end, never beyond
    np.testing.assert_array_equal(ahead.min(0), np.minimum(left, 1))  # at least a step, where there is one
    counts = np.bincount(ahead[:, 6].astype(int), minlength=8)[1:]  # from the first frame of the longest: 1 … 7 alike
    assert (np.abs(counts - 300 / 7) < 25).all()
    windows.order(3, 17)
    np.testing.assert_array_equal(told(windows)[1] - told(windows)[0], ahead[17])  # whoever asks for that epoch
    windows.order(4, 17)
    assert (told(windows)[1] - told(windows)[0] != ahead[17]).any()


def test_the_order_is_that_of_the_windows(dataset: Dataset) -> None:
    plain = Windows(dataset, 1, 4)
    torch.testing.assert_close(HindsightWindows(plain, GOALS, "later").order(1, 2), plain.order(1, 2))


def test_goals_of_a_mixture_stay_within_their_set(dataset: Dataset, tmp_path: Path) -> None:
    other = write(tmp_path / "other", offset=1000)
    mixed = Mixture([Windows(dataset, 1, 4), Windows(other, 1, 4)], [0.5, 0.5])
    index = torch.tensor([20, 3, 27, 5, 14])
    batch = HindsightWindows(mixed, GOALS, "end").gather(index)
    assert batch.observation["goal.objects"].flatten().tolist() == [1207, 4, 1207, 100, 1004]
    assert batch.observation["objects"].flatten().tolist() == [1200, 3, 1207, 100, 1000]


def test_what_a_set_cannot_aim_at(dataset: Dataset) -> None:
    with pytest.raises(BadInput, match=r"no 'image.front', expected what it has; available: proprio, objects"):
        dataset.aiming(("image.front",))
    with pytest.raises(BadInput, match="--hindsight: got soon; available: end, later"):
        HindsightWindows(Windows(dataset, 1, 4), GOALS, "soon")  # type: ignore[arg-type]


def test_a_goal_may_be_of_something_that_the_policy_does_not_see(dataset: Dataset) -> None:
    aimed = dataset.aiming(("objects",), ("proprio",))
    assert list(aimed.interface.observation) == ["proprio", "goal.objects"]
    assert aimed.interface.privileged == ()  # a goal is told
    assert (
        HindsightWindows(Windows(aimed, 1, 4), GOALS, "end").gather(torch.tensor([0])).observation["goal.objects"] == 4
    )
