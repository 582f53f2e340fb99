"""Labels of single frames by a person, beside a data set: is the task done here?

``meta/robolearn_labels.json`` has an entry for each: episode, frame (the one after the last action has the number of
steps), length of the episode, done. The tables of the set stay as they are; edits leave the file behind.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data import Dataset
from robolearn.data.lerobot import layout

LABELS_PATH = "meta/robolearn_labels.json"
APART = 2  # frames between two that are asked of one episode
Labels = dict[tuple[int, int], bool]
"""(episode, frame) → done."""


def read_labels(dataset: Dataset) -> Labels:
    """The labels beside `dataset`; empty without any, or of a set on a server. Raises `BadInput`: a damaged file, or
    labels of episodes that the set has not."""
    root = dataset.path
    if not isinstance(root, Path) or not (root / LABELS_PATH).exists():
        return {}
    what, found = f"data set {root}: {LABELS_PATH}", {}
    for entry in layout.read_json(root, LABELS_PATH).get("labels", ()):
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
    root = dataset.path
    if not isinstance(root, Path):
        raise BadInput(f"data set {root}", got="one on a server", expected="a folder to write labels into")
    rows = [
        {"episode": e, "frame": t, "length": int(dataset.lengths[e]), "done": done}
        for (e, t), done in sorted(labels.items())
    ]
    with layout.lock(root):
        commit = layout.commit(root)
        commit.stage(LABELS_PATH, layout.json_bytes({"labels": rows}, indent=1))
        commit.publish()
    return root / LABELS_PATH


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
