"""Goals in hindsight: what a demonstration came to is what it was meant to come to (Andrychowicz et al. 2017).

    g = o_T                          "end": the last stored observation of the episode
    g = o_k,  k ~ U{t + 1 … T}       "later": one of those that follow

The draws depend on (seed, epoch, window) alone, so that a batch may be divided, and a run goes on after a kill.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from torch import Tensor

from robolearn.core import BadInput
from robolearn.core.specs import of_goal

Hindsight = Literal["end", "later"]
STREAM = 0x60A1  # of the draws, beside the orders of the same seed


class EpisodeWindows(Protocol):
    """Windows of which those of an episode follow each other; see `robolearn.data.windows.Windows`."""

    def __len__(self) -> int: ...

    def order(self, seed: int, epoch: int) -> Tensor: ...

    def gather(self, index: Tensor, *, pictures: bool = True) -> Any: ...

    def remaining(self, index: Tensor) -> Tensor:
        """(B,) how many windows of the same episode follow the windows `index`."""
        ...


class HindsightWindows:
    """The windows of `source` with a goal each.

    Args:
      goals: keys of goals; ``goal.objects`` is taken from ``objects``, and ``goal.images.front/stored`` from what an
        encoder made of the pictures, where `source` gives that in their place.
      hindsight: which observation is the goal.
      looks: whether pictures are observed beside the goals.
      shows: whether a goal is a picture.
    """

    def __init__(
        self,
        source: EpisodeWindows,
        goals: tuple[str, ...],
        hindsight: Hindsight,
        *,
        looks: bool = True,
        shows: bool = True,
    ) -> None:
        if hindsight not in get_args(Hindsight):
            raise BadInput("--hindsight", got=hindsight, available=get_args(Hindsight))
        self._source, self._goals, self._hindsight = source, goals, hindsight
        self._looks, self._shows = looks, shows
        self._share = torch.zeros(len(source))  # in [0, 1), of the way from the first later step to the last

    def __len__(self) -> int:
        return len(self._source)

    def order(self, seed: int, epoch: int) -> Tensor:
        """As of the source; the goals that `gather` gives from now on are those of this epoch."""
        share = np.random.default_rng([seed, epoch, STREAM]).random(len(self._source), np.float32)
        self._share = torch.from_numpy(share)
        return self._source.order(seed, epoch)

    def later(self, index: Tensor) -> Tensor:
        """(B,) the windows whose newest observations are the goals of the windows `index`."""
        left = self._source.remaining(index).to(index.device)
        if self._hindsight == "end":
            return index + left
        # k − t = 1 + ⌊u (T − t)⌋, and 0 at the end
        share = self._share.to(index.device)[index]
        return index + torch.minimum(1 + (share * left).long(), left)

    def gather(self, index: Tensor) -> Any:
        """The windows `index` (B,) as `source` gives them, and their goals as (B, 1, …)."""
        batch = self._source.gather(index, pictures=self._looks)
        goal = self._source.gather(self.later(index), pictures=self._shows)
        wanted = {of_goal(key): key for key in self._goals}
        told = {}
        for key, value in goal.observation.items():
            name, slash, stored = key.partition("/")
            if name in wanted:
                told[f"{wanted[name]}{slash}{stored}"] = value[:, -1:]
        return replace(batch, observation={**batch.observation, **told})
