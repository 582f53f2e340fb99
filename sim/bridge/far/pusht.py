"""PushT: a disc pushes a T into its place (Chi et al., "Diffusion Policy", arXiv 2303.04137): ``pusht:state``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import gym_pusht  # noqa: F401 - registers its env
import gymnasium

from .errors import BadInput
from .facts import AdapterEnv
from .gym_env import GymSingle

SAYS = (
    "an action is the place that the disc shall go to, in a square of 512 px: -1 and 1 are its edges",
    "observed are places of disc and T [px] and the angle of the T [rad]; camera render is its picture from above",
    "its own reward, the share of the goal that is covered; success is its own (95%) and ends the episode",
)


def names() -> list[str]:
    """The tasks, by what they observe."""
    return ["state"]


def build(task: str, cameras: Sequence[str] = (), image_size: int = 84) -> AdapterEnv:
    """One world of ``pusht:state``."""
    name = task.partition(":")[2]
    if name not in names():
        raise BadInput("pusht task", got=name, available=names())
    made = gymnasium.make("gym_pusht/PushT-v0", obs_type=name, render_mode="rgb_array", disable_env_checker=True)
    single = GymSingle(made, task, cameras, image_size)
    single.facts = replace(single.facts, prompt="push the T into its place", says=SAYS)
    return single
