"""What an episode must be before it is stored: every feature there, of the right shape, finite, actions in range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput

ACTION_TOLERANCE = 1e-6


def present(observation: Mapping[str, Any], key: str) -> Any:
    """Feature `key` of `observation`."""
    if key not in observation:
        raise BadInput("observation", got=f"no {key!r}", expected=key, available=observation)
    return observation[key]


def checked(array: NDArray, spec: ArraySpec, lead: tuple[int, ...], what: str, step: int) -> NDArray:
    """`array` as (*lead, *spec.shape), finite; the first axis is counted from `step` in messages."""
    expected = (*lead, *spec.shape)
    if not lead and array.shape == (1, *spec.shape):
        array = array[0]
    if array.shape != expected:
        at = "" if lead else f" at step {step}"
        raise BadInput(f"{what}{at}", got=f"shape {array.shape}", expected=f"shape {expected}")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0]
        step, where = (step + int(where[0]), where[1:]) if lead else (step, where)
        component = f", component {_component(spec, where)}" if len(where) else ""
        value = array[(*([step] if lead else []), *where)]
        raise BadInput(f"{what} at step {step}{component}", got=value, expected="a finite number")
    return array


def picture(array: NDArray, spec: ArraySpec, lead: tuple[int, ...], what: str, at: str = "") -> NDArray[np.uint8]:
    """`array` as (*lead, H, W, 3) uint8."""
    if not lead and array.shape == (1, *spec.shape):
        array = array[0]
    if array.shape != (*lead, *spec.shape) or array.dtype != np.uint8:
        expected = f"shape {(*lead, *spec.shape)} uint8"
        raise BadInput(f"{what}{at}", got=f"shape {array.shape} {array.dtype}", expected=expected)
    return array


def bounded(action: NDArray, step: int) -> NDArray:
    """`action` (…, Da) clipped to [-1, 1], which it must keep to 1e-6."""
    if np.abs(action).max() > 1.0 + ACTION_TOLERANCE:
        where = np.unravel_index(int(np.abs(action).argmax()), action.shape)
        at = step if action.ndim == 1 else int(where[0])
        raise BadInput(f"action at step {at}", got=f"{action[where]:.6g}", expected="components in [-1, 1]")
    return np.clip(action, -1.0, 1.0)


def _component(spec: ArraySpec, where: NDArray) -> str:
    flat = int(np.ravel_multi_index(tuple(int(i) for i in where), spec.shape))
    return f"{flat} ({spec.names[flat]})" if flat < len(spec.names) else str(flat)
