"""The actor: episodes in one world, each step in the spool before anything else is done with it.

Everything of an episode depends on the seed, the actor's name, the episode's number and the weights alone. So in
lockstep an episode that a kill cut short is played again from its start: what is in the spool must come out again bit
for bit, and then it goes on. In real time the arm has moved on, and such an episode stays cut.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from robolearn.core import Env, Observation, RobolearnError
from robolearn.data.replay import End, Record, Step
from robolearn.hil.agent import Operator, SteeredAgent
from robolearn.hil.curriculum import Curriculum
from robolearn.hil.link import Link
from robolearn.hil.pacing import Pacer
from robolearn.hil.person import ActorStatus, Ask, Person
from robolearn.hil.settings import NO_CURRICULUM, NOISE, OPERATOR, STARTS, Lesson, episode_seed
from robolearn.hil.spool import Spool
from robolearn.hil.weights import TwoSets
from robolearn.rewards.choice import KEY
from robolearn.rollout import Engine, Episodes
from robots.chunk_execution import ExecutionHistory

log = logging.getLogger(__name__)

HELD_S = 0.02  # a person who answers later than this has held the world


class OtherWorld(RobolearnError):
    """An episode that is played again comes out otherwise than the spool has it."""


@dataclass(frozen=True)
class Played:
    """What an actor did in its time: episodes, control steps, how many an operator commanded, and whether a person
    ended it."""

    episodes: int
    steps: int
    interventions: int
    quit: bool = False


class Actor:
    """See the module.

    Args:
      env: one world.
      sets: what acts.
      name: of the actor.
      make_operator: seed → who watches an episode, or None.
      person: at a console, or None.
    """

    def __init__(
        self,
        env: Env,
        sets: TwoSets,
        link: Link,
        spool: Spool,
        lesson: Lesson,
        name: str,
        features: Sequence[str],
        make_operator: Callable[[int], Operator] | None = None,
        person: Person | None = None,
    ) -> None:
        self._env, self._engine = env, Engine(env)
        self._sets, self._link, self._spool = sets, link, spool
        self._lesson, self._name, self._features = lesson, name, tuple(features)
        self._make_operator, self._person = make_operator, person
        self._lockstep = lesson.pace == "lockstep"
        self._curriculum = Curriculum(lesson.curriculum if make_operator else NO_CURRICULUM, lesson.seed, name)
        self._pacer = Pacer(None if self._lockstep else env.interface.control_hz)
        delay = lesson.settings.acting_delay
        history = ExecutionHistory(delay, env.interface) if delay else None
        self._agent = SteeredAgent(sets.act, self._before_chunk, self._before_step, history)
        self._episode = self._index = 0
        self._asked_to_stop = False
        link.measure = self._pacer.measured

    def run(self, stop: Callable[[], bool]) -> Played:
        """Play until the learner says that it is over, a person or `stop` says so.

        Raises:
          BadInput: the learner refuses.
        """
        number, first = self._spool.tail()
        self._curriculum.replay(islice(self._spool.read(), first))
        if first < len(self._spool) and not self._lockstep:
            number, first = number + 1, len(self._spool)
        episodes = steps = interventions = 0

        def ends() -> bool:
            return stop() or self._asked_to_stop

        while not ends() and (self._link.synchronize if self._lockstep else self._link.hold)(ends):
            try:
                played, helped, whole = self._play(number, first, ends)
                steps, interventions, episodes = steps + played, interventions + helped, episodes + whole
            except OtherWorld as other:
                log.warning("episode %d: %s; it stays cut", number, other)
            number, first = number + 1, len(self._spool)
        self._link.drain(1.0)
        return Played(episodes, steps, interventions, self._asked_to_stop)

    def _play(self, number: int, first: int, stop: Callable[[], bool]) -> tuple[int, int, bool]:
        """One episode, whose first record has the number `first`: (steps, of an operator, whether it came to its
        end)."""
        starts, freely = self._curriculum.begin(number)
        of_use = ((starts, STARTS), (number, NOISE), (number, OPERATOR))
        seeds = [episode_seed(self._lesson.seed, self._name, episode, use) for episode, use in of_use]
        self._engine.reset(seeds[0])
        if self._lockstep:
            self._sets.swap()
        self._sets.seed(seeds[1])
        self._agent.start(self._make_operator(seeds[2]) if self._make_operator is not None else None, freely)
        self._episode, self._index = number, 0
        self._pacer.begin()
        interventions = 0
        for turn in self._engine.turns(self._agent, Episodes(np.ones(1, np.int64))):
            seen, helped = turn.decision.aux["observation"], turn.decision.aux["intervention"]
            label = self._agent.label
            labelled = label in ("success", "failure")
            by_task = self._lesson.reward != KEY  # else the world may say what it likes: the person's key counts
            step = Step(
                number,
                self._index,
                self._recorded(seen),
                turn.decision.chunk[0, 0],
                float(label == "success") if labelled or not by_task else float(turn.rewards[0, 0]),
                helped,
            )
            self._write(first + self._index, step)
            self._index += 1
            interventions += helped
            terminated, over = by_task and bool(turn.terminated[0]), bool(turn.ended[0])
            if labelled or over or label in ("stop", "return"):
                success = label == "success" if labelled else by_task and bool(turn.solved[0])
                ended = labelled or terminated
                end = End(number, self._index, self._recorded(turn.observation), ended, not ended, success)
                self._write(first + self._index, end)
                self._asked_to_stop |= label == "stop"
                return self._index, interventions, True
            if stop():
                return self._index, interventions, False
        raise AssertionError  # the quota is one episode

    def _write(self, number: int, record: Record) -> None:
        self._curriculum.take(record)
        if number < len(self._spool):
            if self._spool.encode(record) != self._spool.raw(number):
                raise OtherWorld(f"record {number} comes out otherwise than before")
            return
        self._spool.append(record)
        self._link.notify()

    def _recorded(self, observation: Observation) -> dict[str, np.ndarray]:
        return {key: np.array(observation[key][0]) for key in self._features}

    def _before_chunk(self) -> None:
        if not self._lockstep:
            self._sets.swap()

    def _before_step(self, observation: Observation, steering: bool) -> Sequence[Ask]:
        self._pacer.tick()
        if self._person is None:
            return ()
        self._person.show(
            ActorStatus(
                episode=self._episode,
                step=self._index,
                observation=observation,
                operator=steering,
                version=self._sets.version,
                period=self._link.period,
                linked=self._link.alive,
                unsent=len(self._spool) - self._link.acknowledged,
                progress=self._link.progress,
                executed=self._agent.executed,
                asks_help=self._sets.unsure and not steering,
            )
        )
        began = time.perf_counter()
        asked = self._person.poll()
        if time.perf_counter() - began > HELD_S:
            self._pacer.begin()  # the person held the world: that is no control step
        return asked
