"""Experience from the actors' records.

The order in which records of several actors arrive decides where they lie in the buffers, and with that which windows
a generator draws. So `order` records how the episodes were closed: from the logs and it the buffers are rebuilt bit for
bit. Closing an episode and learning from it are two steps: a reward model may score it in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from robolearn.data.replay import Assembler, PlayedEpisode, Record, ReplayStep, StoredScore
from robolearn.rewards.done import FIRST_SURE, DoneRule
from robolearn.rewards.scoring import with_score
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.experience import Experience


@dataclass(frozen=True, eq=False)
class ClosedEpisode:
    """An episode that has ended and is to be learned from.

    Attributes:
      actor, number: whose, and its number there.
      records: number of that actor's records that had been taken then.
      cut: it was cut short by a crash.
    """

    actor: str
    number: int
    records: int
    cut: bool
    episode: PlayedEpisode


@dataclass(frozen=True)
class EpisodeOutcome:
    """Outcome of an episode that was learned from, or whose reward is withheld.

    Attributes:
      steps: control steps.
      interventions: those of them that an operator commanded.
      takeovers: number of take-overs.
      success: the task was solved.
      reward: sum.
      cut: it was cut short by a crash; its success is unknown.
      actor, records: whose, and the number of that actor's records that had been taken then.
      withheld: it has no reward and is not learned from; its success is unknown.
    """

    steps: int
    interventions: int
    takeovers: int
    success: bool
    reward: float
    cut: bool
    actor: str = ""
    records: int = 0
    withheld: bool = False


class RecordedExperience(Experience):
    """See the module.

    Args:
      algorithm: its settings define how windows are made and drawn.
      demonstrations: to begin with, with their rewards.
      rule: of a model's *done*.

    Attributes:
      taken: actor → number of its records that were taken.
      outcomes: of the episodes, in the order in which they were closed.
      withheld_steps: control steps of those whose reward is withheld.
    """

    def __init__(
        self,
        algorithm: OffPolicy,
        demonstrations: Iterable[PlayedEpisode],
        rule: DoneRule = FIRST_SURE,
    ) -> None:
        super().__init__(algorithm, demonstrations)
        self._rule, self._gamma = rule, algorithm.config.gamma
        self._over: dict[str, int] = {}  # actor → the newest episode that was cut
        self._assemblers: dict[str, Assembler] = {}
        self.taken: dict[str, int] = {}
        self.outcomes: list[EpisodeOutcome] = []
        self.withheld_steps = 0

    @property
    def order(self) -> list[tuple[str, int, bool]]:
        """Actor, its records, cut: of each episode."""
        return [(outcome.actor, outcome.records, outcome.cut) for outcome in self.outcomes]

    def take(self, actor: str, record: Record) -> list[ClosedEpisode]:
        """The next record of an actor; the episodes that it closes, the one that a crash had cut short included."""
        assembler = self._assemblers.setdefault(actor, Assembler())
        closed, taken = [], self.taken.get(actor, 0)
        if record.episode <= self._over.get(actor, -1):  # the rest of an episode that was cut
            self.taken[actor] = taken + 1
            return closed
        if isinstance(record, ReplayStep) and record.index == 0 and assembler.expects[1] > 0:
            closed += self.cut(actor)
        episode = assembler.add(record)
        self.taken[actor] = taken + 1
        if episode is not None:
            closed.append(ClosedEpisode(actor, record.episode, taken + 1, False, episode))
        return closed

    def cut(self, actor: str) -> list[ClosedEpisode]:
        """Close the running episode of an actor that is gone."""
        assembler = self._assemblers[actor]
        number, steps = assembler.expects
        self._over[actor] = number if steps else self._over.get(actor, -1)
        episode = assembler.cut()
        return [] if episode is None else [ClosedEpisode(actor, number, self.taken.get(actor, 0), True, episode)]

    @property
    def running(self) -> list[str]:
        """Actors with an episode that has begun and not ended."""
        return [actor for actor, assembler in self._assemblers.items() if assembler.expects[1] > 0]

    def learn(self, closed: ClosedEpisode, stored: StoredScore | None = None) -> EpisodeOutcome:
        """Learn from an episode from now on, with the rewards and the end of its score; not where that is withheld."""
        episode, withheld = closed.episode, stored is not None and stored.score is None
        if stored is not None and stored.score is not None:
            assert stored.key.steps == len(episode)
            episode = with_score(episode, stored.score, self._rule, gamma=self._gamma)
        if withheld:
            self.withheld_steps += len(episode)
        else:
            self.add(episode)
        steered = episode.intervention
        outcome = EpisodeOutcome(
            steps=len(episode),
            interventions=int(steered.sum()),
            takeovers=int(steered[0]) + int((steered[1:] & ~steered[:-1]).sum()),
            success=episode.success and not withheld,
            reward=0.0 if withheld else float(episode.reward.sum()),
            cut=closed.cut,
            actor=closed.actor,
            records=closed.records,
            withheld=withheld,
        )
        self.outcomes.append(outcome)
        return outcome
