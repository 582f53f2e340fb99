"""One-shot mode: an episode that solved the task, which a reward model is shown beside those that it scores.

``DATA:EPISODE`` names it. What a model makes of it is its own: its method `show` takes it. The progress critic puts the
episode's first frame in the place of the starts that it has stored of that task; VLAC and GVL have its frames in their
prompts, with the share of its time as their progress.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robolearn.core import BadInput, RewardModel, Window
from robolearn.data import Dataset
from robolearn.rewards.metrics import window_of

TAKEN = "a critic of robolearn reward train, vlac: or gvl:<model>"


@dataclass(frozen=True, eq=False)
class Reference:
    """A successful episode.

    Attributes:
      window: its steps, to the end; `task`: its words.
    """

    window: Window
    task: str


def read_reference(text: str, what: str = "--reference") -> Reference:
    """The episode that ``DATA:EPISODE`` names. Raises `BadInput`: another form, no such set or episode, or one that did
    not solve its task."""
    path, _, number = text.rpartition(":")
    if not path or not number.isdecimal():
        raise BadInput(what, got=text, expected="DATA:EPISODE, e.g. data/good:3")
    dataset = Dataset.open(path)
    (index,) = dataset.check_episodes([int(number)])
    episode = dataset.episode(index)
    if not dataset.outcomes or not episode.success:
        got = "one that failed" if dataset.outcomes else "one of which nothing says that it succeeded"
        raise BadInput(f"{what} {text}", got=got, expected="an episode that solved the task")
    return Reference(window_of(episode), episode.task)


def show_reference(model: RewardModel, text: str, what: str = "--reference") -> None:
    """Show `model` the episode ``DATA:EPISODE``. Raises `BadInput`: as `read_reference`; a model that takes none; an
    episode without the model's cameras."""
    show: Any = getattr(model, "show", None)
    if show is None:
        raise BadInput(what, got=f"a {type(model).__name__}, which takes none", expected=TAKEN)
    reference = read_reference(text, what)
    try:
        show(reference)
    except BadInput as bad:
        raise BadInput(f"{what} {text}: {bad}") from bad.__cause__
