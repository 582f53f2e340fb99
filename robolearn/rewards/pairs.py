"""The objective of a progress critic: pairs of frames of an episode and what they are worth, after VLAC.

Of a success of T frames, the first at i = 0, the progress from i to t as a share of what was left at i:

    c(i → t) =  (t − i) / (T − 1 − i)        t ≥ i
    c(i → t) = −c(t → i)                     t < i: the clip played backwards loses what it had gained
    c(i → i) =  0                            a still
    c = 0                                    with the words of another task

and done = 1 at the observation after the last action, 0 before the last twentieth (`CriticConfig.unsure`), not asked
between. Where a set does not have that observation, done(t) = 0 before 0.8 T, 1 from the last 0.05 T, one frame at
least: there the end of a success and a near miss look alike. A failure says what it is
not: its progress from its first frame stays below what a success has after the same time, and below the cap,

    c(0 → t) ≤ min(t / (T̄ − 1), cap)         T̄ the mean length of the successes;  done(t) = 0

so that a critic may tell how far it came, but not that it arrived. Some of the pairs from a first frame have another
success's of the task of their words in its place: from such starts a critic reads how far an episode is that begins in
the middle, or runs backwards. T̄ and starts are each task's own, a task being a sentence. A clip that is rewound
(ReWiND) is, for a critic of pairs, the pairs (0 → t) and (k → t), t < k, of the clip
itself, which are among those above.

Ma et al. 2024 (GVL), Zhai et al. 2025 (VLAC), Zhang et al. 2025 (ReWiND).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core import BadInput
from robolearn.rewards.settings import CriticConfig

NOT_DONE, DONE = 0.8, 0.95  # shares of a success before which it is not done, and from which it is
FROM_START = 0.5  # of the pairs that go forwards: those from the first frame, which scoring asks for
END = 0.1  # of the pairs that go forwards: those to the last frame, of which an episode has one
OTHER_START = 0.3  # of the pairs from a first frame: those from another success's


@dataclass(frozen=True)
class Pairs:
    """B pairs of frames.

    Attributes:
      first, second: (B,) frame numbers of the set.
      words: (B,) numbers of the sentences.
      target: (B,) c in [-1, 1]; where `bound`, its largest value.
      bound: (B,) true where only more than the target is wrong.
      done: (B,) 1, 0, or NaN where it is not asked, of the second frame.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    words: NDArray[np.int64]
    target: NDArray[np.float32]
    bound: NDArray[np.bool_]
    done: NDArray[np.float32]


def progress_between(i: NDArray, t: NDArray, length: NDArray) -> NDArray[np.float32]:
    """c(i → t) of successes of `length` frames; see the module."""
    low, high = np.minimum(i, t), np.maximum(i, t)
    c = (high - low) / np.maximum(length - 1 - low, 1)
    return np.where(t >= i, c, -c).astype(np.float32)


def done_label(t: NDArray, length: NDArray, final: NDArray, unsure: float) -> NDArray[np.float32]:
    """1 at the end of a success, 0 well before, NaN between; `final`: the last frame is the final observation."""
    label = np.full(len(t), np.nan, np.float32)
    label[t < np.where(final, np.minimum((1.0 - unsure) * length, length - 1), NOT_DONE * length)] = 0.0
    label[t >= np.where(final, length - 1, np.minimum(DONE * length, length - 1))] = 1.0
    return label


def most_of_a_failure(t: NDArray, mean_length: ArrayLike, cap: float) -> NDArray[np.float32]:
    """The largest c(0 → t) of failures, `mean_length` that of their task's successes."""
    return np.minimum(t / np.maximum(np.asarray(mean_length) - 1.0, 1.0), cap).astype(np.float32)


class PairSampler:
    """Draws batches of pairs from the episodes of a set.

    Args:
      starts, lengths, success: (E,) of the episodes, in frames.
      final: (E,) true where the last frame is the observation after the last action.
      words: (E,) number of each one's sentence, among `sentences` of them, the tasks' first.
      sentences: number of sentences, those of other tasks included.

    Attributes:
      solved_starts: of each task, the first frames of its successes; of all where it has none.

    Raises:
      BadInput: no success of two frames, or no failure though they have a share.
    """

    def __init__(
        self,
        config: CriticConfig,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        success: NDArray[np.bool_],
        final: NDArray[np.bool_],
        words: NDArray[np.int64],
        sentences: int,
    ) -> None:
        self._config, self._starts, self._lengths, self._words = config, starts, lengths, words
        self._sentences, self._final = sentences, final
        self._solved = np.flatnonzero(success & (lengths > 1))
        self._failed = np.flatnonzero(~success & (lengths > 1))
        if not len(self._solved):
            raise BadInput("--data", got="no success", expected="episodes that solved the task, and some that did not")
        if config.failure_share and not len(self._failed):
            raise BadInput(
                "--data", got="no failure: a critic of successes alone praises failures as well",
                expected="some", hint="robolearn collect --quality failures makes them; --failure-share 0 goes without",
            )  # fmt: skip
        own = [self._solved[words[self._solved] == task] for task in range(int(words.max()) + 1)]
        solved = [of_task if len(of_task) else self._solved for of_task in own]
        self.solved_starts = [starts[of_task] for of_task in solved]
        self._mean_lengths = np.array([lengths[of_task].mean() for of_task in solved])

    def draw(self, rng: np.random.Generator) -> Pairs:
        """A batch: each sort has its share of it, and those that go forwards the rest."""
        config, batch = self._config, self._config.batch
        shares = (config.reversed_share, config.still_share, config.wrong_share, config.failure_share)
        turned, still, wrong, failed = (round(share * batch) for share in shares)
        parts = [
            self._of_successes(batch - turned - still - wrong - failed, rng),
            self._of_successes(turned, rng, turned=True),
            self._still(still, rng),
            self._wrong(wrong, rng),
            self._of_failures(failed, rng),
        ]
        drawn = Pairs(*(np.concatenate([getattr(part, name) for part in parts]) for name in Pairs.__annotations__))
        return replace(drawn, first=self._swapped(drawn, rng))

    def _swapped(self, pairs: Pairs, rng: np.random.Generator) -> NDArray[np.int64]:
        """The first frames of `pairs`, some starts among them changed for those of successes of the words' task."""
        first = pairs.first
        swapped = np.isin(first, self._starts) & (rng.random(len(first)) < OTHER_START)
        # Other words than a task's: the starts are those of the task that is shown.
        shown = self._words[np.searchsorted(self._starts, first, side="right") - 1]
        task = np.where(pairs.words < len(self.solved_starts), pairs.words, shown)
        for number, starts in enumerate(self.solved_starts):
            other = starts[rng.integers(len(starts), size=len(first))]
            first = np.where(swapped & (task == number), other, first)
        return first

    def _of_successes(self, count: int, rng: np.random.Generator, *, turned: bool = False) -> Pairs:
        e = self._solved[rng.integers(len(self._solved), size=count)]
        length = self._lengths[e]
        i = (rng.random(count) * (length - 1)).astype(np.int64)
        i[rng.random(count) < FROM_START] = 0
        t = i + 1 + (rng.random(count) * (length - 1 - i)).astype(np.int64)
        t = np.where(rng.random(count) < END, length - 1, t)
        if turned:
            i, t = t, i
        return self._pairs(e, i, t, progress_between(i, t, length), self._done(e, t))

    def _still(self, count: int, rng: np.random.Generator) -> Pairs:
        e = self._any(count, rng)
        t = (rng.random(count) * self._lengths[e]).astype(np.int64)
        return self._pairs(e, t, t, np.zeros(count, np.float32), np.full(count, np.nan, np.float32))

    def _wrong(self, count: int, rng: np.random.Generator) -> Pairs:
        e = self._any(count, rng)
        t = (rng.random(count) * self._lengths[e]).astype(np.int64)
        pairs = self._pairs(e, np.zeros_like(t), t, np.zeros(count, np.float32), np.zeros(count, np.float32))
        other = (pairs.words + 1 + (rng.random(count) * (self._sentences - 1)).astype(np.int64)) % self._sentences
        return Pairs(pairs.first, pairs.second, other, pairs.target, pairs.bound, pairs.done)

    def _of_failures(self, count: int, rng: np.random.Generator) -> Pairs:
        if not count:
            return self._of_successes(0, rng)
        e = self._failed[rng.integers(len(self._failed), size=count)]
        t = (rng.random(count) * self._lengths[e]).astype(np.int64)
        most = most_of_a_failure(t, self._mean_lengths[self._words[e]], self._config.cap)
        pairs = self._pairs(e, np.zeros_like(t), t, most, np.zeros(count, np.float32))
        return Pairs(pairs.first, pairs.second, pairs.words, most, np.ones(count, bool), pairs.done)

    def _done(self, e: NDArray[np.int64], t: NDArray[np.int64]) -> NDArray[np.float32]:
        return done_label(t, self._lengths[e], self._final[e], self._config.unsure)

    def _any(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        every = np.concatenate([self._solved, self._failed])
        return every[rng.integers(len(every), size=count)]

    def _pairs(self, e: NDArray, i: NDArray, t: NDArray, target: NDArray, done: NDArray) -> Pairs:
        start = self._starts[e]
        return Pairs(start + i, start + t, self._words[e], target, np.zeros(len(e), bool), done)
