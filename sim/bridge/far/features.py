"""Observations of a Gymnasium space as named features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from .errors import BadInput, RobolearnError
from .facts import Features, Spec

OBJECT_KEYS = ("objects", "object-state", "object_state", "achieved_goal", "desired_goal", "environment_state")


class FeatureMap:
    """Turns observations of `space` into features; a Dict in a Dict counts by its inner keys.

    =====================================================  =================
    space                                                  feature
    =====================================================  =================
    a bare Box of floats or integers                       ``proprio``
    a bare uint8 Box (H, W, 3)                             ``images.camera``
    in a Dict: one of `OBJECT_KEYS`                        ``objects``, joined in the space's order
    in a Dict: a uint8 Box (H, W, 3)                       ``images.<key>``
    in a Dict: any other Box, MultiBinary                  ``proprio``, joined in the space's order
    =====================================================  =================

    Args:
      space: the env's observation space.

    Attributes:
      specs: feature name → spec; vectors that come from a Dict name their components ``key.index``.
      notes: what is not kept as it comes.
    """

    def __init__(self, space: spaces.Space, task: str) -> None:
        self._vectors: dict[str, list[_Leaf]] = {}
        self._images: dict[str, _Leaf] = {}
        self.specs: dict[str, Spec] = {}
        wide = sorted({str(leaf.dtype) for _, leaf in _leaves(space, ()) if leaf.dtype not in (np.float32, np.uint8)})
        self.notes = tuple(f"observations of {dtype} are kept as float32" for dtype in wide)
        names: dict[str, list[str]] = {}
        for path, leaf in _leaves(space, ()):
            if isinstance(leaf, spaces.Box) and leaf.dtype == np.uint8 and len(leaf.shape) == 3:
                if leaf.shape[2] != 3:
                    raise BadInput(f"observation of {task}", got=f"uint8 {leaf.shape}", expected="images (H, W, 3)")
                feature = "images." + (path[-1] if path else "camera")
                if feature in self.specs:
                    raise BadInput(f"observation of {task}", got=f"two images {path[-1]!r}", expected="a name for each")
                self._images[feature] = _Leaf(path, leaf.shape, picture=True)
                self.specs[feature] = Spec(leaf.shape, "uint8")
                continue
            if not isinstance(leaf, (spaces.Box, spaces.MultiBinary)):
                where = f" {'.'.join(path)!r}" if path else ""
                raise BadInput(f"observation{where} of {task}", got=leaf, expected="a Box, or a Dict of Boxes")
            feature = "objects" if path and path[-1] in OBJECT_KEYS else "proprio"
            self._vectors.setdefault(feature, []).append(_Leaf(path, leaf.shape))
            size = int(np.prod(leaf.shape, dtype=int))
            names.setdefault(feature, []).extend(f"{'.'.join(path)}.{i}" for i in range(size))
        in_dict = isinstance(space, spaces.Dict)
        for feature, parts in names.items():
            self.specs[feature] = Spec((len(parts),), names=tuple(parts) if in_dict else ())

    def __call__(self, observation: Any) -> Features:
        """One observation as features; vectors float32, images uint8.

        Raises `RobolearnError`: a part that is missing, or has another shape or dtype than its space says.
        """
        features: Features = {key: leaf.read(observation) for key, leaf in self._images.items()}
        for key, leaves in self._vectors.items():
            with np.errstate(over="ignore"):  # what does not fit into float32 becomes infinite and is caught as such
                parts = [leaf.read(observation).astype(np.float32, copy=False).reshape(-1) for leaf in leaves]
            features[key] = np.concatenate(parts)
        return features


class _Leaf(NamedTuple):
    """One array of an observation, as its space declares it."""

    path: tuple[str, ...]  # keys that lead to it; none where the observation is the array
    shape: tuple[int, ...]
    picture: bool = False

    def read(self, observation: Any) -> NDArray:
        """The array."""
        for key in self.path:
            if not isinstance(observation, Mapping) or key not in observation:
                raise RobolearnError(f"{self._name} is missing: its space has it")
            observation = observation[key]
        array = np.asarray(observation)
        if array.shape != self.shape:
            raise RobolearnError(f"{self._name} has the shape {array.shape}, its space says {self.shape}")
        if self.picture and array.dtype != np.uint8:
            raise RobolearnError(f"{self._name} is a picture of {array.dtype}, its space says uint8")
        return array

    @property
    def _name(self) -> str:
        return f"observation {'.'.join(self.path)!r}" if self.path else "its observation"


def _leaves(space: spaces.Space, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], spaces.Space]]:
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from _leaves(inner, (*path, key))
    else:
        yield path, space
