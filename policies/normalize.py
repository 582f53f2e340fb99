"""Observations and actions in the units of the world ↔ the numbers that networks see.

Observation vectors are standardised. Actions are scaled linearly per component so that what the
demonstrations used, widened a little, fills [-1, 1]: exploration noise of one size then suits every component.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from policies.networks.encoder import encoded_key, stored_key
from robolearn.core import BadInput, Interface, Observation
from robolearn.core.protocols import UNJUDGED
from robolearn.core.specs import PROMPT, is_image, of_goal

Statistics = Mapping[str, Mapping[str, ArrayLike]]
"""Feature name, or "action" → {"mean", "std", "min", "max", …} → one number per component."""

PROPRIO = "proprio"
CLIP = 10.0  # standard deviations
QUANTILES = 2 * 2.326  # standard deviations between the quantiles q01 and q99 of a normal distribution
STD_FLOOR = 1e-3  # a component that never moved must not turn rounding into a signal; 1 mm is still seen
RESOLUTION = 3.1e-3  # [rad], [m]: two steps of an encoder of 12 bits; a robot's component within never moved
CONSTANT = 0.1  # of such a component: half a degree beside it, as after another calibration, is no other world
WIDEN = 0.1  # of the demonstrations' half-range, on either side
FAR, WITHIN = 6.0, 3.0  # standard deviations; 3 hold all of a component that moves evenly
STILL = 0.02  # [rad], [m]
HALF_FLOOR = 0.05  # of an action component's half-range: a component that demonstrations hardly use keeps small noise


class Normalizer(nn.Module):
    """Statistics as buffers, so that they travel inside ``model.safetensors``.

    Observation vectors: z = clip((x − mean) / max(std, floor), ±10), goals by the statistics of what they are of.
    Of the robot's own vector the floor is larger for what never moved: over the whole set it stayed within two steps of
    the coarsest encoders, an SO-101's 12 bits. That is the bound for finer ones as well (a step of 19 bits is 12 µrad):
    a joint that is held sags and drifts by a milliradian, not by a step, and without the larger floor half a degree
    beside that would be 8.7 deviations. What is lost is 3 mm of the tcp at most, at the end of an arm of a metre.
    By quantiles, which wild frames do not move, mean and std are (q01 + q99) / 2 and (q99 − q01) / 4.652, of a
    component that moves in more than a hundredth.
    The vector of a sentence, of length 1: z = √D v, whatever the sentences of the demonstrations were.
    Images: uint8 HWC → floats CHW in [0, 1].
    Actions: z = (a − centre) / half, with [centre − half, centre + half] within [-1, 1].

    Built on the CPU by `from_statistics`; the constructor alone gives the identity, to load weights into.
    """

    def __init__(self, interface: Interface) -> None:
        super().__init__()
        self.images = frozenset(key for key, spec in interface.observation.items() if is_image(spec))
        self.vectors = tuple(key for key in sorted(interface.observation) if key not in self.images)
        for key in self.vectors:
            shape = interface.observation[key].shape
            self.register_buffer(_buffer(key, "mean"), torch.zeros(shape, device="cpu"))
            self.register_buffer(_buffer(key, "inverse_std"), torch.ones(shape, device="cpu"))
        self.action_centre: Tensor
        self.action_half: Tensor
        self.register_buffer("action_centre", torch.zeros(interface.action.shape, device="cpu"))
        self.register_buffer("action_half", torch.ones(interface.action.shape, device="cpu"))

    @staticmethod
    def from_statistics(interface: Interface, statistics: Statistics, *, quantiles: bool = False) -> Normalizer:
        """The normaliser of a dataset, of its vectors by their quantiles if asked. Raises `BadInput`: a feature without
        statistics, of another size, or with numbers that are not finite."""
        self = Normalizer(interface)
        for key in self.vectors:
            shape = interface.observation[key].shape
            if key == PROMPT:
                self.get_buffer(_buffer(key, "inverse_std")).fill_(math.sqrt(interface.observation[key].size))
                continue
            # A goal is what the feature shall be: the same numbers mean the same.
            mean, std = (_statistic(statistics, of_goal(key), name, shape) for name in ("mean", "std"))
            if quantiles:
                low, high = (_statistic(statistics, of_goal(key), name, shape) for name in ("q01", "q99"))
                mean = torch.where(high > low, (low + high) / 2, mean)
                std = torch.where(high > low, (high - low) / QUANTILES, std)
            self.get_buffer(_buffer(key, "mean")).copy_(mean)
            deviation = std.clamp_min(STD_FLOOR)
            if of_goal(key) == PROPRIO and "min" in statistics[PROPRIO] and "max" in statistics[PROPRIO]:
                least, most = (_statistic(statistics, PROPRIO, name, shape) for name in ("min", "max"))
                # Whatever its deviation: jitter evenly over two steps has more than the floor.
                deviation[most - least <= RESOLUTION] = CONSTANT
            self.get_buffer(_buffer(key, "inverse_std")).copy_(1.0 / deviation)
        low, high = (_statistic(statistics, "action", name, interface.action.shape) for name in ("min", "max"))
        centre, half = action_range(low, high)
        self.action_centre.copy_(centre)
        self.action_half.copy_(half)
        return self

    def standardise(self, observation: Mapping[str, Tensor]) -> None:
        """Take mean and deviation of the vectors from the features (B, …) of one batch."""
        for key in self.vectors:
            std, mean = torch.std_mean(observation[key], dim=0, correction=0)
            self.get_buffer(_buffer(key, "mean")).copy_(mean)
            self.get_buffer(_buffer(key, "inverse_std")).copy_(1.0 / std.clamp_min(STD_FLOOR))

    def observation(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """{feature: (B, [To,] …)} in the world's units → normalised tensors. Other features are left out. Raises
        `BadInput`: a feature is missing or has another shape."""
        out: dict[str, Tensor] = {}
        for key in (*self.vectors, *self.images):
            stand_ins = (stored_key(key), encoded_key(key)) if key in self.images else ()
            if made := {name: observation[name] for name in stand_ins if name in observation}:
                out |= made  # what an encoder made of the pictures stands in for them
                continue
            if key not in observation:
                raise BadInput("observation", got=f"no {key!r}", expected=key, available=observation)
            value = observation[key]
            if key in self.images:
                out[key] = self.picture(value)
                continue
            mean = self.get_buffer(_buffer(key, "mean"))
            if value.shape[value.ndim - mean.ndim :] != mean.shape:  # also a single number, whose shape is ()
                raise BadInput(f"observation {key!r}", got=tuple(value.shape[1:]), expected=tuple(mean.shape))
            out[key] = ((value - mean) * self.get_buffer(_buffer(key, "inverse_std"))).clamp_(-CLIP, CLIP)
        return out

    def features(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As `observation`, for critics and actors that learn beside the network."""
        return self.observation(observation)

    def picture(self, picture: Tensor) -> Tensor:
        """(…, H, W, c) uint8 → (…, c, H, W) floats in [0, 1]."""
        return picture.movedim(-1, -3).to(self.action_half.dtype) / 255.0

    def vector_back(self, key: str, value: Tensor) -> Tensor:
        """(…, D) normalised vector of the feature `key` → the world's units."""
        return value / self.get_buffer(_buffer(key, "inverse_std")) + self.get_buffer(_buffer(key, "mean"))

    def action(self, action: Tensor) -> Tensor:
        """(…, Da) in the world's [-1, 1] → normalised; demonstrations lie within ±1."""
        return (action - self.action_centre) / self.action_half

    def action_back(self, action: Tensor) -> Tensor:
        """(…, Da) normalised, within ±1 → the world's units, within ±1."""
        return torch.addcmul(self.action_centre, action, self.action_half)


def action_range(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and half-range (Da,) of each action component from the demonstrations' extremes.

    [low, high] is widened by 10% of its half-range on either side, cut to [-1, 1], and made at least ±0.05
    wide; a range that the floor would push over ±1 is moved back inside.
    """
    half = (high - low) / 2
    low, high = (low - WIDEN * half).clamp(-1, 1), (high + WIDEN * half).clamp(-1, 1)
    half = ((high - low) / 2).clamp_min(HALF_FLOOR)
    centre = ((low + high) / 2).clamp(half - 1, 1 - half)
    return centre, half


def _statistic(statistics: Statistics, key: str, name: str, shape: tuple[int, ...]) -> Tensor:
    if key not in statistics:
        raise BadInput("dataset statistics", got=f"none for {key!r}", expected=key, available=statistics)
    if name not in statistics[key]:
        raise BadInput(f"dataset statistics of {key!r}", got=f"no {name!r}", available=statistics[key])
    value = np.asarray(statistics[key][name], dtype=np.float64)
    if value.shape != tuple(shape):
        raise BadInput(f"dataset statistics of {key!r}: {name}", got=value.shape, expected=tuple(shape))
    if not np.isfinite(value).all():
        raise BadInput(f"dataset statistics of {key!r}: {name}", got="NaN or infinity", expected="finite numbers")
    return torch.from_numpy(value).float()


def _buffer(feature: str, name: str) -> str:
    """Buffer names may not contain dots."""
    return f"{feature.replace('.', '/')}/{name}"


def unfamiliar(normalizer: Normalizer, interface: Interface, observation: Observation) -> tuple[str, str]:
    """(why the policy must not act, what it has not seen) by the proprioception (1, D) of `observation`; each empty
    where there is nothing to say.

    With mean μ and deviation σ of a component, x' = x − 2πn the nearest to μ of all whole turns, and z = (x − μ) / σ:

        |z| > FAR, or |x − μ| > STILL where it never moved    the policy extrapolates
        n ≠ 0, |z| > WITHIN, 2 |x' − μ| ≤ |x − μ|, and
        |x' − μ| ≤ WITHIN σ, or FAR σ and a quarter turn      the joint is where it was, but whole turns on

    A joint that the demonstrations turned by more than half a turn has a wide σ: its place is judged by where x' is,
    too.
    """
    if PROPRIO not in normalizer.vectors or PROPRIO not in observation:
        return "", UNJUDGED
    mean, inverse = (
        normalizer.get_buffer(f"{PROPRIO}/{name}").cpu().numpy().astype(np.float64) for name in ("mean", "inverse_std")
    )
    value = np.asarray(observation[PROPRIO], np.float64)[0]
    names = interface.observation[PROPRIO].names or tuple(f"component {i}" for i in range(len(value)))
    off = value - mean
    far = np.where(np.isclose(inverse, 1 / CONSTANT), np.abs(off) > STILL, np.abs(off * inverse) > FAR)
    turns = np.round(off / (2 * math.pi))
    rest = np.abs(off - 2 * math.pi * turns)
    near = (rest * inverse <= WITHIN) | ((rest * inverse <= FAR) & (rest < math.pi / 2))
    turn = (turns != 0) & (np.abs(off * inverse) > WITHIN) & (2 * rest <= np.abs(off)) & near
    refused, warned = (
        "; ".join(
            f"{names[i]} at {value[i]:.3f}, in the demonstrations about {mean[i]:.3f}" for i in np.flatnonzero(where)
        )
        for where in (turn, far & ~turn)
    )
    refused = refused and f"a whole turn from what the policy has seen: {refused}. Turn it back"
    return refused, warned and f"the policy has not seen this: {warned}"
