"""The shared words, specs, protocols and errors. Knows nothing of any other room.

Errors are there at once. The other names load numpy and are looked up when they are asked for: `robolearn --help`
answers without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from robolearn.core.errors import BadInput, NonFinite, RewardWithheld, RobolearnError, check_choice, look_up

if TYPE_CHECKING:
    from robolearn.core.protocols import ChunkEnv, Env, Policy, RewardModel, StepResult, Teleoperator, bind_policy
    from robolearn.core.specs import ArraySpec, Interface, check_compatible
    from robolearn.core.types import ActionChunk, Episode, Observation, Score, Window

__all__ = [
    "ActionChunk",
    "ArraySpec",
    "BadInput",
    "ChunkEnv",
    "Env",
    "Episode",
    "Interface",
    "NonFinite",
    "Observation",
    "Policy",
    "RewardModel",
    "RewardWithheld",
    "RobolearnError",
    "Score",
    "StepResult",
    "Teleoperator",
    "Window",
    "bind_policy",
    "check_choice",
    "check_compatible",
    "look_up",
]

_FILES = {
    "protocols": ("ChunkEnv", "Env", "Policy", "RewardModel", "StepResult", "Teleoperator", "bind_policy"),
    "specs": ("ArraySpec", "Interface", "check_compatible"),
    "types": ("ActionChunk", "Episode", "Observation", "Score", "Window"),
}
_HOME = {name: file for file, names in _FILES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
