"""Views of training: all frames of an episode are seen by one camera that stands elsewhere, in one other light."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from robolearn.rewards import networks
from robolearn.rewards.networks import SHIFT, FrameEncoder, elsewhere


def square(x: int, y: int, edge: int = 64) -> torch.Tensor:
    picture = torch.zeros(3, edge, edge)
    picture[:, y - 4 : y + 4, x - 4 : x + 4] = 1.0
    return picture


def middle(picture: torch.Tensor) -> np.ndarray:
    """(x, y) of what is bright [px]."""
    weight, pixels = picture.mean(0), torch.arange(picture.shape[-1], dtype=torch.float32) + 0.5
    return np.array([float((weight.sum(axis) * pixels).sum() / weight.sum()) for axis in (0, 1)])


def test_what_moves_is_what_moved() -> None:
    """Two squares 12 px apart stay about as far apart, and the camera is elsewhere in each draw."""
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(50):
        first, second = elsewhere(torch.stack([square(26, 32), square(38, 32)]), generator)
        a, b = middle(first), middle(second)
        assert np.linalg.norm(b - a) == pytest.approx(12, rel=0.1) and abs(b[1] - a[1]) < 0.1 * 12
        found.append((a + b) / 2 - 32)
    most = np.abs(found).max(0)
    assert (most > 0.5 * SHIFT * 64).all() and (most < SHIFT * 64 + 1).all()
    assert np.abs(np.mean(found, 0)).max() < 1.5, "to all sides alike"


def test_nothing_is_changed_by_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURN", "ZOOM", "SHIFT"):
        monkeypatch.setattr(networks, name, 0.0)
    picture = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(elsewhere(picture, torch.Generator()), picture, atol=1e-5, rtol=0)


@pytest.mark.long
def test_an_episode_longer_than_a_block_is_seen_from_one_place() -> None:
    torch.manual_seed(0)
    encoder, generator = FrameEncoder(32), torch.Generator().manual_seed(1)
    frames = np.repeat(np.random.default_rng(0).integers(0, 255, (1, 32, 32, 3), dtype=np.uint8), 70, 0)
    views = [encoder.encode([frames, frames], generator) for _ in range(2)]
    for view in views:
        assert (view == view[:1]).all(), "every frame alike"
        assert (view[:, 0] != view[:, 1]).any(), "two cameras stand in two places"
    assert (views[0] != views[1]).any(), "the next episode is seen from another place"
    plain = encoder.encode([frames])
    assert (plain == plain[:1]).all() and (plain[:, 0] != views[0][:, 0]).any()
