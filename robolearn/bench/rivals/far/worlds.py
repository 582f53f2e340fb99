"""Our worlds in the form that both codebases make theirs in: batched, with chunks of actions and a dict ``state``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .channel import Channel


class TheirWorlds:
    """The return of `make_async`: N worlds that live in our process.

    Attributes:
      folded: True where an episode that its clock ended counts as terminated (`repairs.truncation`).
      cut: of the present rollout (step, world, its final state) where the clock ended an episode.
      steps: of the present rollout.
    """

    def __init__(self, channel: Channel, worlds: int) -> None:
        self._channel, self.num_envs = channel, worlds
        self.folded, self.steps = False, 0
        self.cut: list[tuple[int, int, np.ndarray]] = []

    def seed(self, seeds: Any) -> None:
        """Nothing: starts are drawn where the worlds live."""

    def reset_arg(self, options_list: Any = None) -> dict[str, np.ndarray]:
        """The first states of new episodes in all worlds."""
        self._channel.send("reset", worlds=self.num_envs)
        return {"state": self._channel.receive()[1]["state"][:, None]}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        """Execute chunks (N, Ta, Da): state, reward, terminated, truncated, and an empty dict for each world."""
        self._channel.send("step", actions=np.asarray(actions, np.float32))
        found = self._channel.receive()[1]
        terminated, truncated = found["terminated"], found["truncated"]
        self.cut += [(self.steps, int(world), found["final"][world]) for world in np.flatnonzero(truncated)]
        self.steps += 1
        if self.folded:
            terminated = terminated | truncated
        return {"state": found["state"][:, None]}, found["reward"], terminated, truncated, [{}] * self.num_envs

    def close(self) -> None:
        """Nothing: they are closed where they live."""
