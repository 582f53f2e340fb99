"""PushT: a disc pushes a T into its place (Chi et al., "Diffusion Policy", arXiv 2303.04137): ``pusht:state``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gym_pusht  # noqa: F401 - registers its env
import gymnasium
import numpy as np
from numpy.typing import NDArray

from .errors import BadInput
from .facts import Features
from .gym_env import GymSingle

SAYS = (
    "an action is the place that the disc shall go to, in a square of 512 px: -1 and 1 are its edges",
    "observed are places of disc and T [px] and the angle of the T [rad]; camera render is its picture from above",
    "success is its own (95% covered) and ends the episode with a reward of 1; its dense reward is left out",
)


def names() -> list[str]:
    """The tasks, by what they observe."""
    return ["state"]


def build(task: str, cameras: Sequence[str] = (), image_size: int = 84) -> PushTSingle:
    """One world of ``pusht:state``."""
    name = task.partition(":")[2]
    if name not in names():
        raise BadInput("pusht task", got=name, available=names())
    made = gymnasium.make("gym_pusht/PushT-v0", obs_type=name, render_mode="rgb_array", disable_env_checker=True)
    return PushTSingle(made, task, cameras, image_size)


class PushTSingle(GymSingle):
    """PushT with a sparse reward: what it pays for a share of the goal, an episode that is never solved collects most.

    Its pictures lack the cross that marks the last command, which outlives a reset.
    """

    def __init__(self, env: gymnasium.Env, task: str, cameras: Sequence[str], image_size: int) -> None:
        super().__init__(env, task, cameras, image_size)
        self.facts = replace(self.facts, prompt="push the T into its place", says=SAYS)

    def step(self, action: NDArray[np.float32]) -> tuple[Features, float, bool, bool, dict]:
        """`action` (2,) in [-1, 1]."""
        features, _, terminated, truncated, info = super().step(action)
        return features, float(info["is_success"]), terminated, truncated, info

    def render(self) -> Any:
        """A picture of disc, T and goal."""
        self._env.unwrapped._last_action = None  # type: ignore[attr-defined]
        return super().render()
