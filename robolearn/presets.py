"""Named settings: what `quickstart` and the defaults of the commands use for each task."""

from __future__ import annotations

from dataclasses import dataclass

from robolearn.core import BadInput

WORLDS = 64  # side by side when training and evaluating


@dataclass(frozen=True)
class RlPreset:
    """Settings of fine-tuning that depend on the length of a task's episodes.

    Attributes:
      env_steps: budget of control steps.
      worlds: side by side; longer episodes need more of them for as many episodes an iteration.
      gamma: discount of a decision.
      lam: λ of GAE.
    """

    env_steps: int = 300_000
    worlds: int = WORLDS
    gamma: float = 0.99
    lam: float = 0.9


@dataclass(frozen=True)
class Preset:
    """One task's way from demonstrations to a reliable policy.

    Attributes:
      episodes: demonstrations.
      quality: of the demonstrator.
      train_steps: gradient steps of imitation.
      rl: of fine-tuning.
      eval_episodes: of each evaluation.
    """

    episodes: int
    quality: str
    train_steps: int
    rl: RlPreset
    eval_episodes: int = 400


PRESETS: dict[str, Preset] = {
    "lift": Preset(episodes=100, quality="mixed", train_steps=1500, rl=RlPreset()),
    "pick_place": Preset(episodes=200, quality="fair", train_steps=3000, rl=RlPreset(2_500_000, worlds=128, lam=0.95)),
    "peg_insert": Preset(episodes=100, quality="mixed", train_steps=1500, rl=RlPreset(600_000)),
}


def preset(task: str) -> Preset:
    """The settings of an embedded task."""
    if task not in PRESETS:
        raise BadInput("task with a preset", got=task, available=PRESETS)
    return PRESETS[task]


def rl_preset(task: str) -> RlPreset:
    """The settings of fine-tuning for any task."""
    return PRESETS[task].rl if task in PRESETS else RlPreset()
