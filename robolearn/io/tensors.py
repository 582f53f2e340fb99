"""Safetensors, which may come from anybody: one that is damaged is bad input. Loads torch for tensors alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from robolearn.core import BadInput
from robolearn.core.errors import first_line

if TYPE_CHECKING:
    from torch import Tensor

DAMAGED = (SafetensorError, ValueError, KeyError, TypeError, OverflowError, AttributeError)


def arrays_in(content: bytes, *, what: str) -> dict[str, NDArray]:
    """The arrays in the bytes of a file or a message. Raises `BadInput` about `what`: it is no safetensors."""
    try:
        return load(content)
    except DAMAGED as error:
        raise BadInput(what, got=f"no safetensors ({error})", expected="safetensors") from None


def tensors_in(path: Path, *, what: str, expected: str) -> dict[str, Tensor]:
    """The tensors in a file. Raises `BadInput` about `what`: it is missing or damaged."""
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, RuntimeError, *DAMAGED) as error:
        raise BadInput(what, got=f"a damaged file ({first_line(error)})", expected=expected) from None
