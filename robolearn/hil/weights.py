"""The weights that an actor acts by: a set in use, and a spare one that the next are loaded into beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from robolearn.core import Observation
from robolearn.rl.algorithms.off_policy import OffPolicy
from robots.chunk_execution import Delayed


class TwoSets:
    """Acts by one of two algorithms while the other one is loaded.

    Args:
      make: an algorithm; it is called twice.

    Attributes:
      version: of the weights in use; −1: none yet.
      unsure: the last chunk of the episode was chosen in doubt.
    """

    def __init__(self, make: Callable[[], OffPolicy]) -> None:
        self._used, self._spare = make(), make()
        self._spare.generator = self._used.generator  # one stream of noise, whichever acts
        self._lock = threading.Lock()
        self._ready: int | None = None
        self.version = -1
        self.unsure = False

    @property
    def newest(self) -> int:
        """Version of the weights that were loaded last."""
        ready = self._ready
        return self.version if ready is None else ready

    @property
    def loaded(self) -> bool:
        """Whether there are any."""
        return self.newest >= 0

    @property
    def like(self) -> dict[str, NDArray]:
        """Weights of the right names, types and shapes."""
        return {key: value.cpu().numpy() for key, value in self._used.acting().items()}

    def load(self, version: int, tensors: Mapping[str, NDArray]) -> None:
        """Load weights into the spare set; any thread may call it."""
        with self._lock:
            self._spare.load_acting({key: torch.from_numpy(np.array(value)) for key, value in tensors.items()})
            self._ready = version

    def swap(self) -> bool:
        """Use the spare set from now on, if it is loaded and nobody is at it: never waits. True where it did."""
        if self._ready is None or not self._lock.acquire(blocking=False):
            return False
        try:
            self._used, self._spare = self._spare, self._used
            self.version, self._ready = self._ready, None
        finally:
            self._lock.release()
        return True

    def seed(self, seed: int) -> None:
        """Begin the noise anew, and a new episode."""
        self.unsure = False
        self._used.generator.manual_seed(seed)

    def act(self, observation: Observation, delayed: Delayed | None = None) -> NDArray[np.float32]:
        """(H, Da) for the one world of `observation`."""
        chunk = self._used.act(observation, explore=True, delayed=delayed)[0]
        self.unsure = self._used.unsure
        return chunk
