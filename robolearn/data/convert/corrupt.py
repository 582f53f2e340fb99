"""Corruption of a share of a data set's steps, by which learning from wrong data is tested.

    rewards        r ← U(−ε, ε)
    actions        a ← clip(a + λ ⊙ std(a), −1, 1)      λ ~ U(−ε, ε), drawn for each component
    observations   s ← s + λ ⊙ std(s)

Random corruption of Yang et al., ICLR 2024 (RIQL), where rewards are drawn from −30 ε … 30 ε and each sort of data has
steps of its own. Here one draw of steps is wrong in all that is asked for. Deviations are over all steps of the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource, source_of
from robolearn.data.reading.reader import Dataset

CORRUPTIBLE = ("rewards", "actions", "observations")
CORRUPTED = "corrupted"
"""In `Interface.extra`, of a set with wrong steps: ``share``, ``what`` and ``scale``."""


@dataclass(frozen=True)
class Corruption:
    """A corruption of a data set.

    Attributes:
      share: of the steps, in (0, 1]; their number is rounded.
      what: of `CORRUPTIBLE`, at least one.
      scale: ε, > 0.
      seed: of the steps and of what is drawn.
    """

    share: float
    what: Sequence[str] = ("actions", "observations")
    scale: float = 1.0
    seed: int = 0

    def check(self, flag: str = "--what") -> None:
        """Raise `BadInput` for something else than that; `flag` is the one of `what`."""
        if not 0.0 < self.share <= 1.0:
            raise BadInput("--share", got=self.share, expected="a share in (0, 1]")
        if not 0.0 < self.scale < np.inf:
            raise BadInput("--scale", got=self.scale, expected="a positive number")
        if not self.what or len(set(self.what)) < len(self.what):
            got, expected = " ".join(self.what) or "nothing", "different ones, at least one"
            raise BadInput(flag, got=got, expected=expected, available=CORRUPTIBLE)
        for kind in self.what:
            if kind not in CORRUPTIBLE:
                raise BadInput(flag, got=kind, available=CORRUPTIBLE)


def corrupt(dataset: Dataset, corruption: Corruption) -> EpisodeSource:
    """`dataset` with wrong steps. Pictures, final observations, outcomes and ends stay as they are.

    Raises:
      BadInput: a corruption that is none, rewards of a set that has none, or no step that becomes wrong.
    """
    corruption.check()
    if "rewards" in corruption.what and "next.reward" not in dataset.features:
        raise BadInput(f"data set {dataset.path}", got="no rewards", expected="them, for --what rewards")
    wrong = wrong_steps(dataset.frames, corruption)
    if not wrong.any():
        raise BadInput("--share", got=f"{corruption.share} of {dataset.frames} steps", expected="a step at least")
    source = source_of(dataset)
    deviations = {key: stats["std"] for key, stats in dataset.statistics().items()}
    drawn = {kind: np.random.default_rng((corruption.seed, 1 + i)) for i, kind in enumerate(CORRUPTIBLE)}
    mark = {"share": corruption.share, "what": sorted(corruption.what), "scale": corruption.scale}
    steps = f"of {int(wrong.sum())} of {dataset.frames} steps are wrong (scale {corruption.scale:g})"
    source.account.changed += [f"{kind} {steps}" for kind in CORRUPTIBLE if kind in corruption.what]
    source.account.changed.append("who succeeded, ends and final observations are as they were recorded")

    def spoiled(index: int, draft: EpisodeDraft) -> EpisodeDraft:
        begin = int(dataset.starts[index])
        rows = np.flatnonzero(wrong[begin : begin + len(draft)])
        episode, changes = draft.episode, dict[str, Any]()
        if "rewards" in corruption.what:
            reward = episode.reward.copy()
            reward[rows] = corruption.scale * drawn["rewards"].uniform(-1.0, 1.0, len(rows))
            changes["reward"] = reward
        if "actions" in corruption.what:
            action = _moved(episode.action, rows, deviations["action"], corruption.scale, drawn["actions"])
            changes["action"] = np.clip(action, -1.0, 1.0)
        if "observations" in corruption.what:
            changes["observation"] = {
                key: _moved(values, rows, deviations[key], corruption.scale, drawn["observations"])
                for key, values in sorted(episode.observation.items())
            }
        return replace(draft, episode=replace(episode, **changes))

    return replace(
        source,
        interface=replace(source.interface, extra={**source.interface.extra, CORRUPTED: mark}),
        drafts=(spoiled(i, draft) for i, draft in enumerate(source.drafts)),
    )


def wrong_steps(frames: int, corruption: Corruption) -> NDArray[np.bool_]:
    """(frames,) true where a step becomes wrong: `share` of them, rounded, drawn without replacement."""
    wrong = np.zeros(frames, np.bool_)
    rng = np.random.default_rng((corruption.seed, 0))
    wrong[rng.choice(frames, round(corruption.share * frames), replace=False)] = True
    return wrong


def _moved(
    values: NDArray, rows: NDArray[np.intp], deviation: NDArray, scale: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """`values` (T, …), those of `rows` moved by λ ⊙ `deviation` (…)."""
    moved = np.array(values, np.float32)
    moved[rows] += (scale * rng.uniform(-1.0, 1.0, moved[rows].shape) * deviation).astype(np.float32)
    return moved
