"""Scores beside the steps of a data set: made once, and read wherever they are asked for again.

``meta/robolearn_scores.parquet`` has a row for each frame: episode_index, frame_index, progress, reward, done,
confidence. The tables of the set stay as they are, so that every reader of the format reads it as before. A name for
the model (of its weights) stands in the file; scores of another model, or of fewer episodes, are made anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from robolearn.core import BadInput, RewardModel, Score
from robolearn.data import Dataset
from robolearn.data.lerobot import layout
from robolearn.io.hashes import sha256
from robolearn.rewards.scoring import SCORE_TYPES

_MODEL, _CONTENT = b"robolearn_model", b"robolearn_content"


def write_scores(dataset: Dataset, scores: Sequence[Score], model: str) -> Path:
    """Store the scores of all episodes of `dataset`, in order, and return the file.

    Raises:
      BadInput: another number of scores or steps than the set has, or a set on a server.
    """
    root = _folder(dataset)
    lengths = [len(score.progress) for score in scores]
    if lengths != dataset.lengths.tolist():
        raise BadInput(f"data set {root}: scores", got=lengths, expected=dataset.lengths.tolist())
    table = pa.table(
        {
            "episode_index": np.repeat(np.arange(dataset.episodes), dataset.lengths),
            "frame_index": np.concatenate([np.arange(n) for n in lengths]),
            **{
                name: np.concatenate([getattr(s, name) for s in scores]).astype(kind)
                for name, kind in SCORE_TYPES.items()
            },
        }
    ).replace_schema_metadata({_MODEL: model.encode(), _CONTENT: dataset.frames_content().encode()})
    with layout.lock(root):
        commit = layout.commit(root)
        commit.stage(layout.SCORES_PATH, layout.parquet_bytes(table))
        commit.publish()
    return root / layout.SCORES_PATH


def read_scores(dataset: Dataset, model: str = "") -> list[Score] | None:
    """The stored score of each episode; None without any, of another `model` (empty: of any), or of other content."""
    root = _folder(dataset)
    if not (root / layout.SCORES_PATH).exists():
        return None
    table = layout.read_parquet(root, layout.SCORES_PATH)
    facts = table.schema.metadata or {}
    if model and facts.get(_MODEL) != model.encode():
        return None
    if facts.get(_CONTENT) != dataset.frames_content().encode():
        return None
    columns = {name: table[name].to_numpy().astype(kind) for name, kind in SCORE_TYPES.items()}
    ends = np.cumsum(dataset.lengths)[:-1]
    parts = {name: np.split(values, ends) for name, values in columns.items()}
    return [Score(**{name: parts[name][e] for name in SCORE_TYPES}) for e in range(dataset.episodes)]


def model_name(text: str, model: RewardModel) -> str:
    """A name of the model that ``--reward TEXT`` made: its own, that of its weights where it has some, else of the text
    and of the source of its class."""
    identity: Any = getattr(model, "identity", None)
    if identity is not None:
        return identity()
    state: Any = getattr(model, "state_dict", None)
    if state is not None:
        return sha256(*(value.cpu().numpy() for _, value in sorted(state().items())))
    try:
        return f"{text} {sha256(inspect.getsource(inspect.getmodule(type(model)) or type(model)))[:16]}"
    except (OSError, TypeError):  # no source is at hand
        return text


def _folder(dataset: Dataset) -> Path:
    if not isinstance(dataset.path, Path):
        raise BadInput(f"data set {dataset.path}", got="one on a server", expected="a folder to write scores into")
    return dataset.path
