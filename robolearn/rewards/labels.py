"""Opinions of a person beside a data set, whose tables stay as they are; edits leave the files behind.

``meta/robolearn_labels.json``, is the task done in a frame? An entry for each: episode, frame (the one after the last
action has the number of steps), length of the episode, done.

``meta/robolearn_preferences.json``, which of two clips does the task better? An entry for each pair: ``left`` and
``right``, clips with episode, ``from`` and ``to`` (steps, the last one not in it) and the length of the episode, and
``better``, one of left, right, same.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, check_choice
from robolearn.data import Dataset
from robolearn.data.lerobot import layout
from robolearn.io.hashes import sha256

LABELS_PATH = "meta/robolearn_labels.json"
APART = 2  # frames between two that are asked of one episode
Labels = dict[tuple[int, int], bool]
"""(episode, frame) → done."""


def read_labels(dataset: Dataset) -> Labels:
    """The labels beside `dataset`; empty without any, or of a set on a server. Raises `BadInput`: a damaged file, or
    labels of episodes that the set has not."""
    what, found = f"data set {dataset.path}: {LABELS_PATH}", {}
    for entry in _entries(dataset, LABELS_PATH, "labels"):
        try:
            e, frame, length, done = (entry[key] for key in ("episode", "frame", "length", "done"))
            fits = 0 <= e < dataset.episodes and dataset.lengths[e] == length and 0 <= frame <= length
        except (KeyError, TypeError, IndexError):
            raise BadInput(what, got=entry, expected="episode, frame, length, done") from None
        if not fits:
            raise BadInput(what, got=f"frame {frame} of episode {e}, {length} steps", expected="an episode of the set")
        found[int(e), int(frame)] = bool(done)
    return found


def write_labels(dataset: Dataset, labels: Mapping[tuple[int, int], bool]) -> Path:
    """Replace the labels beside `dataset`; returns the file. Raises `BadInput`: a set on a server, or one that a writer
    is at work in."""
    rows = [
        {"episode": e, "frame": t, "length": int(dataset.lengths[e]), "done": done}
        for (e, t), done in sorted(labels.items())
    ]
    return _write(dataset, LABELS_PATH, "labels", rows)


def _entries(dataset: Dataset, file: str, key: str) -> Sequence[Any]:
    """The entries of the `file` beside `dataset`; none without it, or of a set on a server."""
    root = dataset.path
    there = isinstance(root, Path) and (root / file).exists()
    return layout.read_json(root, file).get(key, ()) if there else ()


def _write(dataset: Dataset, file: str, key: str, entries: Sequence[Mapping[str, Any]]) -> Path:
    """Replace the `entries` of the `file` beside `dataset`."""
    root = dataset.path
    if not isinstance(root, Path):
        raise BadInput(f"data set {root}", got="one on a server", expected=f"a folder to write {key} into")
    with layout.lock(root):
        commit = layout.commit(root)
        commit.stage(file, layout.json_bytes({key: entries}, indent=1))
        commit.publish()
    return root / file


def least_certain(
    probability: Sequence[NDArray[np.float32]], frames: Sequence[int], known: Container[tuple[int, int]], most: int
) -> list[tuple[int, int]]:
    """(episode, frame) of the frames whose probability of done is nearest to ½, the least certain first.

    Frames within `APART` of one that is asked already are left out: neighbours look alike, and so would the answers.

    Args:
      probability: of each episode, after each step: of its last so many frames.
      frames: observations of each episode.
      known: frames with a label, which are not asked again.
      most: how many to ask at most.
    """
    every = [
        (abs(float(value) - 0.5), e, count - len(p) + i)
        for e, (p, count) in enumerate(zip(probability, frames, strict=True))
        for i, value in enumerate(p)
    ]
    asked: list[tuple[int, int]] = []
    for _, e, t in sorted(every):
        if len(asked) == most:
            break
        if (e, t) not in known and not any(one == e and abs(t - other) <= APART for one, other in asked):
            asked.append((e, t))
    return asked


PREFERENCES_PATH = "meta/robolearn_preferences.json"
Better = Literal["left", "right", "same"]
LEFT_IS_BETTER = {"left": 1.0, "right": 0.0, "same": 0.5}
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
    what = f"data set {dataset.path}: {PREFERENCES_PATH}"
    return [_preference(entry, dataset, what) for entry in _entries(dataset, PREFERENCES_PATH, "preferences")]


def preferences_digest(dataset: Dataset) -> str:
    """A digest of the preferences beside `dataset`: a run is resumed with the same ones alone."""
    return sha256(repr(read_preferences(dataset)))


def _preference(entry: Any, dataset: Dataset, what: str) -> Preference:
    try:
        left, right = (_clip(entry[side], dataset, what) for side in ("left", "right"))
        better = entry["better"]
    except (KeyError, TypeError, IndexError):
        raise BadInput(what, got=entry, expected="left, right (episode, from, to, length) and better") from None
    check_choice(f"{what}: better", better, Better)
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

    def stored(clip: EpisodeClip) -> dict[str, int]:
        length = int(dataset.lengths[clip.episode])
        return {"episode": clip.episode, "from": clip.begin, "to": clip.end, "length": length}

    rows = [{"left": stored(p.left), "right": stored(p.right), "better": p.better} for p in preferences]
    return _write(dataset, PREFERENCES_PATH, "preferences", rows)


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
