"""What one outside env tells about itself, and the recipe by which a worker process builds it.

Both cross the process boundary as JSON, so that nothing is pickled and a worker imports only what the env needs.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, Interface

Features = dict[str, NDArray]
"""Feature name → array of one world, without the world axis."""


@dataclass(frozen=True)
class Facts:
    """What a vector env must know of the env that it repeats N times.

    Attributes:
      interface: observation and action specs and the control rate.
      task: the name for ``--task``.
      prompt: the task in words.
      max_episode_steps: after so many steps an episode is truncated.
    """

    interface: Interface
    task: str
    prompt: str
    max_episode_steps: int

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps({**vars(self), "interface": self.interface.to_json()})

    @staticmethod
    def from_json(text: str) -> Facts:
        """The inverse of `to_json`."""
        data = json.loads(text)
        return Facts(**{**data, "interface": Interface.from_json(data["interface"])})


class OutsideEnv(gymnasium.Env):
    """A single env whose observations are features and whose actions lie in [-1, 1].

    Adapters to a foreign library derive from this. `step` reports ``info["success"]``; `render` returns an HWC
    uint8 picture or None; `reset` with a seed determines the start completely.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.observation_space = gymnasium.spaces.Dict(
            {key: feature_space(spec) for key, spec in facts.interface.observation.items()}
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, facts.interface.action.shape, np.float32)


def feature_space(spec: ArraySpec) -> gymnasium.spaces.Box:
    """The Gymnasium space of one feature."""
    if spec.dtype == "uint8":
        return gymnasium.spaces.Box(0, 255, spec.shape, np.uint8)
    return gymnasium.spaces.Box(-np.inf, np.inf, spec.shape, np.float32)


@dataclass(frozen=True)
class Recipe:
    """How to build one env in any process: a function by name and its JSON-able keyword arguments.

    Attributes:
      builder: ``"package.module:function"``; the function returns an `OutsideEnv`.
      kwargs: its keyword arguments.
    """

    builder: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> OutsideEnv:
        """Import the builder and call it."""
        module, _, function = self.builder.partition(":")
        return getattr(importlib.import_module(module), function)(**self.kwargs)

    def to_json(self) -> str:
        """One JSON object; BadInput where an argument is no JSON value."""
        try:
            return json.dumps(asdict(self))
        except TypeError as error:
            raise BadInput("env arguments", got=str(error), expected="numbers, strings, lists and dicts") from None

    @staticmethod
    def from_json(text: str) -> Recipe:
        """The inverse of `to_json`."""
        return Recipe(**json.loads(text))
