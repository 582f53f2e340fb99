"""Scores of episodes beside their transitions: an append-only file, in the order in which the episodes were scored.

    <folder>/scores        records with their length and checksum; see `robolearn.io.append_only`
    <folder>/asked         the episode that a model was asked for last, and how often: it may have ended the process

A record is the score of one episode or the reason for which there is none, with the model's identity. An episode is
known by its actor, its number, its length (one that was cut may be whole in another life of the learner) and its task.
A record that a kill cut short is dropped when the log is opened again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from robolearn.core import BadInput, Score
from robolearn.io.append_only import Journal, cut_torn, records
from robolearn.io.atomic import write_text

FILE, ASKED = "scores", "asked"
ARRAYS = {"progress": np.float32, "reward": np.float32, "done": np.bool_, "confidence": np.float32}
_ABOUT = "about"  # the fields that are no arrays, as JSON


@dataclass(frozen=True)
class EpisodeKey:
    """Identity of an episode in the log of scores.

    Attributes:
      actor, number: whose, and its number there.
      steps: control steps.
      task: in words.
    """

    actor: str
    number: int
    steps: int
    task: str


@dataclass(frozen=True, eq=False)
class StoredScore:
    """The score of the episode `key` by the model `model`; None where it is withheld, for the reason `withheld`."""

    key: EpisodeKey
    model: str
    score: Score | None
    withheld: str = ""


class ScoreLog:
    """The scores in `folder`, and those that are appended. Raises `BadInput`: a record that is no score."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self._asked = folder / FILE, folder / ASKED
        if self.path.exists():
            cut_torn(self.path)
        self._known: dict[tuple[EpisodeKey, str], StoredScore] = {}
        for content in records(self.path):
            self._add(decode(content))
        self._journal = Journal(self.path, resume=True)

    @property
    def models(self) -> set[str]:
        """Identities of the models whose scores are here."""
        return {model for _, model in self._known}

    def find(self, key: EpisodeKey, model: str) -> StoredScore | None:
        """The score of an episode by `model`, or None."""
        return self._known.get((key, model))

    def append(self, stored: StoredScore) -> None:
        """Add a score; it survives a kill from here on.

        Raises `OSError` where the disk is full.
        """
        self._journal.append(encode(stored))
        self._add(stored)

    def asked(self, key: EpisodeKey, model: str) -> int:
        """Note that `model` is asked for the score of an episode; how often it was before, without an answer.

        Raises `OSError` where the disk is full.
        """
        now, path = vars(key) | {"model": model}, self._asked
        try:
            before = json.loads(path.read_text())
            count = int(before.pop("count")) if before.keys() > now.keys() and before.items() >= now.items() else 0
        except (FileNotFoundError, ValueError, AttributeError):
            count = 0
        write_text(path, json.dumps(now | {"count": count + 1}))
        return count

    def sync(self) -> None:
        """Make appended scores survive a power cut."""
        self._journal.sync()

    def close(self) -> None:
        """May be called twice."""
        self._journal.close()

    def _add(self, stored: StoredScore) -> None:
        self._known[stored.key, stored.model] = stored


def encode(stored: StoredScore) -> bytes:
    """The bytes of a record."""
    about = json.dumps(vars(stored.key) | {"model": stored.model, "withheld": stored.withheld})
    score = {} if stored.score is None else {name: np.asarray(getattr(stored.score, name)) for name in ARRAYS}
    return save({_ABOUT: np.frombuffer(about.encode(), np.uint8), **score})


def decode(content: bytes) -> StoredScore:
    """The inverse of `encode`. Raises `BadInput`: no score, or one of other names, types or another length."""
    try:
        arrays = load(content)
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        model, withheld = str(about.pop("model")), str(about.pop("withheld"))
        key = EpisodeKey(**about)
        if withheld:
            return StoredScore(key, model, None, withheld)
        if {name: (value.dtype, value.shape) for name, value in arrays.items()} != {
            name: (np.dtype(kind), (key.steps,)) for name, kind in ARRAYS.items()
        }:
            raise ValueError(f"other arrays than {', '.join(ARRAYS)} of {key.steps} steps")
        return StoredScore(key, model, Score(**arrays))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput("log of scores: a record", got=str(error).splitlines()[0], expected="a score") from None
