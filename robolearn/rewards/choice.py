"""Sorts of rewards: one frozen dataclass each, listed in `REWARDS`; ``--reward TEXT`` is one of them.

The first of the table whose `of` takes the text is meant. Nothing here loads torch: `build` does.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from robolearn.core import BadInput, Interface, RewardModel, RobolearnError
from robolearn.core.errors import first_line
from robolearn.core.plugins import Table, with_plugins
from robolearn.rewards.config import SPARSE, RewardConfig
from robolearn.rewards.serving.settings import ServedReward
from robolearn.rewards.vla.settings import VLM_REWARDS

TASK = "task"  # the world's own reward and end, and what a person says of it
STORED = "stored"  # scores beside the steps of a data set
KEY = "key"  # the person's success key alone: whatever the world says is no end of the task


@dataclass(frozen=True)
class TaskReward(RewardConfig):
    """The world's own reward and end, and what a person says of it."""

    name = usage = TASK
    recorded = True


@dataclass(frozen=True)
class SparseReward(RewardConfig):
    """The world's own reward by the name that our tasks have for it: 1 for success."""

    name = usage = SPARSE
    recorded = True


@dataclass(frozen=True)
class DenseReward(RewardConfig):
    """The world's own reward and potential-based shaping, in tasks that measure their progress."""

    name = usage = world = "dense"
    recorded = True


@dataclass(frozen=True)
class KeyReward(RewardConfig):
    """The person's success key alone."""

    name = usage = KEY
    world = ""
    recorded = True


@dataclass(frozen=True)
class StoredReward(RewardConfig):
    """The scores that ``robolearn reward score --write`` stored beside the steps: no model is asked again."""

    name = usage = STORED
    is_offline = True

    def build(self, interface: Interface, device: str = "cpu") -> RewardModel:
        raise BadInput(STORED, got="it where a model is asked", expected="the name of one")


@dataclass(frozen=True)
class PythonReward(RewardConfig):
    """A class of anybody's with the method `score`, built as ``Class(interface)``.

    Attributes:
      module: where it is imported from.
      attribute: its name there.
    """

    name = "python"
    usage = "<module>:<Class>"

    module: str
    attribute: str

    @classmethod
    def of(cls, text: str) -> Self | None:
        module, _, attribute = text.partition(":")
        return cls(module, attribute) if module and attribute else None

    def build(self, interface: Interface, device: str = "cpu") -> RewardModel:
        name = f"{self.module}:{self.attribute}"
        try:
            model = getattr(importlib.import_module(self.module), self.attribute)(interface)
        except RobolearnError:
            raise
        except Exception as error:  # a module of anybody's may do anything
            got = f"{type(error).__name__}: {first_line(error)}"
            raise BadInput(name, got=got, expected="a class made with an interface") from error
        if not isinstance(model, RewardModel):
            raise BadInput(name, got="no method score", expected="a RewardModel")
        return model


@dataclass(frozen=True)
class CriticReward(RewardConfig):
    """A model that ``robolearn reward train`` made: by default a progress critic, which sees its cameras of training
    and needs the words; other kinds say themselves what they need.

    Attributes:
      folder: that of its weights.
    """

    name = "critic"
    usage = "<folder of a critic>"
    sees_images = needs_prompt = True

    folder: Path

    @classmethod
    def of(cls, text: str) -> Self | None:
        # A name without a slash that is no folder is a slip of the pen for one of the others.
        return cls(Path(text)) if text and ":" not in text and ("/" in text or Path(text).is_dir()) else None

    def build(self, interface: Interface, device: str = "cpu") -> RewardModel:
        from robolearn.rewards.critic import load_critic

        critic = load_critic(self.folder, device)
        critic.check(interface)
        return critic


_SHIPPED = (
    TaskReward, SparseReward, DenseReward, KeyReward, StoredReward, *VLM_REWARDS, ServedReward, PythonReward,
    CriticReward,
)  # fmt: skip
REWARDS: Table[type[RewardConfig]] = with_plugins(
    "rewards",
    {config.name: config for config in _SHIPPED},
    RewardConfig,
)


def reward_config(text: str, flag: str = "--reward", *, recorded: bool = True) -> RewardConfig:
    """The config that `text` names; nothing of it is built.

    Args:
      flag: that `text` was given by, for messages.
      recorded: rewards that are in the records themselves, or stored beside them, may be named, too.

    Raises:
      BadInput: it is of no sort in the table.
    """
    kinds = [kind for kind in REWARDS.values() if recorded or not (kind.recorded or kind.is_offline)]
    with _named(flag):
        for kind in kinds:
            if (config := kind.of(text)) is not None:
                return config
    raise BadInput(flag, got=text or "nothing", available=[kind.usage for kind in kinds])


def world_and_model(text: str) -> tuple[str, str]:
    """(the worlds' own reward; the name of the reward model, or nothing) by ``--reward TEXT`` where nobody presses a
    key. Raises `BadInput` as `reward_config` does, and for the key."""
    config = reward_config(text)
    if not config.world:
        raise BadInput("--reward", got=text, expected="an operator who presses it, as beside robolearn hil")
    return config.world, "" if config.recorded else text


def make_reward(text: str, interface: Interface, device: str = "cpu") -> RewardModel | None:
    """The model that ``--reward TEXT`` names; None for rewards that are in the records themselves. Raises as
    `RewardConfig.build` does."""
    config = reward_config(text)
    with _named("--reward"):
        return config.build(interface, device)


def make_reward_model(text: str, interface: Interface, device: str, flag: str) -> RewardModel:
    """The model that `flag` `text` names; raises as `RewardConfig.build` does, also where it names none."""
    config = reward_config(text, flag, recorded=False)
    with _named(flag):
        model = config.build(interface, device)
    if model is None:  # as only rewards in the records have none
        raise BadInput(flag, got=f"{text}, whose {type(config).__name__}.build makes none", expected="a RewardModel")
    return model


@contextmanager
def _named(flag: str) -> Iterator[None]:
    """`BadInput` from the block begins with `flag`."""
    try:
        yield
    except BadInput as bad:
        raise BadInput(f"{flag}: {bad}") from bad.__cause__
