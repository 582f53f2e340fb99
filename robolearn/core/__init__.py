"""The shared words, specs, protocols and errors. Knows nothing of any other room."""

from robolearn.core.errors import BadInput, NonFinite, RobolearnError
from robolearn.core.protocols import ChunkEnv, Env, Policy, StepResult, Teleoperator, bind_policy
from robolearn.core.specs import ArraySpec, Interface, check_compatible
from robolearn.core.types import ActionChunk, Episode, Observation

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
    "RobolearnError",
    "StepResult",
    "Teleoperator",
    "bind_policy",
    "check_compatible",
]
