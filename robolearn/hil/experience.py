"""Two replay buffers, filled from the actors' records.

    online           every episode
    demonstrations   the demonstrator's episodes, and of every other the windows in which an operator steered

The order in which records of several actors arrive decides where they lie in the buffers, and with that which windows
a generator draws. So `order` records how the episodes were closed: from the logs and it the buffers are rebuilt bit for
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from robolearn.data.replay import Assembler, PlayedEpisode, Record, ReplayBatch, ReplayBuffer, ReplayStep
from robolearn.rl.algorithms.off_policy import OffPolicy


@dataclass(frozen=True)
class Closed:
    """An episode that was learned from.

    Attributes:
      actor: whose.
      records: number of that actor's records that had been taken then.
      cut: it was cut short by a crash.
    """

    actor: str
    records: int
    cut: bool


@dataclass(frozen=True)
class EpisodeOutcome:
    """Outcome of an episode.

    Attributes:
      steps: control steps.
      interventions: those of them that an operator commanded.
      takeovers: number of take-overs.
      success: the task was solved.
      reward: sum.
      cut: it was cut short by a crash; its success is unknown.
    """

    steps: int
    interventions: int
    takeovers: int
    success: bool
    reward: float
    cut: bool


class Experience:
    """See the module.

    Args:
      algorithm: its settings define how windows are made and drawn.
      demonstrations: to begin with.
      score: gives an episode its rewards and its end, before anything is learned from it.

    Attributes:
      taken: actor → number of its records that were taken.
      order, outcomes: of the episodes, in the order in which they were closed.
    """

    def __init__(
        self,
        algorithm: OffPolicy,
        demonstrations: Iterable[PlayedEpisode],
        score: Callable[[PlayedEpisode], PlayedEpisode] = lambda episode: episode,
    ) -> None:
        self._algorithm, self._score = algorithm, score
        self._over: dict[str, int] = {}  # actor → the newest episode that was cut
        self._assemblers: dict[str, Assembler] = {}
        self.taken: dict[str, int] = {}
        self.order: list[Closed] = []
        self.outcomes: list[EpisodeOutcome] = []
        config, interface = algorithm.config, algorithm.kept
        self.online, self.demonstrations = (
            ReplayBuffer(
                interface,
                algorithm.chunk,
                config.capacity,
                n_step=config.n_step,
                plan=algorithm.plan,
                device=algorithm.device,
            )
            for _ in range(2)
        )
        for episode in demonstrations:
            self.demonstrations.add(algorithm.keep(score(episode)))

    @property
    def env_steps(self) -> int:
        """Control steps that can be learned from."""
        return self.online.steps

    def take(self, actor: str, record: Record) -> list[EpisodeOutcome]:
        """The next record of an actor; the episodes that it closes, the one that a crash had cut short included."""
        assembler = self._assemblers.setdefault(actor, Assembler())
        closed = []
        if record.episode <= self._over.get(actor, -1):  # the rest of an episode that was cut
            self.taken[actor] = self.taken.get(actor, 0) + 1
            return closed
        if isinstance(record, ReplayStep) and record.index == 0 and assembler.expects[1] > 0:
            closed += self.cut(actor)
        episode = assembler.add(record)
        self.taken[actor] = self.taken.get(actor, 0) + 1
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

    def sample(self, generator: torch.Generator) -> ReplayBatch:
        """A batch with the share of demonstrations of the settings, once there are both."""
        config = self._algorithm.config
        count = config.batch
        shown = round(config.demo_share * count) if len(self.online) else count
        shown = shown if len(self.demonstrations) else 0
        parts = [
            buffer.sample(n, config.gamma, generator)
            for buffer, n in ((self.online, count - shown), (self.demonstrations, shown))
            if n
        ]
        return parts[0] if len(parts) == 1 else parts[0].followed_by(parts[1])

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.online) + len(self.demonstrations)

    def _close(self, actor: str, episode: PlayedEpisode, *, cut: bool) -> EpisodeOutcome:
        episode = self._score(episode)
        kept = self._algorithm.keep(episode)
        for buffer, only in ((self.online, False), (self.demonstrations, True)):
            if only and not episode.intervention.any():
                continue
            buffer.add(kept, only_interventions=only)
        self.order.append(Closed(actor, self.taken.get(actor, 0), cut))
        steered = episode.intervention
        outcome = EpisodeOutcome(
            steps=len(episode),
            interventions=int(steered.sum()),
            takeovers=int(steered[0]) + int((steered[1:] & ~steered[:-1]).sum()),
            success=episode.success,
            reward=float(episode.reward.sum()),
            cut=cut,
        )
        self.outcomes.append(outcome)
        return outcome
