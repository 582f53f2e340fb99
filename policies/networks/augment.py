"""Other pictures in training than those that are stored: random shift, random crop, colours.

Random shift: Kostrikov et al. 2021, "Image Augmentation Is All You Need" (DrQ): a picture is padded by repeating its
edge, and cut out again at a random place. Random crop: as in Diffusion Policy, of a smaller edge, whose middle the
policy sees when it acts (`ObservationEncoder`). All draws come from the generator that is handed in, on its device, so
that a run repeats itself; all observed steps of a window are changed alike, so that what moves is what moved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from policies.networks.encoder_settings import EncoderConfig

LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, ITU-R BT.601
YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


def augment(
    observation: Mapping[str, Tensor], images: frozenset[str], config: EncoderConfig, generator: torch.Generator
) -> dict[str, Tensor]:
    """Normalised observations whose pictures, (B, [To,] c, H, W) in [0, 1], are changed as `config` says. `generator`:
    on the device of the pictures."""
    out = dict(observation)
    for key in sorted(images & observation.keys()):  # sorted: a dict's order is nothing
        pictures = observation[key]
        if config.random_shift or config.random_crop:
            pictures = shift_and_crop(pictures, config.random_shift, config.random_crop, generator)
        if config.colour_jitter:
            pictures = jitter_colours(pictures, config.colour_jitter, generator)
        out[key] = pictures
    return out


def shift_and_crop(pictures: Tensor, shift: int, crop: int, generator: torch.Generator) -> Tensor:
    """(B, …, H, W) → (B, …, H', W') by up to `shift` pixels elsewhere, each row of the batch by its own offset. `crop`:
    edge H' = W' of a part at a random place; 0 for H' = H, W' = W."""
    height, width = pictures.shape[-2:]
    rows = _places(len(pictures), height, shift, crop or height, generator)
    columns = _places(len(pictures), width, shift, crop or width, generator)
    flat = pictures.reshape(len(pictures), -1, height, width)
    batch = torch.arange(len(flat), device=flat.device)[:, None, None, None]
    channel = torch.arange(flat.shape[1], device=flat.device)[:, None, None]
    taken = flat[batch, channel, rows[:, None, :, None], columns[:, None, None, :]]
    return taken.reshape(*pictures.shape[:-2], rows.shape[1], columns.shape[1])


def _places(batch: int, edge: int, shift: int, taken: int, generator: torch.Generator) -> Tensor:
    """(B, taken) which pixels of an axis are taken: first drawn, then cut to the picture, which repeats its edge."""
    # first ~ U{−shift, …, edge − taken + shift}
    device = generator.device
    first = torch.randint(-shift, edge - taken + shift + 1, (batch, 1), generator=generator, device=device)
    return (first + torch.arange(taken, device=device)).clamp_(0, edge - 1)


def jitter_colours(pictures: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """(B, …, 3, H, W) in [0, 1] with other brightness, contrast, saturation and hue; each row of the batch its own.

    With s the strength and each factor drawn from 1 ± s, the turn of the hue from ± s · π/2:

        x ← brightness x;  x ← m + contrast (x − m), m the picture's mean grey;  x ← g + saturation (x − g), g a pixel's
        grey;  (I, Q) ← R(turn) (I, Q) in YIQ;  cut to [0, 1]

    Pictures that are not RGB get brightness and contrast alone.
    """
    shape = (len(pictures), *(1,) * (pictures.ndim - 1))
    draws = 2 * torch.rand(4, len(pictures), generator=generator, device=generator.device, dtype=pictures.dtype) - 1
    brightness, contrast, saturation = (1 + strength * draw.view(shape) for draw in draws[:3])
    x = pictures * brightness
    if pictures.shape[-3] != 3:
        mean = x.mean((-3, -2, -1), keepdim=True)
        return (mean + contrast * (x - mean)).clamp_(0.0, 1.0)
    luma = torch.tensor(LUMA, device=x.device, dtype=x.dtype).view(3, 1, 1)
    mean = (x * luma).sum(-3, keepdim=True).mean((-2, -1), keepdim=True)
    x = mean + contrast * (x - mean)
    grey = (x * luma).sum(-3, keepdim=True)
    x = grey + saturation * (x - grey)
    return torch.einsum("bij,b...jhw->b...ihw", hue_rotation(strength * math.pi / 2 * draws[3]), x).clamp_(0.0, 1.0)


def hue_rotation(turn: Tensor) -> Tensor:
    """(B,) angles → (B, 3, 3), RGB ← RGB with the hue turned: T⁻¹ R T, T from RGB to YIQ, R a turn of (I, Q)."""
    to_yiq = torch.tensor(YIQ, device=turn.device, dtype=turn.dtype)
    rotation = torch.zeros(len(turn), 3, 3, device=turn.device, dtype=turn.dtype)
    rotation[:, 0, 0] = 1
    rotation[:, 1, 1] = rotation[:, 2, 2] = turn.cos()
    rotation[:, 1, 2], rotation[:, 2, 1] = -turn.sin(), turn.sin()
    return torch.linalg.inv(to_yiq) @ rotation @ to_yiq
