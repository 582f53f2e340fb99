"""The shared words, specs, protocols and errors. Knows nothing of any other room."""

from robolearn.core.errors import BadInput, NonFinite, RobolearnError
from robolearn.core.protocols import Env, Policy, StepResult, Teleoperator, begin_episodes, fit_policy, sees_every_step
from robolearn.core.specs import ArraySpec, Interface, check_compatible
from robolearn.core.types import ActionChunk, Episode, Observation, Transition

__all__ = [
    "ActionChunk",
    "ArraySpec",
    "BadInput",
    "Env",
    "Episode",
    "Interface",
    "NonFinite",
    "Observation",
    "Policy",
    "RobolearnError",
    "StepResult",
    "Teleoperator",
    "Transition",
    "begin_episodes",
    "check_compatible",
    "fit_policy",
    "sees_every_step",
]
