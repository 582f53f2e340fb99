"""The shared words, specs, protocols and errors. Knows nothing of any other room."""

from robolearn.core.errors import BadInput, NonFinite, RewardWithheld, RobolearnError
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
    "check_compatible",
]
