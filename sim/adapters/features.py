"""From a Gymnasium observation space to named features.

=====================================================  =================
space                                                  feature
=====================================================  =================
a bare Box of floats or integers                       ``proprio``
a bare uint8 Box (H, W, 3)                             ``images.camera``
in a Dict: ``objects``, ``object-state``,              ``objects``, joined in the space's order
``achieved_goal``, ``desired_goal``,
``environment_state``
in a Dict: a uint8 Box (H, W, 3)                       ``images.<key>``
in a Dict: any other Box, MultiBinary                  ``proprio``, joined in the space's order
=====================================================  =================

A Dict in a Dict counts by its inner keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from robolearn.core import ArraySpec, BadInput, RobolearnError
from sim.adapters.facts import Features

OBJECT_KEYS = ("objects", "object-state", "object_state", "achieved_goal", "desired_goal", "environment_state")


class FeatureMap:
    """Turns observations of `space` into features.

    Args:
      space: the env's observation space.
      task: for messages.

    Attributes:
      specs: feature name → spec; vectors that come from a Dict name their components ``key.index``.
    """

    def __init__(self, space: gymnasium.Space, task: str) -> None:
        self._vectors: dict[str, list[Callable[[Any], Any]]] = {}
        self._images: dict[str, Callable[[Any], Any]] = {}
        self.specs: dict[str, ArraySpec] = {}
        names: dict[str, list[str]] = {}
        for path, leaf in _leaves(space, ()):
            if isinstance(leaf, spaces.Box) and leaf.dtype == np.uint8 and len(leaf.shape) == 3:
                if leaf.shape[2] != 3:
                    raise BadInput(f"observation of {task}", got=f"uint8 {leaf.shape}", expected="images (H, W, 3)")
                feature = "images." + (path[-1] if path else "camera")
                if feature in self.specs:
                    raise BadInput(f"observation of {task}", got=f"two images {path[-1]!r}", expected="a name for each")
                self._images[feature] = _getter(path)
                self.specs[feature] = ArraySpec(leaf.shape, "uint8")
                continue
            if not isinstance(leaf, (spaces.Box, spaces.MultiBinary)):
                where = f" {'.'.join(path)!r}" if path else ""
                raise BadInput(f"observation{where} of {task}", got=leaf, expected="a Box, or a Dict of Boxes")
            feature = "objects" if path and path[-1] in OBJECT_KEYS else "proprio"
            self._vectors.setdefault(feature, []).append(_getter(path))
            size = int(np.prod(leaf.shape, dtype=int))
            names.setdefault(feature, []).extend(f"{'.'.join(path)}.{i}" for i in range(size))
        in_dict = isinstance(space, spaces.Dict)
        for feature, parts in names.items():
            self.specs[feature] = ArraySpec((len(parts),), names=tuple(parts) if in_dict else ())

    def __call__(self, observation: Any) -> Features:
        """One observation as features; vectors float32, images uint8."""
        features: Features = {key: np.asarray(get(observation), np.uint8) for key, get in self._images.items()}
        for key, getters in self._vectors.items():
            with np.errstate(over="ignore"):  # what does not fit into float32 becomes infinite and is caught as such
                parts = [np.asarray(get(observation), np.float32).reshape(-1) for get in getters]
            features[key] = np.concatenate(parts)
        for key, value in features.items():
            if value.shape != self.specs[key].shape:
                wanted = self.specs[key].shape
                raise RobolearnError(f"{key} has the shape {value.shape}, its space says {wanted}")
        return features


def _leaves(space: gymnasium.Space, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], gymnasium.Space]]:
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from _leaves(inner, (*path, key))
    else:
        yield path, space


def _getter(path: tuple[str, ...]) -> Callable[[Any], Any]:
    def get(observation: Any) -> Any:
        for key in path:
            observation = observation[key]
        return observation

    return get
