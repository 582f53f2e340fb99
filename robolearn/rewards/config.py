"""The base of every sort of reward's config. No import of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from robolearn.core import Interface, RewardModel


@dataclass(frozen=True)
class RewardConfig:
    """A sort of reward. A new one is a subclass with `of` and `build`, and a line in `REWARDS`.

    Attributes:
      name: in the table.
      usage: what ``--reward`` takes, for help and messages.
      recorded: rewards are in the records of the episodes already, `build` returns None.
      sees_images, needs_prompt, is_privileged: the model looks at pictures; the task's words decide; it reads what
        only a simulated world has. False also where only the model itself knows.
    """

    name: ClassVar[str]
    usage: ClassVar[str]
    recorded: ClassVar[bool] = False
    sees_images: ClassVar[bool] = False
    needs_prompt: ClassVar[bool] = False
    is_privileged: ClassVar[bool] = False

    @classmethod
    def of(cls, text: str) -> Self | None:
        """The config that `text` names, or None where it is of another sort."""
        return cls() if text == cls.name else None

    def build(self, interface: Interface, device: str = "cpu") -> RewardModel | None:
        """The model, which scores episodes of `interface`.

        Raises:
          BadInput: there is none, or it does not fit.
        """
        return None
