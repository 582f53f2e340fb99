"""Facts of one adapted env, and the factory by which a worker process builds it.

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

from robolearn.core import BadInput, Interface
from sim.vector import feature_space

Features = dict[str, NDArray]
"""Feature name → array of one world, without the world axis."""


@dataclass(frozen=True)
class Facts:
    """Properties of the env that a vector env repeats N times.

    Attributes:
      interface: observation and action specs and the control rate.
      task: the name for ``--task``.
      prompt: the task in words.
      max_episode_steps: after so many steps an episode is truncated; 0 where that is unknown.
      reports_success: every step's info holds ``"success"``.
      continuing: episodes end by the time limit alone, never by `terminated`.
    """

    interface: Interface
    task: str
    prompt: str
    max_episode_steps: int
    reports_success: bool = False
    continuing: bool = False

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
    """Builds one env in any process: a function by name and its JSON-able keyword arguments.

    Attributes:
      builder: ``"package.module:function"``; the function returns an `AdapterEnv`.
      kwargs: its keyword arguments.
    """

    builder: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> AdapterEnv:
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
    def from_json(text: str) -> EnvFactory:
        """The inverse of `to_json`."""
        return EnvFactory(**json.loads(text))
