"""Experience from the actors' records.

The order in which records of several actors arrive decides where they lie in the buffers, and with that which windows
a generator draws. So `order` records how the episodes were closed: from the logs and it the buffers are rebuilt bit for
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from robolearn.data.replay import Assembler, PlayedEpisode, Record, ReplayStep
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.experience import Experience


@dataclass(frozen=True)
class EpisodeOutcome:
    """Outcome of an episode that was learned from.

    Attributes:
      steps: control steps.
      interventions: those of them that an operator commanded.
      takeovers: number of take-overs.
      success: the task was solved.
      reward: sum.
      cut: it was cut short by a crash; its success is unknown.
      actor, records: whose, and the number of that actor's records that had been taken then.
    """

    steps: int
    interventions: int
    takeovers: int
    success: bool
    reward: float
    cut: bool
    actor: str = ""
    records: int = 0


class RecordedExperience(Experience):
    """See the module.

    Args:
      algorithm: its settings define how windows are made and drawn.
      demonstrations: to begin with.
      score: gives an episode its rewards and its end, before anything is learned from it.

    Attributes:
      taken: actor → number of its records that were taken.
      outcomes: of the episodes, in the order in which they were closed.
    """

    def __init__(
        self,
        algorithm: OffPolicy,
        demonstrations: Iterable[PlayedEpisode],
        score: Callable[[PlayedEpisode], PlayedEpisode] = lambda episode: episode,
    ) -> None:
        super().__init__(algorithm, demonstrations, score)
        self._over: dict[str, int] = {}  # actor → the newest episode that was cut
        self._assemblers: dict[str, Assembler] = {}
        self.taken: dict[str, int] = {}
        self.outcomes: list[EpisodeOutcome] = []

    @property
    def order(self) -> list[tuple[str, int, bool]]:
        """Actor, its records, cut: of each episode."""
        return [(outcome.actor, outcome.records, outcome.cut) for outcome in self.outcomes]

    def take(self, actor: str, record: Record) -> list[EpisodeOutcome]:
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
            closed.append(self._close(actor, episode, cut=False))
        return closed

    def cut(self, actor: str) -> list[EpisodeOutcome]:
        """Close the running episode of an actor that is gone."""
        assembler = self._assemblers[actor]
        self._over[actor] = assembler.expects[0] if assembler.expects[1] else self._over.get(actor, -1)
        episode = assembler.cut()
        return [] if episode is None else [self._close(actor, episode, cut=True)]

    @property
    def running(self) -> list[str]:
        """Actors with an episode that has begun and not ended."""
        return [actor for actor, assembler in self._assemblers.items() if assembler.expects[1] > 0]

    def _close(self, actor: str, episode: PlayedEpisode, *, cut: bool) -> EpisodeOutcome:
        episode = self.add(episode)
        steered = episode.intervention
        outcome = EpisodeOutcome(
            steps=len(episode),
            interventions=int(steered.sum()),
            takeovers=int(steered[0]) + int((steered[1:] & ~steered[:-1]).sum()),
            success=episode.success,
            reward=float(episode.reward.sum()),
            cut=cut,
            actor=actor,
            records=self.taken.get(actor, 0),
        )
        self.outcomes.append(outcome)
        return outcome
