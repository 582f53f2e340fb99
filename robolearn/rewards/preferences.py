"""Preferences between clips of a data set, beside it: which of two does the task better?

``meta/robolearn_preferences.json`` has an entry for each pair: ``left`` and ``right``, clips with episode, ``from`` and
``to`` (steps, the last one not in it) and the length of the episode, and ``better``, one of left, right, same. The
tables of the set stay as they are; edits leave the file behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from robolearn.core import BadInput
from robolearn.data import Dataset
from robolearn.data.lerobot import layout

PREFERENCES_PATH = "meta/robolearn_preferences.json"
Better = Literal["left", "right", "same"]
DRAWS = 50  # of a pair, before there is taken to be none that is new


@dataclass(frozen=True, order=True)
class EpisodeClip:
    """Steps `begin` to `end` − 1 of an episode."""

    episode: int
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Preference:
    """Two clips, and which of them is better."""

    left: EpisodeClip
    right: EpisodeClip
    better: Better


def read_preferences(dataset: Dataset) -> list[Preference]:
    """The preferences beside `dataset`; empty without any, or of a set on a server. Raises `BadInput`: a damaged file,
    or clips that the set has not."""
    root = dataset.path
    if not isinstance(root, Path) or not (root / PREFERENCES_PATH).exists():
        return []
    what = f"data set {root}: {PREFERENCES_PATH}"
    entries = layout.read_json(root, PREFERENCES_PATH).get("preferences", ())
    return [_preference(entry, dataset, what) for entry in entries]


def _preference(entry: Any, dataset: Dataset, what: str) -> Preference:
    try:
        left, right = (_clip(entry[side], dataset, what) for side in ("left", "right"))
        better = entry["better"]
    except (KeyError, TypeError, IndexError):
        raise BadInput(what, got=entry, expected="left, right (episode, from, to, length) and better") from None
    if better not in get_args(Better):
        raise BadInput(f"{what}: better", got=better, available=get_args(Better))
    return Preference(left, right, better)


def _clip(entry: Mapping[str, int], dataset: Dataset, what: str) -> EpisodeClip:
    e, begin, end, length = (entry[key] for key in ("episode", "from", "to", "length"))
    if not (0 <= e < dataset.episodes and dataset.lengths[e] == length and 0 <= begin < end <= length):
        got = f"steps {begin} to {end} of episode {e}, {length} steps"
        raise BadInput(what, got=got, expected="a clip of an episode of the set")
    return EpisodeClip(int(e), int(begin), int(end))


def write_preferences(dataset: Dataset, preferences: Sequence[Preference]) -> Path:
    """Replace the preferences beside `dataset`; returns the file. Raises `BadInput`: a set on a server, or one that a
    writer is at work in."""
    root = dataset.path
    if not isinstance(root, Path):
        raise BadInput(f"data set {root}", got="one on a server", expected="a folder to write preferences into")

    def stored(clip: EpisodeClip) -> dict[str, int]:
        length = int(dataset.lengths[clip.episode])
        return {"episode": clip.episode, "from": clip.begin, "to": clip.end, "length": length}

    rows = [{"left": stored(p.left), "right": stored(p.right), "better": p.better} for p in preferences]
    with layout.lock(root):
        commit = layout.commit(root)
        commit.stage(PREFERENCES_PATH, layout.json_bytes({"preferences": rows}, indent=1))
        commit.publish()
    return root / PREFERENCES_PATH


def draw_pairs(
    dataset: Dataset, count: int, steps: int, seed: int, known: Sequence[Preference] = ()
) -> list[tuple[EpisodeClip, EpisodeClip]]:
    """At most `count` pairs of clips of two episodes of one task, drawn anew; both of a pair have as many steps.

    Args:
      steps: of a clip; 0 for whole episodes, whose lengths may differ.
      known: pairs of the episodes that are not drawn again, whichever stood on the left.

    Raises:
      BadInput: no two episodes of one task.
    """
    by_task: dict[int, list[int]] = {}
    for e, task in enumerate(dataset.task_index[dataset.starts].tolist()):
        by_task.setdefault(task, []).append(e)
    groups = [group for group in by_task.values() if len(group) > 1]
    if not groups:
        raise BadInput(f"data set {dataset.path}", got="no two episodes of one task", expected="clips to compare")
    rng = np.random.default_rng([seed, len(known)])
    share = np.array([len(group) for group in groups]) / sum(map(len, groups))
    taken = {frozenset((p.left.episode, p.right.episode)) for p in known}
    return list(_draws(dataset, groups, share, count, steps, rng, taken))


def _draws(
    dataset: Dataset, groups: Sequence[Sequence[int]], share: np.ndarray, count: int, steps: int,
    rng: np.random.Generator, taken: set[frozenset[int]],
) -> Iterator[tuple[EpisodeClip, EpisodeClip]]:  # fmt: skip
    for _ in range(count):
        for _ in range(DRAWS):
            a, b = (int(e) for e in rng.choice(groups[int(rng.choice(len(groups), p=share))], 2, replace=False))
            if frozenset((a, b)) not in taken:
                break
        else:
            return
        taken.add(frozenset((a, b)))
        lengths = int(dataset.lengths[a]), int(dataset.lengths[b])
        kept = lengths if not steps else (min(steps, *lengths),) * 2
        begins = [int(rng.integers(length - k + 1)) for length, k in zip(lengths, kept, strict=True)]
        yield EpisodeClip(a, begins[0], begins[0] + kept[0]), EpisodeClip(b, begins[1], begins[1] + kept[1])


def better_by_outcome(dataset: Dataset, left: EpisodeClip, right: EpisodeClip) -> Better:
    """The verdict of what is stored of the two episodes: a success over a failure, of two successes the shorter one, of
    two failures the one with the larger sum of rewards."""

    def worth(e: int) -> tuple[bool, float]:
        rows = slice(int(dataset.starts[e]), int(dataset.starts[e] + dataset.lengths[e]))
        solved = bool(dataset.success[e])
        return solved, -float(dataset.lengths[e]) if solved else float(dataset.reward[rows].sum())

    one, other = worth(left.episode), worth(right.episode)
    return "same" if one == other else "left" if one > other else "right"
