"""The task in a sentence, for a policy to begin with that takes it in words: of the learner, and of its actors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from robolearn.core import BadInput

if TYPE_CHECKING:
    from robolearn.data import Dataset


def task_words(words: str, demos: Dataset | None, otherwise: Callable[[], str] = str) -> str:
    """`words`; without them the sentence that all `demos` have, and without one what `otherwise` returns. Raises
    `BadInput`: there is none, or demonstrations have several."""
    if words.strip():
        return words
    said = [] if demos is None else sorted({demos.tasks[i] for i in np.unique(demos.task_index)} - {""})
    if len(said) > 1:
        got = f"nothing, and {len(said)} tasks in --demos"
        raise BadInput("--words", got=got, expected="one sentence, which the policy takes", available=said)
    if not (found := said[0] if said else otherwise()).strip():
        raise BadInput("--words", got="nothing", expected="the task in a sentence, which the policy takes")
    return found


def check_words_taken(words: str, taken: str) -> None:
    """Raise `BadInput` for a learner's `words` where its policy has `taken` none."""
    if words and not taken:
        expected = "none: the policy takes no words, and a reward model reads those of --demos or of the actor"
        raise BadInput("--words", got=words, expected=expected)
