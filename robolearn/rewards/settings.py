"""Settings of the reward models that are trained: dataclasses whose fields are flags of ``robolearn reward train``.

No import of torch. A docstring below a field is its help.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, ClassVar

from robolearn.core import BadInput
from robolearn.core.switches import switch

STATE = "proprio"  # the feature of the arm's own state
HAND = ("gripper_width", "tcp_x", "tcp_y", "tcp_z")  # what of it is the hand [m]
OTHER_TASKS = (
    "open the drawer",
    "close the drawer",
    "push the button",
    "insert the peg into the hole",
    "pour water into the cup",
    "fold the cloth",
    "turn the knob to the left",
    "stack the red block on the blue one",
    "sweep the crumbs into the dustpan",
    "wipe the table",
    "hang the mug on the hook",
    "close the lid of the box",
)
"""Sentences of tasks that a set of one task does not show: with them its progress is none."""
OTHER_MOTIONS = (
    "push {} to the left", "turn {} over", "throw {} away", "touch {}", "hold {} still", "knock {} over",
)  # fmt: skip
"""The same, of the things that the set's own task names: sentences are near each other by their nouns first."""
_ARTICLES = frozenset({"the", "a", "an"})
_ENDS = _ARTICLES | {"on", "onto", "in", "into", "to", "from", "of", "at", "with", "over", "under", "and", "through"}


def other_sentences(tasks: Sequence[str]) -> list[str]:
    """Sentences that none of the `tasks` is, of other things and of the same."""
    motions = [motion.format(thing) for task in tasks for thing in things_of(task) for motion in OTHER_MOTIONS]
    known = {task.lower().strip(" .") for task in tasks}
    return [other for other in dict.fromkeys((*OTHER_TASKS, *motions)) if other not in known]


def things_of(task: str) -> list[str]:
    """The things that an English sentence names: an article and what follows it, up to the next small word."""
    words, found = [word.strip(".,;:!?") for word in task.lower().split()], []
    for i, word in enumerate(words):
        noun = list(takewhile(lambda later: later and later not in _ENDS, words[i + 1 :]))
        if word in _ARTICLES and noun:
            found.append(" ".join(("the", *noun)))
    return list(dict.fromkeys(found))


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """Settings of heads over a frozen encoder of pictures, and of their training."""

    title: ClassVar[str]
    page: ClassVar[str]  # module:Class of the trainer
    counts: ClassVar[tuple[str, ...]] = (
        "steps", "steps_per_iteration", "batch", "width", "channels", "views", "threads",
    )  # fmt: skip
    shares: ClassVar[tuple[str, ...]] = ("dropout", "unsure")
    needs_outcomes: ClassVar[bool] = True  # which episodes succeeded

    steps: int
    """Gradient steps."""
    steps_per_iteration: int = 50
    """Gradient steps between two rows of the metrics."""
    lr: float = 1e-3
    """Learning rate."""
    weight_decay: float = 1e-2
    """AdamW's."""
    width: int = 128
    """Units of a layer."""
    channels: int = 24
    """Channels that are made of the encoder's map."""
    dropout: float = 0.3
    """Share of a picture's features that is left out in training."""
    picture: int = 112
    """Edge [px] that pictures are brought to before the encoder; a multiple of 16."""
    views: int = 5
    """Times that each frame is encoded: as it is, and as by cameras that stand elsewhere, in other light."""
    threads: int = 1
    """Threads of torch; results are reproducible for one number of threads."""
    seed: int = 0
    """Of weights, draws and what is kept from training."""

    def __post_init__(self) -> None:
        for name in self.counts:
            if getattr(self, name) < 1:
                raise BadInput(f"--{name.replace('_', '-')}", got=getattr(self, name), expected="at least 1")
        if self.picture < 32 or self.picture % 16:
            raise BadInput("--picture", got=self.picture, expected="a multiple of 16, at least 32")
        if not (self.lr > 0 and self.weight_decay >= 0):
            raise BadInput("--lr, --weight-decay", got=(self.lr, self.weight_decay), expected="positive, and from 0")
        for name in self.shares:
            if not 0.0 <= getattr(self, name) < 1.0:
                got = getattr(self, name)
                raise BadInput(f"--{name.replace('_', '-')}", got=got, expected="a share from 0 to less than 1")

    @property
    def iterations(self) -> int:
        """Number of iterations that make up `steps`; the last one may be shorter."""
        return -(-self.steps // self.steps_per_iteration)


@dataclass(frozen=True, kw_only=True)
class CriticConfig(HeadConfig):
    """Settings of the progress critic and of its training."""

    title = "critic"
    page = "robolearn.rewards.training:CriticTrainer"
    counts = (*HeadConfig.counts, "members")
    shares = (*HeadConfig.shares, "holdout", "cap", "reversed_share", "still_share", "wrong_share", "failure_share")

    steps: int = 1500
    """Gradient steps; the learning rate is brought down to a tenth by a cosine."""
    batch: int = 128
    """Pairs of frames in a gradient step, of each sort in its share."""
    members: int = 3
    """Networks that learn side by side; the worst of them is read."""
    holdout: float = 0.25
    """Share of the successes and of the failures of each task that is kept from training, for the threshold of done;
    0: none, and the threshold is a half."""
    cap: float = 0.4
    """Most progress of an episode that failed."""
    unsure: float = 0.05
    """Share of a success before its final observation in which it is not asked whether the task is done; more where a
    person ends episodes late. Sets without final observations: done from 0.95 of a success, not done before 0.8."""
    reversed_share: float = 0.15
    """Share of a batch that is played backwards: what was gained is lost."""
    still_share: float = 0.05
    """Share of a batch whose two frames show the same."""
    wrong_share: float = 0.15
    """Share of a batch with the words of another task: no progress."""
    failure_share: float = 0.3
    """Share of a batch from episodes that failed; 0 learns from successes alone."""
    hand: Annotated[bool, switch("hand")] = True
    """Ask the arm's own state, too, where it has the position of the tcp and the opening of the gripper: done is then
    what pictures and hand both call done."""
    done_weight: float = 0.5
    """Weight of the loss of the question whether the task is done, beside that of the progress."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.done_weight >= 0:
            raise BadInput("--done-weight", got=self.done_weight, expected="0 or more")
        if self.reversed_share + self.still_share + self.wrong_share + self.failure_share > 0.9:
            raise BadInput("shares of a batch", got="more than 0.9", expected="a tenth of forward pairs at least")


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(HeadConfig):
    """Settings of the success classifier and of its training."""

    title = "classifier"
    page = "robolearn.rewards.classifier_training:ClassifierTrainer"

    steps: int = 600
    """Gradient steps."""
    batch: int = 128
    """Frames in a gradient step: half of them done, the others from successes and failures alike."""
    unsure: float = 0.1
    """Share of a success before its final observation of which it is not known whether the task is done; labels of
    robolearn reward label are, wherever they are."""
    holdout: float = 0.25
    """Share of the episodes that is kept from training, for the temperature, precision and recall."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.01 <= self.holdout < 1.0:
            raise BadInput("--holdout", got=self.holdout, expected="a share from 0.01 to less than 1")


@dataclass(frozen=True, kw_only=True)
class PreferenceRewardConfig(HeadConfig):
    """Settings of the reward from preferences and of its training."""

    title = "reward"
    page = "robolearn.rewards.preference_training:PreferenceRewardTrainer"
    counts = (*HeadConfig.counts, "members", "frames")
    shares = ("dropout", "holdout")
    needs_outcomes = False

    steps: int = 600
    """Gradient steps."""
    batch: int = 64
    """Pairs of clips in a gradient step."""
    frames: int = 32
    """Frames that are drawn of each clip of a pair, one of each so many equal parts of it; more for long clips of which
    a few frames alone show that the task is done."""
    observe: tuple[str, ...] = ()
    """Features to judge by: names as in --observe proprio objects, and images for all cameras. By default all of a set
    without cameras, of another one nothing that only a simulated world has."""
    dropout: float = 0.1
    """Share of what is seen that is left out in training."""
    members: int = 3
    """Networks that learn side by side; the worst of them is read."""
    scale: float = 12.0
    """β: log-odds that a clip that is good throughout is preferred to one that is neither good nor bad."""
    holdout: float = 0.1
    """Share of the pairs that is kept from training, for the agreement; 0: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.scale < math.inf:
            raise BadInput("--scale", got=self.scale, expected="a positive number")


TRAINED = {"critic": CriticConfig, "classifier": ClassifierConfig, "preference": PreferenceRewardConfig}
"""``reward train --kind``: the settings of each kind of reward model that can be trained."""
