"""Flags of the commands that run a policy, and the goals that two of them name: a data set, or the expert of an
embedded task."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from policies.storage.backends import BackendName, InferencePrecision
from policies.wrappers.goals import EpisodeGoals, GoalChoice, Goals, check_goals, goals_of, stored_goals
from robolearn.cli.choices import Device
from robolearn.core import BadInput
from robolearn.core.specs import is_image, of_goal
from robolearn.core.switches import Seed
from robolearn.runs.command import Command

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from robolearn.core import Interface
    from sim.registry import WorldConfig

log = logging.getLogger(__name__)

EXPERT = "expert"
"""As a value of --goals: the end of the scripted expert's demonstration from the same start."""


@dataclass(frozen=True, kw_only=True)
class PolicyCommand(Command):
    """A command that runs a policy, in simulation or on an arm."""

    policy: Path
    """A run folder, a checkpoint folder, FILE.onnx, lerobot:FOLDER for a policy of LeRobot's, or episode:DATA#N to
    replay a recorded episode."""
    words: str = ""
    """The task in a sentence, for a policy that was trained with words; in simulation by default the task's own."""
    goals: str = ""
    """Goals of a policy that was trained with --goal: a data set, of whose successful demonstrations one lends its end
    to each episode, or in our simulated tasks expert: the end of the scripted expert's own demonstration from the same
    start."""
    goal_choice: GoalChoice = "nearest"
    """Which demonstration of that set: the one whose start is nearest, or one that is drawn by --seed."""
    denoise_steps: int | None = None
    """K, denoising steps; by default as trained."""
    guidance: float | None = None
    """w of a policy that was trained with a goal; by default as trained."""
    guide: Path | None = None
    """A run whose critics judge chunks (of an off-policy algorithm other than dsrl and rlpd), or its checkpoint folder:
    they choose among chunks of --policy at each decision, whatever policy that is. `robolearn evaluate --guide` says
    what they gain and cost."""
    guide_samples: int = 10
    """N, chunks of --policy that the critics choose among."""
    guide_temperature: float = 0.0
    """β: a chunk is drawn with probability proportional to exp(Q / β); 0 takes the largest Q."""
    tempo: float = 1.0
    """Factor on the policy's displacements, for actions that are displacements; below 1 for a first, slow motion."""
    seed: Seed = 1000
    """Of starts and of the policy's noise."""
    device: Device = "auto"
    backend: BackendName = "torch"
    """Backend of the policy: torch, trace (its operations, recorded), compile (torch's compiler) or onnx (onnxruntime,
    on the CPU)."""
    precision: InferencePrecision = "float32"
    """Of the decisions: float32, bfloat16 (torch, compile) or int8 (onnx)."""


def check_goal_flags(goals: str, choice: str) -> None:
    """Raise `BadInput` for a choice among goals where there is none."""
    if choice != "nearest" and goals in ("", EXPERT):
        got = choice + (" of the expert's own ends" if goals else " of no goals")
        raise BadInput("--goal-choice", got=got, expected="--goals with a data set")


@dataclass(frozen=True)
class GoalSource:
    """The source that --goals and --goal-choice name.

    Attributes:
      name: a data set, or `EXPERT`.
      choice: which demonstration of a data set; see `policies.wrappers.goals`.
      world: of an embedded task, for the expert.
      each: (N,) episodes of each world.
      seed: of the starts.
    """

    name: str
    choice: str
    world: WorldConfig
    each: NDArray[np.int64]
    seed: int

    def __call__(self, interface: Interface) -> Goals:
        """Goals for a policy with this `interface`."""
        if self.name != EXPERT:
            return stored_goals(self.name, interface, self.choice)
        return self.demonstrated(interface)

    def demonstrated(self, interface: Interface) -> EpisodeGoals:
        """The ends of the expert's demonstrations."""
        from robolearn.rollout.collect import goal_states
        from sim.experts import demonstrator

        sources = {of_goal(key): interface.observation[key] for key in goals_of(interface)}
        pictures = {key: spec for key, spec in sources.items() if is_image(spec)}
        # What an episode begins with depends on its seed and world alone: other worlds may have other cameras.
        world = replace(self.world, cameras=tuple(key.removeprefix("images.") for key in pictures), action_kind="")
        if pictures:
            world = replace(world, image_size=next(iter(pictures.values())).shape[0])
        with closing(world.build(len(self.each))) as env:
            expert = demonstrator(world.task, env, EXPERT, self.seed)
            check_goals(interface, env.interface, what=f"--goals {EXPERT} of {world.task}")
            ends, success = goal_states(env, expert, self.each, self.seed, tuple(sources))
        if success < 1.0:
            log.warning("of the expert's demonstrations, whose ends are the goals, %.0f%% succeed", 100 * success)
        return EpisodeGoals({key: ends[of_goal(key)] for key in goals_of(interface)})
