"""The base of every sort of reward's config. No import of torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from robolearn.core import BadInput, Interface, RewardModel

SPARSE = "sparse"  # of a world: what it gives by itself, in our tasks 1 for success


@dataclass(frozen=True)
class RewardConfig:
    """A sort of reward. A new one is a subclass with `of` and `build`, and a line in `REWARDS`.

    Attributes:
      name: in the table.
      usage: what ``--reward`` takes, for help and messages.
      recorded: rewards are in the records of the episodes already, `build` returns None.
      is_offline: only what is stored has it.
      world: the reward that worlds give with it, "sparse" or "dense"; empty where it is a person's.
      sees_images, needs_prompt, is_privileged: the model looks at pictures; the task's words decide; it reads what
        only a simulated world has. False also where only the model itself knows.
    """

    name: ClassVar[str]
    usage: ClassVar[str]
    recorded: ClassVar[bool] = False
    is_offline: ClassVar[bool] = False
    world: ClassVar[str] = SPARSE
    sees_images: ClassVar[bool] = False
    needs_prompt: ClassVar[bool] = False
    is_privileged: ClassVar[bool] = False

    @classmethod
    def of(cls, text: str) -> Self | None:
        """The config that `text` names, or None where it is of another sort."""
        return cls() if text == cls.name else None

    def build(self, interface: Interface, device: str = "cpu") -> RewardModel | None:
        """The model, which scores episodes of `interface`. Raises `BadInput`: there is none, or it does not fit."""
        return None


Config = TypeVar("Config", bound=RewardConfig)


def options_of(kind: type[Config], text: str, first: str) -> Config | None:
    """The config ``NAME:VALUE,option=value,…`` of a `kind` with options, or None where `text` is of another sort.

    Args:
      first: the field that VALUE is.

    Raises:
      BadInput: of this sort, but without a value, or with an option that it has not.
    """
    name, _, rest = text.partition(":")
    if name != kind.name:
        return None
    value, *options = rest.split(",")
    given = {key: setting for key, _, setting in (option.partition("=") for option in options)}
    known = [field.name for field in fields(kind) if field.name != first]
    if wrong := [key for key in given if key not in known]:
        raise BadInput(f"{name}", got=wrong[0], expected="option=value", available=known)
    if not value:
        raise BadInput(f"{name}", got=f"no {first}", expected=kind.usage)
    try:
        return TypeAdapter(kind).validate_python({first: value} | given)
    except ValidationError as error:
        fault = error.errors()[0]
        option = ".".join(str(part) for part in fault["loc"])
        raise BadInput(f"{name}: {option}", got=fault["input"], expected=fault["msg"]) from None
