"""A reward by its name: ``task``, ``key``, or ``module:Class`` of whoever brings one."""

from __future__ import annotations

import importlib

from robolearn.core import BadInput, Interface, RewardModel

TASK = "task"  # the world's own reward and end, and what a person says of it
KEY = "key"  # the person's success key alone: whatever the world says is no end of the task
AVAILABLE = (TASK, KEY, "<module>:<Class>")


def check_reward(name: str) -> None:
    """Raise `BadInput` unless `name` has the form of a reward; nothing is imported."""
    module, colon, cls = name.partition(":")
    if name not in (TASK, KEY) and not (colon and module and cls):
        raise BadInput("--reward", got=name, available=AVAILABLE)


def make_reward(name: str, interface: Interface) -> RewardModel | None:
    """The model called `name`, built as ``Class(interface)``; None for rewards that are in the records themselves.

    Raises:
      BadInput: no such module or class, or one that cannot score.
    """
    check_reward(name)
    if name in (TASK, KEY):
        return None
    module, _, cls = name.partition(":")
    try:
        model = getattr(importlib.import_module(module), cls)(interface)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise BadInput("--reward", got=f"{name} ({error})", expected="a class made with an interface") from None
    if not isinstance(model, RewardModel):
        raise BadInput("--reward", got=f"{name} without the method score", expected="a RewardModel")
    return model
