"""Settings of a run: the algorithm, the pace, the budget. Loads no torch."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from robolearn.core import BadInput
from robolearn.rl.algorithms import OffPolicyConfig, algorithms

Pace = Literal["lockstep", "realtime"]
"""lockstep: at each episode's end the actor waits for the learner; what comes out depends on the seed alone. realtime:
the actor keeps its rate, and the learner does what it can."""


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """The operator's help beyond corrections; see `robolearn.hil.curriculum`."""

    free: float = 0.8
    """Share of the first episodes that the operator steers from their start; it falls to 0 over --free-steps."""
    free_steps: int = 8000
    """Control steps until the operator only corrects."""
    revisit: float = 0.5
    """Share of the episodes that begin as one in which the policy failed or was helped, while there are any."""

    def __post_init__(self) -> None:
        if not (0.0 <= self.free <= 1.0 and 0.0 <= self.revisit <= 1.0 and self.free_steps >= 0):
            got = (self.free, self.free_steps, self.revisit)
            raise BadInput("--free, --free-steps, --revisit", got=got, expected="0 to 1, at least 0, 0 to 1")


NO_CURRICULUM = CurriculumConfig(free=0.0, free_steps=0, revisit=0.0)


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Settings that the learner decides and its actors share.

    Attributes:
      algo: the name of an off-policy algorithm in `robolearn.rl.algorithms.ALGORITHMS`.
      settings: of the algorithm.
      pace: see `Pace`.
      seed: of starts, noise and everything else.
      curriculum: of the operators, where there are any.
      reward: where rewards come from, see `robolearn.rewards`.
    """

    algo: str
    settings: OffPolicyConfig
    pace: Pace = "lockstep"
    seed: int = 0
    curriculum: CurriculumConfig = NO_CURRICULUM
    reward: str = "task"

    def to_text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> LearnerConfig:
        """The inverse of `to_text`.

        Raises:
          BadInput: text of another version of robolearn, or none.
        """
        try:
            values = json.loads(text)
            kind = algorithms(OffPolicyConfig)[values["algo"]]
            settings = TypeAdapter(kind).validate_python(values["settings"])
            if values["pace"] not in ("lockstep", "realtime") or values["settings"].keys() != asdict(settings).keys():
                raise ValueError("other settings")
            return LearnerConfig(
                algo=values["algo"],
                settings=settings,
                pace=values["pace"],
                seed=int(values["seed"]),
                curriculum=TypeAdapter(CurriculumConfig).validate_python(values["curriculum"]),
                reward=str(values["reward"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError) as error:
            raise BadInput("the learner's settings", got=str(error).splitlines()[0]) from None


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Length of a run, which ends with the episode in which one of these is reached.

    Attributes:
      env_steps: control steps of all actors.
      episodes: 0 for as many as there are.
    """

    env_steps: int
    episodes: int = 0

    def spent(self, env_steps: int, episodes: int) -> bool:
        """True once it is."""
        return env_steps >= self.env_steps or 0 < self.episodes <= episodes


@dataclass(frozen=True, kw_only=True)
class LearnerOptions:
    """Options of the learner that change nothing of the outcome in lockstep.

    Attributes:
      publish_every: updates between two versions of the weights, in real time.
      checkpoint_s: seconds between two checkpoints.
      success_window: number of last intervention-free episodes that the success is of.
      cut_after_s: in real time, the episode of an actor that is silent for so long is cut: its steps are learned from,
        its outcome is unknown.
      awaited: actors that are started beside it: its end waits for them to connect, a minute at most.
    """

    publish_every: int = 50
    checkpoint_s: float = 30.0
    success_window: int = 100
    cut_after_s: float = 60.0
    awaited: int = 0


def episode_seed(seed: int, actor: str, episode: int, use: int) -> int:
    """A seed below 2³² of one episode, for the use number `use` (`STARTS`, `NOISE`, …)."""
    words = np.random.SeedSequence([seed, zlib.crc32(actor.encode()), episode, use]).generate_state(1)
    return int(words[0])


STARTS, NOISE, OPERATOR, CURRICULUM = range(4)
