"""Two replay buffers that an off-policy algorithm learns from.

online           every episode
demonstrations   the demonstrator's episodes, and of every other the windows in which an operator steered
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from robolearn.core import BadInput
from robolearn.data.replay import PlayedEpisode, ReplayBatch, ReplayBuffer
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.runs.checkpoint import prefixed, unprefixed

log = logging.getLogger(__name__)


class Experience:
    """See the module.

    Args:
      algorithm: its settings define how windows are made and drawn.
      demonstrations: to begin with.
      score: gives an episode its rewards and its end, before anything is learned from it; None where its reward is
        withheld, and it is not learned from.

    Raises:
      BadInput: `demonstrations` of more frames than the capacity, which would forget the oldest.
    """

    def __init__(
        self,
        algorithm: OffPolicy,
        demonstrations: Iterable[PlayedEpisode] = (),
        score: Callable[[PlayedEpisode], PlayedEpisode | None] = lambda episode: episode,
    ) -> None:
        self._algorithm, self._score = algorithm, score
        config = algorithm.config
        self.online, self.demonstrations = (
            ReplayBuffer(
                algorithm.kept,
                algorithm.chunk,
                config.capacity,
                n_step=config.n_step,
                plan=algorithm.plan,
                device=algorithm.device,
            )
            for _ in range(2)
        )
        self.show(demonstrations)

    def show(self, demonstrations: Iterable[PlayedEpisode]) -> None:
        """Learn from `demonstrations` from now on."""
        withheld = 0
        for episode in demonstrations:
            scored = self._score(episode)
            if scored is not None:
                self.demonstrations.add(self._algorithm.keep(scored))
            withheld += scored is None
        if withheld:
            log.warning("%d demonstrations are left out: their reward is withheld", withheld)
        frames, capacity = self.demonstrations.frames, self._algorithm.config.capacity
        if frames > capacity:
            raise BadInput("--capacity", got=capacity, expected=f"at least {frames}, the stored episodes' frames")

    @property
    def env_steps(self) -> int:
        """Control steps of the episodes that were added."""
        return self.online.steps

    @property
    def bytes(self) -> int:
        """Memory of both buffers [bytes]."""
        return self.online.bytes + self.demonstrations.bytes

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.online) + len(self.demonstrations)

    def add(self, episode: PlayedEpisode) -> PlayedEpisode | None:
        """Learn from `episode` from now on; returns it as it was scored, or None where its reward is withheld."""
        scored = self._score(episode)
        if scored is None:
            return None
        kept = self._algorithm.keep(scored)
        self.online.add(kept)
        self._algorithm.online = True
        if scored.intervention.any():
            self.demonstrations.add(kept, only_interventions=True)
        return scored

    def sample(self, generator: torch.Generator) -> ReplayBatch:
        """A batch with the share of demonstrations of the settings, once there are both."""
        config = self._algorithm.config
        count = config.batch
        shown = round(config.demo_share * count) if len(self.online) else count
        shown = shown if len(self.demonstrations) else 0
        parts = [
            buffer.sample(n, config.gamma, generator, config.return_weight)
            for buffer, n in ((self.online, count - shown), (self.demonstrations, shown))
            if n
        ]
        return parts[0] if len(parts) == 1 else parts[0].followed_by(parts[1])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that was added."""
        tensors, meta = {}, {}
        for name in ("online", "demonstrations"):
            rows, meta[name] = getattr(self, name).state()
            tensors |= prefixed(name, rows)
        return tensors, meta

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """The inverse of `state`."""
        for name in ("online", "demonstrations"):
            getattr(self, name).load_state(unprefixed(name, tensors), meta[name])
