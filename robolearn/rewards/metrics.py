"""Quality of a reward model: numbers of each judged episode, and pure functions of them.

    VOC  Spearman's ρ of progress and time within a success: says that it rises, not that it can tell what failed
    τ    Kendall's over pairs of one success and one failure, by their last progress: (won − lost) / pairs
    ECE  Σ_b n_b/n · |mean probability_b − share of successes_b| over ten bins of the probability of done

VOC alone proves nothing: a clock has 1. What counts are τ, the gap and false positives (Liang et al. 2026, Robometer).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robolearn.core import BadInput, Episode, RewardModel, RewardWithheld, RobolearnError, Score, Window
from robolearn.core.errors import first_line
from robolearn.rewards.scoring import checked

BINS = 10
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JudgedEpisode:
    """A reward model's verdict on one episode.

    Attributes:
      index: of the episode in its set; `source` names the set.
      success: whether it truly solved the task; `failure`: the kind of its failure, where that is known.
      progress: (T,); `backwards`: of the same pictures in reversed order; `wrong`: with the words of another task.
      probability: (T,) of done.
      done: (T,).
      seconds: to score it once.
    """

    index: int
    source: str
    success: bool
    failure: str
    progress: NDArray[np.float32]
    backwards: NDArray[np.float32]
    wrong: NDArray[np.float32]
    probability: NDArray[np.float32]
    done: NDArray[np.bool_]
    seconds: float

    @property
    def last(self) -> float:
        """Progress after the last step."""
        return float(self.progress[-1])

    @property
    def called(self) -> bool:
        """True where the task was called done at any step."""
        return bool(self.done.any())


def window_of(episode: Episode) -> Window:
    """The steps of a stored episode, with the observation after the last action where that is stored."""
    return Window(episode.seen, episode.action)


def backwards(window: Window) -> Window:
    """The same steps in reversed order."""
    return Window({key: value[::-1] for key, value in window.observation.items()}, window.action[::-1])


def score_or_withhold(model: RewardModel, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
    """The scores of a `model` of anybody's, checked.

    Raises:
      BadInput: the model refuses these windows, or these words.
      RewardWithheld: it says so, it failed, or its answer is none.
    """
    try:
        found = model.score(windows, prompts)
    except RobolearnError:
        raise
    except Exception as error:  # a model may do anything: other episodes are scored all the same
        log.debug("the reward model failed", exc_info=error)
        why = f"the model failed: {type(error).__name__}: {first_line(error)[:200]}"
        raise RewardWithheld(why) from error
    try:
        return checked(found, windows)
    except BadInput as bad:
        raise RewardWithheld(str(bad)) from None


def judge(
    model: RewardModel,
    episodes: Iterable[Episode],
    wrong: str,
    *,
    source: str = "",
    progress: Callable[[int], None] | None = None,
    withheld: list[str] | None = None,
) -> list[JudgedEpisode]:
    """The verdicts of `model`.

    Args:
      withheld: takes the reason for each episode that the model gave no score of; without it that is an error.
      wrong: the words of another task.
      source: the set that the episodes are of.
      progress: called with the number of episodes that are done.
    """
    found = []
    for index, episode in enumerate(episodes):
        window = window_of(episode)
        begun = perf_counter()
        try:
            (right,) = score_or_withhold(model, [window], [episode.task])
            seconds = perf_counter() - begun
            other, back = score_or_withhold(model, [window, backwards(window)], [wrong, episode.task])
        except RewardWithheld as why:
            if withheld is None:
                raise
            withheld.append(f"episode {index} of {source}: {why}")
            continue
        found.append(
            JudgedEpisode(
                index, source, episode.success, episode.failure, right.progress, back.progress, other.progress,
                probability(right), right.done, seconds,
            )
        )  # fmt: skip
        if progress is not None:
            progress(index + 1)
    return found


def probability(score: Score) -> NDArray[np.float32]:
    """(T,) of done: a confidence says how sure either answer is."""
    return np.where(score.done, score.confidence, 1.0 - score.confidence).astype(np.float32)


def voc(progress: ArrayLike) -> float:
    """Spearman's ρ with time, in [-1, 1]; 0 of a progress that never changes."""
    from scipy.stats import rankdata  # late: scipy takes a second to import

    values = np.asarray(progress, np.float64)
    if len(values) < 2 or np.ptp(values) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(values), np.arange(len(values)))[0, 1])


def tau(solved: ArrayLike, failed: ArrayLike) -> float:
    """Kendall's τ over pairs of different outcome, in [-1, 1]; ties count 0. NaN without either."""
    s, f = np.asarray(solved, np.float64), np.asarray(failed, np.float64)
    if not len(s) or not len(f):
        return float("nan")
    return float(np.sign(s[:, None] - f[None, :]).mean())


def calibration_error(probability: ArrayLike, outcome: ArrayLike) -> float:
    """ECE of (n,) probabilities and (n,) outcomes, in [0, 1]; NaN without any."""
    p, true = np.asarray(probability, np.float64), np.asarray(outcome, np.float64)
    if not len(p):
        return float("nan")
    bins = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    parts = [(bins == b).mean() * abs(p[bins == b].mean() - true[bins == b].mean()) for b in np.unique(bins)]
    return float(sum(parts))


def split(judged: Sequence[JudgedEpisode]) -> tuple[list[JudgedEpisode], list[JudgedEpisode]]:
    """The successes and the failures."""
    return [j for j in judged if j.success], [j for j in judged if not j.success]
