"""Augmentation: pixels by hand, colours against another library, and where the numbers come from."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch

from policies.networks.augment import augment, hue_rotation, jitter_colours, shift_and_crop
from policies.networks.encoder_settings import EncoderConfig

IMAGES = frozenset({"images.front", "images.wrist"})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def observation(batch: int = 8, steps: int = 2, edge: int = 20) -> dict[str, torch.Tensor]:
    made = {key: torch.rand(batch, steps, 3, edge, edge, generator=seeded(i)) for i, key in enumerate(sorted(IMAGES))}
    return {"proprio": torch.rand(batch, 2, generator=seeded(9))} | made


def test_a_shift_repeats_the_edge_as_numpy_pads() -> None:
    pictures = observation(200)["images.front"]
    moved = shift_and_crop(pictures, 4, 0, seeded())
    assert moved.shape == pictures.shape
    offsets = set()
    for before, after in zip(pictures.numpy(), moved.numpy(), strict=True):
        padded = np.pad(before, ((0, 0), (0, 0), (4, 4), (4, 4)), mode="edge")
        found = [
            (y, x)
            for y in range(9)
            for x in range(9)
            if np.array_equal(padded[..., y : y + 20, x : x + 20], after)  # both observed steps alike
        ]
        assert len(found) == 1
        offsets.add(found[0])
    assert len(offsets) > 20 and {y for y, _ in offsets} == set(range(9)) == {x for _, x in offsets}


def test_a_crop_is_a_part_at_any_place() -> None:
    pictures = observation(64)["images.front"]
    taken = shift_and_crop(pictures, 0, 14, seeded())
    assert taken.shape == (64, 2, 3, 14, 14)
    places = set()
    for before, after in zip(pictures, taken, strict=True):
        places |= {
            (y, x) for y in range(7) for x in range(7) if torch.equal(before[..., y : y + 14, x : x + 14], after)
        }
    assert {y for y, _ in places} == set(range(7)) == {x for _, x in places}


def test_colours_are_those_of_the_equations() -> None:
    pictures = observation(6)["images.front"]
    found = jitter_colours(pictures, 0.3, seeded(4))
    draws = (2 * torch.rand(4, 6, generator=seeded(4)) - 1).numpy()
    luma = np.array([0.299, 0.587, 0.114])
    for b, picture in enumerate(pictures.numpy()):
        brightness, contrast, saturation = 1 + 0.3 * draws[:3, b]
        for step in range(2):
            x = brightness * picture[step].transpose(1, 2, 0).astype(np.float64)
            mean = (x @ luma).mean()
            x = mean + contrast * (x - mean)
            grey = (x @ luma)[..., None]
            x = grey + saturation * (x - grey)
            yiq = np.stack([_yiq(pixel) for pixel in x.reshape(-1, 3)])
            turn = 0.3 * np.pi / 2 * draws[3, b]
            i, q = yiq[:, 1].copy(), yiq[:, 2].copy()
            yiq[:, 1], yiq[:, 2] = np.cos(turn) * i - np.sin(turn) * q, np.sin(turn) * i + np.cos(turn) * q
            expected = np.clip(np.linalg.solve(_matrix(), yiq.T).T.reshape(20, 20, 3), 0, 1)
            np.testing.assert_allclose(found[b, step].numpy().transpose(1, 2, 0), expected, atol=2e-5)
    assert (found - pictures).abs().mean() > 0.02 and found.min() >= 0 and found.max() <= 1


def _matrix() -> np.ndarray:
    return np.array([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])


def _yiq(pixel: np.ndarray) -> np.ndarray:
    return _matrix() @ pixel


def test_a_third_of_a_turn_takes_red_towards_another_hue_and_greys_stay() -> None:
    turned = hue_rotation(torch.tensor([2.0943951, 0.0]))
    grey = turned @ torch.full((3,), 0.5)
    torch.testing.assert_close(grey, torch.full((2, 3), 0.5), rtol=0, atol=1e-4)
    torch.testing.assert_close(turned[1], torch.eye(3), rtol=0, atol=1e-5)
    hue = colorsys.rgb_to_hsv(*(turned[0] @ torch.tensor([1.0, 0.0, 0.0])).clamp(0, 1).tolist())[0]
    assert 0.2 < hue < 0.8


def test_pictures_that_are_not_rgb_get_brightness_and_contrast() -> None:
    depth = torch.rand(4, 1, 8, 8, generator=seeded())
    found = jitter_colours(depth, 0.2, seeded(1))
    draws = 2 * torch.rand(4, 4, generator=seeded(1)) - 1
    b, c = (1 + 0.2 * draws[k].view(-1, 1, 1, 1) for k in (0, 1))
    mean = (depth * b).mean((1, 2, 3), keepdim=True)
    torch.testing.assert_close(found, (mean + c * (depth * b - mean)).clamp(0, 1))


@pytest.mark.parametrize("settings", [{"random_shift": 3}, {"random_crop": 16}, {"colour_jitter": 0.3}])
def test_the_generator_decides_and_vectors_stay(settings: dict) -> None:
    config, seen = EncoderConfig(**settings), observation()
    first, again = (augment(seen, IMAGES, config, seeded(3)) for _ in range(2))
    other = augment(seen, IMAGES, config, seeded(5))
    for key in IMAGES:
        assert torch.equal(first[key], again[key]) and not torch.equal(first[key], other[key])
    assert first["proprio"] is seen["proprio"]
    same = augment(seen | {"images.wrist": seen["images.front"]}, IMAGES, config, seeded(3))
    assert not torch.equal(same["images.front"], same["images.wrist"])  # each camera by draws of its own
    reverse = augment(dict(reversed(seen.items())), IMAGES, config, seeded(3))
    assert all(torch.equal(first[key], reverse[key]) for key in seen)


def test_without_augmentation_nothing_is_drawn() -> None:
    generator, seen = seeded(), observation()
    before = generator.get_state()
    after = augment(seen, IMAGES, EncoderConfig(), generator)
    assert all(after[key] is seen[key] for key in seen) and torch.equal(before, generator.get_state())
