"""The normaliser against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer, action_range
from robolearn.core import ArraySpec, BadInput, Interface

INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((4, 6, 3), "uint8")}, ArraySpec((3,)), control_hz=20.0
)


def statistics(**action: list[float]) -> dict:
    return {
        "proprio": {"mean": [1.0, -2.0], "std": [0.5, 0.0]},
        "action": {"min": [-1.0, -0.2, 1.0], "max": [1.0, 0.6, 1.0]} | action,
    }


def test_observations_are_standardised_and_clipped():
    norm = Normalizer.from_statistics(INTERFACE, statistics())
    image = torch.full((1, 4, 6, 3), 255, dtype=torch.uint8)
    image[..., 1] = 51
    out = norm.observation({"proprio": torch.tensor([[2.0, -2.0005]]), "images.front": image, "unused": torch.ones(1)})
    # (2 − 1)/0.5 = 2; a component that never moved is divided by the floor 0.001: −0.0005/0.001 = −0.5
    torch.testing.assert_close(out["proprio"], torch.tensor([[2.0, -0.5]]), atol=1e-3, rtol=0)
    assert norm.observation({"proprio": torch.tensor([[99.0, 9.0]]), "images.front": image})["proprio"].tolist() == [
        [10.0, 10.0]
    ]
    assert out["images.front"].shape == (1, 3, 4, 6)
    assert out["images.front"][0, :, 0, 0].tolist() == pytest.approx([1.0, 0.2, 1.0])
    assert "unused" not in out
    history = norm.observation({"proprio": torch.ones(5, 2, 2), "images.front": image[:, None].expand(5, 2, 4, 6, 3)})
    assert history["proprio"].shape == (5, 2, 2)
    assert history["images.front"].shape == (5, 2, 3, 4, 6)


def test_action_range_by_hand():
    centre, half = action_range(torch.tensor([-1.0, -0.2, 1.0, 0.30]), torch.tensor([1.0, 0.6, 1.0, 0.32]))
    # full range stays; [-0.2, 0.6] → ±0.4·1.1 around 0.2; a constant 1 → [0.9, 1.0]; narrow → ±0.05 around 0.31
    torch.testing.assert_close(centre, torch.tensor([0.0, 0.2, 0.95, 0.31]))
    torch.testing.assert_close(half, torch.tensor([1.0, 0.44, 0.05, 0.05]))


def test_actions_there_and_back_stay_in_the_worlds_range():
    norm = Normalizer.from_statistics(INTERFACE, statistics())
    action = torch.rand(100, 4, 3) * 2 - 1
    torch.testing.assert_close(norm.action_back(norm.action(action)), action, atol=1e-5, rtol=1e-5)
    for edge in (-1.0, 1.0):
        assert norm.action_back(torch.full((1, 3), edge)).abs().max() <= 1.0
    assert norm.action(torch.tensor([-1.0, -0.2, 1.0])).abs().max() <= 1.0 + 1e-6


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({}, "proprio"),
        ({"proprio": {"mean": [0, 0]}}, "no 'std'"),
        ({"proprio": {"mean": [0, 0, 0], "std": [1, 1, 1]}}, r"\(3,\)"),
        ({"proprio": {"mean": [0, float("nan")], "std": [1, 1]}}, "NaN"),
    ],
)
def test_statistics_that_do_not_fit(broken, words):
    with pytest.raises(BadInput, match=words):
        Normalizer.from_statistics(INTERFACE, broken)


def test_observations_that_do_not_fit():
    norm = Normalizer.from_statistics(Interface({"proprio": ArraySpec((2,))}, ArraySpec((3,)), 20.0), statistics())
    with pytest.raises(BadInput, match="no 'proprio'"):
        norm.observation({"objects": torch.ones(1, 2)})
    with pytest.raises(BadInput, match=r"\(3,\)"):
        norm.observation({"proprio": torch.from_numpy(np.ones((1, 3), np.float32))})
