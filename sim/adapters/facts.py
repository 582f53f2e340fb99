"""Facts of one adapted env, the factory by which a worker process builds it, and its observations as named features.

Facts and factory cross the process boundary as JSON, so that nothing is pickled and a worker imports only what the env
needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pkgutil import resolve_name
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Interface, RobolearnError
from sim.vector import feature_space

Features = dict[str, NDArray]
"""Feature name → array of one world, without the world axis."""


@dataclass(frozen=True)
class Facts:
    """Properties of the env that a vector env repeats N times."""

    interface: Interface  # observation and action specs and the control rate
    task: str  # the name for ``--task``
    prompt: str  # the task in words
    max_episode_steps: int  # after so many steps an episode is truncated; 0 where that is unknown
    reports_success: bool = False  # every step's info holds ``"success"``
    continuing: bool = False  # episodes end by the time limit alone, never by `terminated`

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps({**vars(self), "interface": self.interface.to_json()})

    @staticmethod
    def from_json(text: str) -> Facts:
        """The inverse of `to_json`."""
        data = json.loads(text)
        return Facts(**{**data, "interface": Interface.from_json(data["interface"])})


class AdapterEnv(gymnasium.Env):
    """A single env whose observations are features and whose actions lie in [-1, 1].

    Adapters to a foreign library derive from this. `step` reports ``info["success"]`` where the task defines a
    success; `render` returns an HWC uint8 picture or None; `reset` with a seed determines the start completely.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.observation_space = gymnasium.spaces.Dict(
            {key: feature_space(spec) for key, spec in facts.interface.observation.items()}
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, facts.interface.action.shape, np.float32)


@dataclass(frozen=True)
class EnvFactory:
    """Builds one env in any process: a function by name and its JSON-able keyword arguments."""

    builder: str  # ``"package.module:function"``; the function returns an `AdapterEnv`
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> AdapterEnv:
        """Import the builder and call it."""
        return resolve_name(self.builder)(**self.kwargs)

    def to_json(self) -> str:
        """One JSON object; BadInput where an argument is no JSON value."""
        try:
            return json.dumps(asdict(self))
        except TypeError as error:
            raise BadInput("env arguments", got=str(error), expected="numbers, strings, lists and dicts") from None

    @staticmethod
    def from_json(text: str) -> EnvFactory:
        """The inverse of `to_json`."""
        return EnvFactory(**json.loads(text))


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
