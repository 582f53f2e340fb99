"""The actor: episodes in one world, each step stored in the outbox before anything else is done with it.

Everything of an episode depends on the seed, the actor's name, the episode's number and the weights alone. So in
lockstep an episode that a kill cut short is played again from its start: what is in the outbox must come out again bit
for bit, and then it goes on. In real time the arm has moved on, and such an episode stays cut.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from itertools import islice

import numpy as np

from policies.policy import ChunkPolicy
from robolearn.core import BadInput, Env, Observation, RobolearnError
from robolearn.data.replay import End, Record, ReplayStep
from robolearn.hil.agent import DoubleBufferedPolicy, Operator, SteeredAgent
from robolearn.hil.curriculum import Curriculum
from robolearn.hil.link import Link
from robolearn.hil.operator_console import ActorStatus, OperatorCommand, OperatorConsole
from robolearn.hil.outbox import Outbox
from robolearn.hil.processes import stopping
from robolearn.hil.settings import NO_CURRICULUM, NOISE, OPERATOR, STARTS, LearnerConfig, episode_seed
from robolearn.hil.wire.messages import Period
from robolearn.rewards.choice import KEY
from robolearn.rewards.online import OnlineDone
from robolearn.rollout import Engine, Episodes, Turn
from robots.chunk_execution import ExecutionHistory

log = logging.getLogger(__name__)

KEPT = 100_000  # periods that the percentiles are of: an hour and a half at 20 Hz
SWITCH_S = 1e-3  # longest wait of the control loop for the interpreter
HELD_S = 0.02  # a poll of the console that takes longer has held the world


class Periods:
    """Times between control steps."""

    def __init__(self) -> None:
        self._kept: list[float] = []

    def add(self, seconds: float) -> None:
        """Add one [s]."""
        self._kept.append(seconds)
        del self._kept[:-KEPT]

    def measured(self) -> Period:
        """Their percentiles so far; any thread may call it."""
        if not self._kept:
            return Period()
        p50, p99 = np.percentile(np.array(self._kept), (50, 99)) * 1e3
        return Period(float(p50), float(p99), len(self._kept))


class Pacer(Periods):
    """Waits for the next control step.

    Args:
      hz: rate of the steps; None: without waiting or measuring.
    """

    def __init__(self, hz: float | None) -> None:
        super().__init__()
        self._period_s = None if hz is None else 1.0 / hz
        self._next = self._last = 0.0

    def begin(self) -> None:
        """Begin an episode: its first step is due now."""
        self._next, self._last = time.perf_counter(), 0.0

    def tick(self) -> None:
        """Wait until the next step is due. After a delay of more than one period steps are not hurried."""
        if self._period_s is None:
            return
        now = time.perf_counter()
        if now < self._next:
            time.sleep(self._next - now)
            now = time.perf_counter()
        if self._last:
            self.add(now - self._last)
        self._last = now
        self._next += self._period_s
        if self._next <= now:
            self._next = now + self._period_s


class OtherWorld(RobolearnError):
    """An episode that is played again differs from the outbox."""


@dataclass(frozen=True)
class ActorResult:
    """Episodes and control steps of an actor, those of them that an operator commanded; `quit`: the operator ended
    it."""

    episodes: int
    steps: int
    interventions: int
    quit: bool = False


class ActorLoop:
    """See the module.

    Args:
      env: one world.
      buffered: the policy that acts.
      name: of the actor.
      make_operator: seed → operator of an episode.
      console: of the operator.
      task: in words; by default the world's.
      done: ends episodes as solved, or None.
    """

    def __init__(
        self,
        env: Env,
        buffered: DoubleBufferedPolicy,
        link: Link,
        outbox: Outbox,
        config: LearnerConfig,
        name: str,
        features: Sequence[str],
        make_operator: Callable[[int], Operator] | None = None,
        console: OperatorConsole | None = None,
        task: str = "",
        done: OnlineDone | None = None,
    ) -> None:
        self._done = done
        self._task = task or env.prompt
        self._env, self._engine = env, Engine(env)
        self._buffered, self._link, self._outbox = buffered, link, outbox
        self._config, self._name, self._features = config, name, tuple(features)
        self._make_operator, self._console = make_operator, console
        self._lockstep = config.pace == "lockstep"
        self._curriculum = Curriculum(config.curriculum if make_operator else NO_CURRICULUM, config.seed, name)
        self._pacer = Pacer(None if self._lockstep else env.interface.control_hz)
        delay = config.settings.acting_delay
        history = ExecutionHistory(delay, env.interface) if delay else None
        self._agent = SteeredAgent(env.interface, buffered.act, self._before_chunk, self._before_step, history)
        self._episode = self._index = 0
        self._quit = False
        link.measure = self._pacer.measured

    def run(self, stop: Callable[[], bool]) -> ActorResult:
        """Play until the learner's run is over, the operator quits or `stop` is true.

        Raises:
          BadInput: the learner refuses.
        """
        number, first = self._outbox.tail()
        self._curriculum.replay(islice(self._outbox.read(), first))
        if first < len(self._outbox) and not self._lockstep:
            number, first = number + 1, len(self._outbox)
        episodes = steps = interventions = 0

        def ends() -> bool:
            return stop() or self._quit

        while not ends() and (self._link.synchronize if self._lockstep else self._link.hold)(ends):
            try:
                length, helped, whole = self._play(number, first, ends)
                steps, interventions, episodes = steps + length, interventions + helped, episodes + whole
            except OtherWorld as other:
                log.warning("episode %d: %s; it stays cut", number, other)
            number, first = number + 1, len(self._outbox)
        self._link.drain(1.0)
        return ActorResult(episodes, steps, interventions, self._quit)

    def _play(self, number: int, first: int, stop: Callable[[], bool]) -> tuple[int, int, bool]:
        """One episode, whose first record has the number `first`: (steps, those of an operator, true where it
        ended)."""
        starts, freely = self._curriculum.begin(number)
        of_use = ((starts, STARTS), (number, NOISE), (number, OPERATOR))
        seeds = [episode_seed(self._config.seed, self._name, episode, use) for episode, use in of_use]
        self._engine.reset(seeds[0])
        if self._lockstep:
            self._buffered.swap()
        self._buffered.seed(seeds[1])
        self._agent.start(self._make_operator(seeds[2]) if self._make_operator is not None else None, freely)
        self._episode, self._index = number, 0
        if self._done is not None:
            self._done.begin(self._task, self._recorded(self._engine.observation))
        self._pacer.begin()
        interventions = 0
        for turn in self._engine.turns(self._agent, Episodes(np.ones(1, np.int64))):
            seen, helped = turn.decision.aux["observation"], turn.decision.aux["intervention"]
            label = self._agent.label or self._verdict(turn)
            labelled = label in ("success", "failure")
            by_task = self._config.reward != KEY  # else the operator's key alone counts
            step = ReplayStep(
                number,
                self._index,
                self._recorded(seen),
                turn.decision.chunk[0, 0],
                float(label == "success") if labelled or not by_task else float(turn.rewards[0, 0]),
                helped,
                "" if self._index else self._task,
            )
            self._write(first + self._index, step)
            self._index += 1
            interventions += helped
            terminated, over = by_task and bool(turn.terminated[0]), bool(turn.ended[0])
            self._quit |= label == "quit"
            dropped = label == "return" and not over  # its steps are learned from, its outcome counts nowhere
            if labelled or over:
                success = label == "success" if labelled else by_task and bool(turn.solved[0])
                ended = labelled or terminated
                end = End(number, self._index, self._recorded(turn.observation), ended, not ended, success)
                self._write(first + self._index, end)
                return self._index, interventions, True
            if dropped or stop():  # who quits is told that it drops this episode, too: it has no end
                return self._index, interventions, False
        raise AssertionError  # the quota is one episode

    def _verdict(self, turn: Turn) -> OperatorCommand | None:
        """Success where the reward model calls the running episode done; the world's own end comes first."""
        if self._done is None:
            return None
        self._done.add(np.array(turn.decision.chunk[0, 0]), self._recorded(turn.observation))
        if (reason := self._done.help_reason) and self._agent.steer():
            log.info("episode %d: %s, the operator steers from step %d", self._episode, reason, self._index + 1)
        return OperatorCommand.SUCCESS if self._done.solved and not turn.terminated[0] else None

    def _write(self, number: int, record: Record) -> None:
        self._curriculum.take(record)
        if number < len(self._outbox):
            if self._outbox.encode(record) != self._outbox.raw(number):
                raise OtherWorld(f"record {number} differs from the one before")
            return
        self._outbox.append(record)
        self._link.notify()

    def _recorded(self, observation: Observation) -> dict[str, np.ndarray]:
        return {key: np.array(observation[key][0]) for key in self._features}

    def _before_chunk(self) -> None:
        if not self._lockstep:
            self._buffered.swap()

    def _before_step(self, observation: Observation, steering: bool) -> Sequence[OperatorCommand]:
        self._pacer.tick()
        if self._console is None:
            return ()
        self._console.show(
            ActorStatus(
                episode=self._episode,
                step=self._index,
                observation=observation,
                operator=steering,
                version=self._buffered.version,
                period=self._link.period,
                linked=self._link.alive,
                unsent=len(self._outbox) - self._link.acknowledged,
                progress=self._link.progress,
                executed=self._agent.executed,
                asks_help=not steering
                and (self._buffered.uncertain or (self._done is not None and bool(self._done.help_reason))),
            )
        )
        began = time.perf_counter()
        commands = self._console.poll()
        if time.perf_counter() - began > HELD_S:
            self._pacer.begin()  # the operator held the world: that is no control step
        return commands


def act_in_world(
    env: Env,
    base: ChunkPolicy,
    outbox: Outbox,
    link: Link,
    name: str,
    make_operator: Callable[[int], Operator] | None,
    people: Callable[[Callable[[], bool]], AbstractContextManager[tuple[OperatorConsole | None, Operator | None]]],
    task: str = "",
    make_done: Callable[[LearnerConfig], OnlineDone | None] = lambda _: None,
) -> tuple[ActorResult, Period]:
    """Act in `env` for the learner of `link` until its run is over; the result, and the period of the control steps.

    Args:
      base: the learner's policy to begin with.
      link: not yet open; closed at the end.
      make_operator: seed → script that takes over, where there is no person.
      people: called with a function that is true once the actor is to end; opens the console and the person's device,
        each or None.
      task: in words; by default the world's.
      make_done: the learner's settings → what ends episodes as solved, or None.

    Raises:
      BadInput: the learner refuses, or its pace does not suit a person.
      KeyboardInterrupt: it was stopped.
    """
    link.task = task = task or env.prompt
    with stopping() as stop, closing(link), people(stop) as (console, person):
        config = link.open(stop)
        if config is None:
            raise KeyboardInterrupt
        if person is not None and config.pace != "realtime":
            raise BadInput("learner", got=f"--pace {config.pace}", expected="realtime beside a person")
        buffered = DoubleBufferedPolicy(lambda: config.settings.build(base, seed=config.seed))
        link.start(buffered)
        operators = make_operator if person is None else lambda _: person
        features = tuple(base.interface.observation)
        done = make_done(config)
        actor = ActorLoop(env, buffered, link, outbox, config, name, features, operators, console, task, done)
        sys.setswitchinterval(SWITCH_S)
        with nullcontext() if done is None else closing(done):
            result = actor.run(stop)
        if stop():
            raise KeyboardInterrupt
        return result, link.measure()
