"""Base of the configs of teleoperators: options, and what a device can do.

Light to import: the command line is made of these configs. A device imports its library, and `robots`, when it is
built.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from hardware.teleop.device import Device
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots import RobotSpec


@dataclass(frozen=True)
class TeleopConfig:
    """One sort of device; its fields are options of the constructor, those made by `flag` flags of the commands.

    Attributes:
      name: on the command line.
      help: keys or buttons, in one line.
      has_deadman: the operator holds a switch while the arm moves; without one a clutch takes over (`Clutch`).
      is_person: a person is at the device, who can take over from a policy.
      shows_in_terminal: the state of the recording is a status line of the terminal; the device has no page.
      needs_terminal: keys come from a terminal, which launch files do not have.
      has_flags: the commands offer it; False where it needs what no flag can say.
      station: the contract of an arm that it commands.
    """

    name: ClassVar[str]
    help: ClassVar[str] = ""
    has_deadman: ClassVar[bool] = False
    is_person: ClassVar[bool] = True
    shows_in_terminal: ClassVar[bool] = True
    needs_terminal: ClassVar[bool] = False
    has_flags: ClassVar[bool] = True
    station: ClassVar[str] = "sim"

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> Device:
        """The device, not yet opened.

        Args:
          interface: whose action it commands.
          robot: the arm that it moves.
          parts: of its constructor: ``clock``, ``out``, and the like.

        Raises:
          BadInput: it cannot command this kind of action or arm, or an option is out of range.
        """
        raise NotImplementedError

    @classmethod
    def flags(cls) -> dict[str, Field[Any]]:
        """Flag → the field behind it."""
        return {one.metadata["flag"]: one for one in fields(cls) if "flag" in one.metadata}


def flag(name: str, default: Any, help: str) -> Any:
    """A field that is the flag `name` of the commands; its `help` is one sentence, to which the devices are added."""
    return field(default=default, metadata={"flag": name, "help": help})


@dataclass(frozen=True)
class Flag:
    """A flag of the commands: type and default of its value, and its help with the devices that take it."""

    type: Any
    default: Any
    help: str
