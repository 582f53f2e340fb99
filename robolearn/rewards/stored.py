"""Scores beside the steps of a data set: made once, and read wherever they are asked for again.

``meta/robolearn_scores.parquet`` has a row for each frame: episode_index, frame_index, progress, reward, done,
confidence; the last four are null where the model withheld its score. The tables of the set stay as they are, so that
every reader of the format reads it as before. A name for the model (of its weights) stands in the file; scores of
another model, or of other data, are made anew.

Weights of training windows by the stored progress:

    r_t   = Φ(o_{t+Tp}) − Φ(o_t)                       Φ: progress, 0 before the first step; at most to the last step
    w̃_t   = clip((r_t − (μ − 2σ)) / (4σ + ε), 0, 1)    μ ≥ 0 and σ: of r over all windows
    w_t   = 1 where r_t > κ;  w̃_t where 0 ≤ r_t ≤ κ;  0 where r_t < 0

The reward-aligned behaviour cloning of SARM (Chen et al., "SARM: Stage-Aware Reward Modeling for Long Horizon Robot
Manipulation", arXiv 2509.25358, equations 8 and 9): a chunk that gains is imitated, one that loses is not, one that
waits only in part. Departure: windows are drawn in proportion to w in place of a loss that is multiplied by it, which
is the same in expectation.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robolearn.core import BadInput, RewardModel, Score
from robolearn.data import Dataset
from robolearn.data.lerobot import layout
from robolearn.data.replay import PlayedEpisode
from robolearn.io.hashes import sha256
from robolearn.rewards.scoring import SCORE_TYPES, with_score

log = logging.getLogger(__name__)

_MODEL, _CONTENT = b"robolearn_model", b"robolearn_content"


def write_scores(dataset: Dataset, scores: Mapping[int, Score], model: str) -> Path:
    """Store the `scores` of episodes of `dataset` in the place of those that it has, and return the file. Raises
    `BadInput`: a score of another number of steps than its episode has, or a set on a server."""
    root = _folder(dataset)
    lengths = {e: len(score.progress) for e, score in scores.items()}
    expected = {e: int(dataset.lengths[e]) for e in scores}
    if lengths != expected:
        raise BadInput(f"data set {root}: scores", got=lengths, expected=expected)
    missing = np.repeat(~np.isin(np.arange(dataset.episodes), list(scores)), dataset.lengths)
    columns = {}
    for name, kind in SCORE_TYPES.items():
        values = np.zeros(len(missing), kind)
        values[~missing] = np.concatenate([getattr(scores[e], name) for e in sorted(scores)])
        columns[name] = pa.array(values, mask=missing)
    table = pa.table(
        {
            "episode_index": np.repeat(np.arange(dataset.episodes), dataset.lengths),
            "frame_index": np.concatenate([np.arange(n) for n in dataset.lengths]),
            **columns,
        }
    ).replace_schema_metadata({_MODEL: model.encode(), _CONTENT: dataset.frames_content().encode()})
    with layout.lock(root):
        commit = layout.commit(root)
        commit.stage(layout.SCORES_PATH, layout.parquet_bytes(table))
        commit.publish()
    return scores_file(dataset)


def read_scores(dataset: Dataset, model: str = "") -> dict[int, Score]:
    """Episode → its stored score, where it has one; none of another `model` (empty: of any), or of other content."""
    if not scores_file(dataset).exists():
        return {}
    table = layout.read_parquet(_folder(dataset), layout.SCORES_PATH)
    facts = table.schema.metadata or {}
    if model and facts.get(_MODEL) != model.encode():
        return {}
    if facts.get(_CONTENT) != dataset.frames_content().encode():
        return {}
    found = {}
    for e in range(dataset.episodes):
        rows = table.slice(int(dataset.starts[e]), int(dataset.lengths[e]))
        if not rows["progress"].null_count:
            found[e] = Score(**{name: rows[name].to_numpy().astype(kind) for name, kind in SCORE_TYPES.items()})
    return found


def stored_scores(datasets: Sequence[Dataset]) -> tuple[list[list[Score]], list[str]]:
    """The score of each episode of each set, and each set's name of its model; sets of different models are logged.
    Raises `BadInput`: an episode has none, or has other frames now."""
    found = [read_scores(dataset) for dataset in datasets]
    for dataset, scores in zip(datasets, found, strict=True):
        if len(scores) < dataset.episodes:
            hint = f"`robolearn reward score --reward … --data {dataset.path} --write` makes them"
            got = f"scores of {len(scores)} of {dataset.episodes} episodes" if scores else "no scores of its frames"
            raise BadInput(f"data set {dataset.path}", got=got, expected="one of each episode", hint=hint)
    names = [_facts(dataset)[_MODEL].decode() for dataset in datasets]
    if len(set(names)) > 1:
        each = ", ".join(f"{dataset.path} by {name[:24]}" for dataset, name in zip(datasets, names, strict=True))
        log.warning("the sets were scored by different reward models: %s", each)
    return [[scores[e] for e in range(len(scores))] for scores in found], names


def relabelled(
    episodes: Iterable[PlayedEpisode], scores: Sequence[Sequence[Score]], gamma: float
) -> Iterator[PlayedEpisode]:
    """All `episodes` of the sets with these stored `scores`, in their order, as `with_score` makes them."""
    flat = (score for own in scores for score in own)
    return (with_score(episode, score, gamma=gamma) for episode, score in zip(episodes, flat, strict=True))


def scores_file(dataset: Dataset) -> Path:
    """The file of the scores, whether it is there or not; raises `BadInput` for a set on a server."""
    return _folder(dataset) / layout.SCORES_PATH


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


def _facts(dataset: Dataset) -> Mapping[bytes, bytes]:
    return layout.read_parquet(_folder(dataset), layout.SCORES_PATH).schema.metadata or {}


def _folder(dataset: Dataset) -> Path:
    if not isinstance(dataset.path, Path):
        raise BadInput(f"data set {dataset.path}", got="one on a server", expected="a folder to write scores into")
    return dataset.path


KAPPA, EPSILON = 0.01, 1e-6


def gains(progress: NDArray[np.float32], horizon: int) -> NDArray[np.float64]:
    """(T,) what the `horizon` actions from each step on gain, by the `progress` (T,) after each step."""
    # r_t = Φ(o_{t+Tp}) − Φ(o_t), and progress[t] = Φ(o_{t+1})
    after = np.minimum(np.arange(len(progress)) + horizon, len(progress)) - 1
    return progress[after].astype(np.float64) - np.concatenate([[0.0], progress[:-1]])


def progress_weights(progress: Sequence[NDArray[np.float32]], horizon: int) -> list[NDArray[np.float64]]:
    """(T,) weights in [0, 1] of the windows of each episode, by its `progress` (T,) and the `horizon` of a chunk."""
    gained = [gains(one, horizon) for one in progress]
    together = np.concatenate(gained)
    mean, deviation = max(float(together.mean()), 0.0), max(float(together.std()), EPSILON)

    def weights(r: NDArray[np.float64]) -> NDArray[np.float64]:
        # w̃ = clip((r − (μ − 2σ)) / (4σ + ε), 0, 1)
        soft = np.clip((r - (mean - 2 * deviation)) / (4 * deviation + EPSILON), 0.0, 1.0)
        return np.where(r > KAPPA, 1.0, np.where(r < 0, 0.0, soft))

    return [weights(r) for r in gained]
