"""Sampling weights of episodes, in ``meta/robolearn_weights.json``: what a quality report hands to training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.remote import RemotePath


def read_weights(root: Path | RemotePath, episodes: int) -> list[float] | None:
    """One weight ≥ 0 per episode of the data set `root`, or None where it has none.

    Raises:
      BadInput: they are not that; the set may have grown since.
    """
    if not (root / layout.WEIGHTS_PATH).exists():
        return None
    weights = layout.read_json(root, layout.WEIGHTS_PATH).get("weights")
    return check_weights(weights, episodes, what=f"data set {root}: {layout.WEIGHTS_PATH}")


def write_weights(root: Path, weights: Sequence[float], episodes: int, made_by: str) -> None:
    """Replace the weights of the data set `root` of so many `episodes`; `made_by` names their origin."""
    checked = check_weights(list(weights), episodes, what="weights")
    commit = layout.commit(root)
    commit.stage(layout.WEIGHTS_PATH, layout.json_bytes({"weights": checked, "made_by": made_by}, indent=4))
    commit.publish()


def check_weights(weights: object, episodes: int, *, what: str) -> list[float]:
    """`weights` as floats, one for each episode, none negative and not all of them zero."""
    numbers = isinstance(weights, list) and all(isinstance(w, (int, float)) for w in weights)
    array = np.asarray(weights if numbers else [], np.float64)
    if array.shape != (episodes,):
        raise BadInput(what, got=f"{array.size} weights", expected=f"one for each of {episodes} episodes")
    if not np.isfinite(array).all() or array.min() < 0 or not array.sum():
        raise BadInput(what, got=weights, expected="finite numbers ≥ 0, one of them positive")
    return array.tolist()
