"""A gripper as three choices beside continuous motions: close, stay, open.

    choice     command                                 it is a change where
    close      −1                                      the gripper is open
    stay       +1 where it is open, else −1            never: what is held stays held
    open       +1                                      the gripper is closed

Open is what is measured as nine tenths of the largest opening or more, as in HIL-SERL. A choice that the gripper obeys
already is `stay`, so only two of the three are offered in a state.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from robolearn.core import BadInput, Interface
from robots import ROBOTS

CLOSE, STAY, OPEN = range(3)
OPENED = 0.9  # of the largest opening
MIDDLE = 1.0 / 3.0  # commands within ± this say neither


class GripperChoices:
    """Where the gripper is in actions and observations of an interface.

    Args:
      execute: H.

    Raises:
      BadInput: the interface has no gripper.
    """

    def __init__(self, interface: Interface, execute: int) -> None:
        seen = interface.observation["proprio"].names if "proprio" in interface.observation else ()
        names, robot = interface.action.names or (), ROBOTS.get(interface.embodiment)
        if "gripper" not in names or "gripper_width" not in (seen or ()) or robot is None:
            raise BadInput(
                "--discrete-gripper", got=f"a world of {interface.embodiment!r} without a gripper that is measured",
                expected="the action 'gripper', and 'gripper_width' in 'proprio', of a robot of ours",
            )  # fmt: skip
        self._component, self._width = names.index("gripper"), (seen or ()).index("gripper_width")
        self._opened = OPENED * robot.gripper.max_width
        self._execute, self._components = execute, len(names)

    @property
    def motions(self) -> int:
        """Numbers of a chunk that are not the gripper's."""
        return self._execute * (self._components - 1)

    def is_open(self, observation: Mapping[str, Tensor]) -> Tensor:
        """(B,)."""
        return observation["proprio"][:, self._width] >= self._opened

    def choose(self, values: Tensor, is_open: Tensor) -> Tensor:
        """Values (B, 3) → (B,) the better one of the two that are offered."""
        values = values.clone()
        values[:, OPEN] = values[:, OPEN].masked_fill(is_open, -torch.inf)
        values[:, CLOSE] = values[:, CLOSE].masked_fill(~is_open, -torch.inf)
        return values.argmax(1)

    def made(self, chunk: Tensor, executed: Tensor, is_open: Tensor) -> Tensor:
        """Which choice (B,) a chunk (B, H, Da) was, by the mean command of its executed steps (B, H)."""
        commands = chunk[..., self._component] * executed
        mean = commands.sum(1) / executed.sum(1).clamp(min=1)
        choice = torch.full_like(mean, STAY, dtype=torch.int64)
        choice[(mean > MIDDLE) & ~is_open] = OPEN
        choice[(mean < -MIDDLE) & is_open] = CLOSE
        return choice

    def join(self, motions: Tensor, choice: Tensor, is_open: Tensor) -> Tensor:
        """Motions (B, H · (Da − 1)) and choices (B,) → chunks (B, H · Da) in [-1, 1]."""
        opens = (choice == OPEN) | ((choice == STAY) & is_open)
        command = torch.where(opens, 1.0, -1.0)[:, None, None].expand(-1, self._execute, 1)
        rest = motions.view(-1, self._execute, self._components - 1)
        at = self._component
        return torch.cat((rest[..., :at], command.to(rest), rest[..., at:]), -1).flatten(1)
