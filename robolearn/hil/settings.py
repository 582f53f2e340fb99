"""Settings of a run: the algorithm, the pace, the budget. Loads no torch."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import TypeAdapter

from robolearn.core import BadInput
from robolearn.core.switches import Count, Seed, Within
from robolearn.rewards.choice import SPARSE, TASK, reward_config
from robolearn.rewards.done import DoneRule
from robolearn.rl.algorithms import OffPolicyConfig, algorithms

Pace = Literal["lockstep", "realtime"]
ENV_STEPS = 24_000  # twenty minutes at 20 Hz


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """The operator's help beyond corrections; see `robolearn.hil.curriculum`."""

    free: float = 0.8
    """In a world: share of the first episodes that the operator steers from their start; it falls to 0 over
    --free-steps. On an arm the person takes over at will."""
    free_steps: int = 8000
    """Control steps until the operator only corrects."""
    revisit: float = 0.5
    """In a world: share of the episodes that begin as one in which the policy failed or was helped, while there are
    any."""
    help_after_s: float = 0.0
    """With a reward model that ends episodes: seconds in which its progress gains nothing, after which the operator
    steers, or is asked to; in place of --free and its clock. 0: by the clock."""
    help_at_loss: float = 0.0
    """The same where its progress falls by so much from the best of the episode, 0 to 1, in --done-frames verdicts in a
    row. 0: not by that."""

    def __post_init__(self) -> None:
        if not (0.0 <= self.free <= 1.0 and 0.0 <= self.revisit <= 1.0 and self.free_steps >= 0):
            got = (self.free, self.free_steps, self.revisit)
            raise BadInput("--free, --free-steps, --revisit", got=got, expected="0 to 1, at least 0, 0 to 1")
        if not 0 <= self.help_after_s < math.inf:
            raise BadInput("--help-after-s", got=self.help_after_s, expected="a number of seconds, at least 0")
        if not 0 <= self.help_at_loss <= 1:
            raise BadInput("--help-at-loss", got=self.help_at_loss, expected="0 to 1")

    @property
    def by_progress(self) -> bool:
        """True where a reward model's progress says when to help, in the place of the clock."""
        return self.help_after_s > 0 or self.help_at_loss > 0


NO_CURRICULUM = CurriculumConfig(free=0.0, free_steps=0, revisit=0.0)


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Settings that the learner decides and its actors share."""

    algo: str
    """The algorithm."""
    settings: OffPolicyConfig
    pace: Pace = "lockstep"
    """lockstep: the actor waits for the learner at each episode's end, and the outcome depends on the seed alone.
    realtime: the actor keeps its rate, and never waits."""
    seed: Seed = 0
    """Of starts, noise and everything else."""
    curriculum: CurriculumConfig = NO_CURRICULUM
    reward: str = "task"
    """task, or sparse: the world's own, and what a person says; key: the person's success key alone; or a reward model,
    which scores each episode before it is learned from: a critic's folder, <family>:<model> of a vision-language model,
    serve:<host>:<port> or <module>:<Class>."""
    done_hz: float = 5.0
    """Verdicts a second by which a reward model ends a running episode as solved; 0: it only scores."""
    done_frames: Count = 3
    """Verdicts in a row for that, and for an episode that is scored."""
    done_threshold: float = 0.5
    """Least confidence with which a reward model's *done* counts, in the running episode and in the scores."""
    done_check: str = ""
    """A second reward model, as of --reward, e.g. one of proprioception, that has to agree before an episode ends as
    solved, in the running episode and in the scores."""

    def __post_init__(self) -> None:
        if self.reward == SPARSE:  # one reward, one name
            object.__setattr__(self, "reward", TASK)

    @property
    def ends_online(self) -> bool:
        """True where a reward model is to end episodes."""
        return self.done_hz > 0 and not reward_config(self.reward).recorded

    def done_rule(self, control_hz: float) -> DoneRule:
        """The rule by which a reward model's *done* ends an episode of `control_hz`."""
        return DoneRule.at(control_hz, self.done_hz, self.done_frames, self.done_threshold)

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> LearnerConfig:
        """The inverse of `to_text`.

        Raises:
          BadInput: text of another version of robolearn, or none.
        """
        try:
            values = json.loads(text)
            settings = TypeAdapter(algorithms(OffPolicyConfig)[values["algo"]]).validate_python(values["settings"])
            missing = {field.name for field in fields(LearnerConfig)} - values.keys()
            if missing or values["settings"].keys() != asdict(settings).keys():
                raise ValueError("other settings")
            return TypeAdapter(LearnerConfig).validate_python(values | {"settings": settings})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadInput("the learner's settings", got=str(error).splitlines()[0]) from None


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Length of a run, which ends with the episode in which one of these is reached."""

    env_steps: Count = ENV_STEPS
    """Budget of control steps of all actors; the episode in which it is reached is the last."""
    episodes: Annotated[int, Within(0)] = 0
    """Budget of episodes; 0 for as many as the steps allow."""

    def spent(self, env_steps: int, episodes: int) -> bool:
        return env_steps >= self.env_steps or 0 < self.episodes <= episodes


@dataclass(frozen=True, kw_only=True)
class LearnerOptions:
    """Options of the learner that change nothing of the outcome in lockstep."""

    cut_after_s: float = 60.0
    """In real time: the episode of an actor that is silent for so long is learned from without its outcome."""
    success_window: Count = 100
    """Number of the last intervention-free episodes over which success is counted."""
    publish_every: Count = 50
    """Updates between two versions of the weights, in real time."""
    checkpoint_s: float = 30.0
    """Seconds between two checkpoints."""
    score_timeout_s: float = 60.0
    """With a reward model: seconds for it to score an episode; then its reward is withheld, and it is not learned
    from."""


@dataclass(frozen=True, kw_only=True)
class LearnerRun(LearnerConfig, Budget, LearnerOptions):
    """A learner's run."""

    policy: Path
    """A run folder or a checkpoint folder: the policy to begin with; its weights stay as they are. Or lerobot:<folder>,
    a diffusion policy or a SmolVLA of LeRobot's, for algorithms that only sample from it."""
    demos: Path | None = None
    """A data set of demonstrations; failures among them are left out."""
    words: str = ""
    """The task in a sentence, for a policy that takes it in words, which its actors must have, too; by default that of
    --demos."""
    out: Path
    """The run folder."""
    device: str = "auto"
    """Device of the learner: auto, cpu, cuda or cuda:<i>."""
    resume: bool = False
    """Go on with the run in --out, exactly."""

    @property
    def shared(self) -> LearnerConfig:
        """The part of it that actors share."""
        return LearnerConfig(**{field.name: getattr(self, field.name) for field in fields(LearnerConfig)})


def episode_seed(seed: int, actor: str, episode: int, use: int) -> int:
    """A seed below 2³² of one episode, for the use number `use` (`STARTS`, `NOISE`, …)."""
    words = np.random.SeedSequence([seed, zlib.crc32(actor.encode()), episode, use]).generate_state(1)
    return int(words[0])


STARTS, NOISE, OPERATOR, CURRICULUM, AUDIT = range(5)
