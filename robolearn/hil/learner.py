"""The learner: takes records, updates, publishes weights, and can be killed at any moment.

    updates ≤ ⌊utd · (steps − warmup)⌋         steps: of the episodes in the buffer

In lockstep the updates that an episode pays for are made before anything else is taken, so what is learned depends on
the records and the seed alone; in real time records come first. A checkpoint holds networks, optimisers, generators,
counters, and which records were in the buffers; the records are in the logs. After a kill the buffers are rebuilt from
them up to the checkpoint, and the records beyond it are taken as if they came then. Where a reward model scores the
episodes (`robolearn.hil.scoring`), the learner goes on without the score in real time and waits for it in lockstep.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.policy import ChunkPolicy
from policies.storage.checkpoint import save_policy
from robolearn.core import BadInput, RobolearnError
from robolearn.data.replay import PlayedEpisode, Record, StoredScore
from robolearn.hil.experience import ClosedEpisode, EpisodeOutcome, RecordedExperience
from robolearn.hil.learner_service import LearnerState
from robolearn.hil.scoring import EpisodeScoring
from robolearn.hil.settings import Budget, LearnerConfig, LearnerOptions
from robolearn.hil.transition_receiver import TransitionReceiver
from robolearn.hil.wire.messages import pack_weights
from robolearn.io.append_only import set_aside
from robolearn.runs import Run
from robolearn.runs.checkpoint import load_latest_state, prefixed, restoring, save_state, unprefixed

log = logging.getLogger(__name__)

IDLE_S = 0.05  # longest time between two checks whether to stop
INFORM_S = 10.0  # for actors to receive that the run is over
COMING_S = 60.0  # the same where some are still to connect: the learner had nothing left to do
ALIVE_S = 5.0  # an actor whose last heartbeat is older is silent


class Learner:
    """See the module.

    Args:
      run: for metrics and checkpoints.
      base: the policy to begin with; its weights stay as they are.
      receiver: the actors' records.
      state: shared with the actors.
      demonstrations: to begin with, with their rewards.
      scoring: gives episodes their rewards and ends; None: they have them already.
      awaited: actors that are started beside it: its end waits for them to connect, a minute at most.
    """

    def __init__(
        self,
        run: Run,
        base: ChunkPolicy,
        config: LearnerConfig,
        budget: Budget,
        receiver: TransitionReceiver,
        state: LearnerState,
        demonstrations: Iterable[PlayedEpisode],
        options: LearnerOptions | None = None,
        scoring: EpisodeScoring | None = None,
        awaited: int = 0,
    ) -> None:
        self.run, self.config, self.budget, self.receiver, self.state = run, config, budget, receiver, state
        self.options, self._awaited = LearnerOptions() if options is None else options, awaited
        self.algorithm = config.settings.build(base, seed=config.seed)
        rule = config.done_rule(base.interface.control_hz)
        self.experience = RecordedExperience(self.algorithm, demonstrations, rule)
        self._scoring = scoring
        self.draws = torch.Generator().manual_seed(config.seed)
        self._lockstep = config.pace == "lockstep"
        self._waiting: deque[tuple[str, Iterator[Record]]] = deque()  # records beyond the checkpoint
        self._sums: dict[str, Tensor] = {}  # of the metrics since the last row
        self._summed = 0
        self._silent: set[str] = set()  # actors whose last heartbeat is old
        self._worked_s, self._began = 0.0, time.monotonic()
        self._restore()

    @property
    def updates(self) -> int:
        return self.algorithm.updates

    @property
    def allowed(self) -> int:
        """Updates that the steps so far pay for."""
        return self.algorithm.config.updates_paid(self.experience.env_steps)

    @property
    def due(self) -> bool:
        """True where an update is to be made."""
        return self.updates < self.allowed and len(self.experience) > 0

    @property
    def finished(self) -> bool:
        """True once the budget is spent, and in lockstep all updates are made that it pays for."""
        played = self.experience.env_steps + self.experience.withheld_steps
        spent = self.budget.spent(played, len(self.experience.outcomes))
        return spent and not (self._lockstep and self.due)

    @property
    def wall_s(self) -> float:
        """Seconds of work since the run began, over all resumptions."""
        return self._worked_s + time.monotonic() - self._began

    def learn(self, stop: Callable[[], bool], progress: Callable[[int, dict[str, float]], None]) -> bool:
        """Work until the budget is spent (true) or `stop` is true (false); saves at the end either way.

        Raises:
          RobolearnError: a log cannot be written.
        """
        self.publish()
        self._show()
        saved = time.monotonic()
        while not stop() and not self.finished:
            if not self.step():
                self.receiver.wait(IDLE_S, held=self._held)
            if self.receiver.failure is not None:
                raise RobolearnError(f"the log of transitions cannot be written: {self.receiver.failure.strerror}")
            self.check_actors()
            progress(self.experience.env_steps, vars(self.state.progress))
            if time.monotonic() - saved >= self.options.checkpoint_s:
                self.save()
                saved = time.monotonic()
        self.save()
        if not self.finished:
            return False
        self.publish()
        self.state.finish(self.experience.taken)
        self._inform_actors(stop)
        return True

    def save(self) -> None:
        """Write a checkpoint; the one before it goes only then."""
        self.receiver.sync()
        if self._scoring is not None:
            self._scoring.sync()
        tensors, meta = self.algorithm.state()
        tensors |= {"draws": self.draws.get_state()} | prefixed("sums", self._sums)
        counters = {"wall_s": self.wall_s, "summed": self._summed}
        save_state(self.run.state_dir, tensors, {"algorithm": meta, "order": self.experience.order, **counters})
        self.run.export(lambda folder: save_policy(self.algorithm.policy, folder))

    # --- one piece of work ----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Learn from an episode that was scored, take a record or make an update; false where there is none of it."""
        if self._lockstep and self.due:
            self._update()
            return True
        scoring = self._scoring
        if scoring is not None and (scored := scoring.next()) is not None:
            self._learn_from(*scored)
            return True
        found = None if self._held else self._next()
        if found is not None:
            self._take(*found)
            return True
        if self.due:
            self._update()
            return True
        return False

    @property
    def _held(self) -> bool:
        """True where no record is taken until a score is there."""
        return self._scoring is not None and (self._scoring.busy if self._lockstep else self._scoring.full)

    def _next(self) -> tuple[str, Record] | None:
        """The next record to learn from: of the logs, read one by one, before what comes now."""
        while self._waiting:
            actor, stored = self._waiting[0]
            if (record := next(stored, None)) is not None:
                return actor, record
            self._waiting.popleft()
        return self.receiver.take()

    def _take(self, actor: str, record: Record) -> None:
        for closed in self.experience.take(actor, record):
            self._close(closed)
        self._show()

    def _close(self, closed: ClosedEpisode) -> None:
        if self._scoring is None:
            self._learn_from(closed)
        else:
            self._scoring.submit(closed)

    def _learn_from(self, closed: ClosedEpisode, stored: StoredScore | None = None) -> None:
        self._log(self.experience.learn(closed, stored))
        self._show()

    def _update(self) -> None:
        for name, value in self.algorithm.update(self.experience.sample(self.draws)).items():
            self._sums[name] = self._sums.get(name, torch.zeros(())) + value.detach().cpu()
        self._summed += 1
        self._show()

    def _show(self) -> None:
        """Publish progress; in lockstep only once all updates that are due are made."""
        behind = self.updates - self.state.version
        if self._lockstep and (self.due or self.finished):  # its actors receive the end together with the last episode
            return
        if self._lockstep and self._held:
            return
        if behind and (self._lockstep or behind >= self.options.publish_every or not self.due):
            self.publish()
        for actor, records in self.experience.taken.items():
            self.state.process(actor, records)

    def publish(self) -> None:
        """Publish the weights that actors act by; in lockstep only between updates."""
        if self._lockstep and self.due:
            return
        tensors = {key: value.cpu().numpy() for key, value in self.algorithm.acting().items()}
        self.state.publish(pack_weights(self.updates, tensors))

    def _log(self, outcome: EpisodeOutcome) -> None:
        updates = {name: float(value) / max(self._summed, 1) for name, value in self._sums.items()}
        self._sums, self._summed = {}, 0
        steps = self.experience.env_steps
        row = {
            "actor": outcome.actor,
            "env_steps": steps,
            "episode_steps": outcome.steps,
            "success": outcome.success and not outcome.cut,
            "interventions": outcome.interventions,
            "takeovers": outcome.takeovers,
            "episode_return": outcome.reward,
            "cut": outcome.cut,
            "withheld": outcome.withheld,
            "updates": self.updates,
            "utd": self.updates / max(steps, 1),
            "replay_mb": self.experience.bytes / 1e6,
            "wall_s": self.wall_s,
        }
        self.run.log(len(self.experience.outcomes) - 1, row | updates)
        self.state.show(q=updates.get("q", math.nan), **self._shown())

    def _shown(self) -> dict[str, float]:
        free, rate = summary(self.experience.outcomes, self.options.success_window)
        return {
            "success": sum(o.success for o in free) / len(free) if free else math.nan,
            "intervention_rate": rate,
            "env_steps": self.experience.env_steps,
            "updates": self.updates,
        }

    def check_actors(self) -> None:
        """Log once when one is silent, and once when it is back; cut the episode of one that is silent for too long.

        In lockstep nothing is cut: an actor that comes back plays its episode again from its start.
        """
        now = time.monotonic()
        for actor, at in tuple(self.state.last_heartbeat.items()):
            if (now - at > ALIVE_S) != (actor in self._silent):
                back = actor in self._silent
                (self._silent.discard if back else self._silent.add)(actor)
                log.warning("actor %s %s", actor, "is back" if back else "is silent: waiting for it")
        for actor in () if self._lockstep else self.experience.running:
            silent_s = now - self.state.last_heartbeat.get(actor, self._began)
            if silent_s > self.options.cut_after_s and not self._has_more(actor):
                log.warning("actor %s is gone: its episode is cut", actor)
                for closed in self.experience.cut(actor):
                    self._close(closed)
                self._show()

    def _has_more(self, actor: str) -> bool:
        return any(name == actor for name, _ in self._waiting) or self.receiver.waits

    def _inform_actors(self, stop: Callable[[], bool]) -> None:
        """Wait until the actors have received that the run is over; those that are awaited have to connect first."""
        beats, informed = self.state.last_heartbeat, self.state.informed
        until = time.monotonic() + (COMING_S if len(beats) < self._awaited else INFORM_S)
        while not stop() and (now := time.monotonic()) < until:
            gone = all(actor in informed or now - at > ALIVE_S for actor, at in beats.items())
            if len(beats) >= self._awaited and gone:
                return
            time.sleep(IDLE_S)

    # --- after a kill ---------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        stored = {actor: self.receiver.stored(actor) for actor in self.receiver.actors}
        found = load_latest_state(self.run.state_dir)
        if found is not None:
            tensors, meta = found
            with restoring(self.run.state_dir):
                for actor, count, cut in meta["order"]:
                    self._rebuild(stored, actor, count, cut)
                self.algorithm.load_state(tensors, meta["algorithm"])
                self.draws.set_state(tensors["draws"])
                self._worked_s, self._summed = float(meta["wall_s"]), int(meta["summed"])
                self._sums = unprefixed("sums", tensors)
        self.run.rewind(len(self.experience.outcomes))
        anew = {actor: self.receiver.actors[actor].count - self.experience.taken.get(actor, 0) for actor in stored}
        self._waiting.extend((actor, records) for actor, records in stored.items() if anew[actor])
        if found is not None or self._waiting:
            log.info("resumed %s: %d episodes, %d updates, %d records to be taken anew%s", self.run.path,
                     len(self.experience.outcomes), self.updates, sum(anew.values()),
                     f", {self._scoring.made} episodes scored anew" if self._scoring is not None else "")  # fmt: skip

    def _rebuild(self, stored: dict[str, Iterator[Record]], actor: str, records: int, cut: bool) -> None:
        """Take the records of an episode; those of its actor in `stored` go on after them."""
        there = self.receiver.actors[actor].count if actor in stored else 0
        if there < records:
            kept = ", ".join(map(str, set_aside(self.receiver.actors[actor].log.path))) if actor in stored else ""
            raise BadInput(
                f"log of actor {actor!r}", got=f"{there} records",
                expected=f"at least {records}, as when the state was saved",
                hint=f"The log was damaged; what followed is in {kept}" if kept else "",
            )  # fmt: skip
        closed: list[ClosedEpisode] = []
        for record in islice(stored[actor], records - self.experience.taken.get(actor, 0)):
            closed += self.experience.take(actor, record)
        if cut:
            closed += self.experience.cut(actor)
        (one,) = closed
        assert (one.actor, one.records, one.cut) == (actor, records, cut)
        self.experience.learn(one, None if self._scoring is None else self._scoring.score_now(one))


def summary(outcomes: list[EpisodeOutcome], window: int) -> tuple[list[EpisodeOutcome], float]:
    """(the last `window` episodes with a known outcome and no intervention, the share of steps that an operator
    commanded in the last `window` episodes of all)."""
    free = [o for o in outcomes if not o.interventions and not o.cut and not o.withheld][-window:]
    last = outcomes[-window:]
    steps = sum(o.steps for o in last)
    return free, sum(o.interventions for o in last) / steps if steps else math.nan


def result_of(learner: Learner) -> dict[str, Any]:
    """The numbers of a run, for ``--json``."""
    from robolearn.eval.intervals import Success

    outcomes, steps = learner.experience.outcomes, learner.experience.env_steps
    free, rate = summary(outcomes, learner.options.success_window)
    hz = learner.algorithm.base.interface.control_hz
    periods = learner.state.periods
    slowest = max(periods.values(), key=lambda period: period.p99, default=None)
    return {
        "run": str(learner.run.path),
        "policy": str(learner.run.policy_dir),
        "algorithm": learner.config.algo,
        "success": Success.of(sum(o.success for o in free), len(free)).to_json() if free else None,
        "episodes": len(outcomes),
        "withheld": sum(o.withheld for o in outcomes),
        "env_steps": steps,
        "robot_minutes": steps / hz / 60.0,
        "intervention_rate": rate,
        "operator_steps": sum(o.interventions for o in outcomes),
        "cycle_s": np.mean(quick).item() / hz if (quick := [o.steps for o in free if o.success]) else None,
        "updates": learner.updates,
        "utd": learner.updates / max(steps, 1),
        "period_ms": None if slowest is None else {"p50": slowest.p50, "p99": slowest.p99},
        "wall_s": {"total": learner.wall_s},
    }
