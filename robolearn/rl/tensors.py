"""Dictionaries of tensors, row by row."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Normalise = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def rows(features: dict[str, Tensor], index: Tensor | slice) -> dict[str, Tensor]:
    """The rows `index` of every feature."""
    return {key: value[index] for key, value in features.items()}
