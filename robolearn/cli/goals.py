"""Sources of goals for policies that were trained with --goal: a data set, or the expert of an embedded task."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from policies.wrappers.goals import EpisodeGoals, Goals, check_goals, goals_of, stored_goals
from robolearn.core import BadInput
from robolearn.core.specs import is_image, of_goal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from robolearn.core import Interface
    from sim.registry import WorldConfig

log = logging.getLogger(__name__)

EXPERT = "expert"
"""As a value of --goals: the end of the scripted expert's demonstration from the same start."""


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
