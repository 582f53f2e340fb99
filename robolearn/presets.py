"""Named settings: what `quickstart` and the defaults of the commands use for each task."""

from __future__ import annotations

from dataclasses import dataclass

from robolearn.core import BadInput

WORLDS = 64  # side by side when training and evaluating


@dataclass(frozen=True)
class Preset:
    """One task's way from demonstrations to a reliable policy.

    Attributes:
      episodes: demonstrations.
      quality: of the demonstrator.
      train_steps: gradient steps of imitation.
      env_steps: budget of fine-tuning.
      eval_episodes: of each evaluation.
    """

    episodes: int
    quality: str
    train_steps: int
    env_steps: int
    eval_episodes: int = 400


PRESETS: dict[str, Preset] = {
    "lift": Preset(episodes=100, quality="mixed", train_steps=1500, env_steps=300_000),
    "pick_place": Preset(episodes=200, quality="fair", train_steps=3000, env_steps=3_000_000),
    "peg_insert": Preset(episodes=100, quality="mixed", train_steps=1500, env_steps=1_000_000),
}


def preset(task: str) -> Preset:
    """The settings of an embedded task."""
    if task not in PRESETS:
        raise BadInput("task with a preset", got=task, available=PRESETS)
    return PRESETS[task]
