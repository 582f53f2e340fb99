"""The person beside a real arm, asked at the terminal; see `robolearn.deploy.ArmOperator`."""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING

from robolearn.core.errors import BadInput

if TYPE_CHECKING:
    from robots.stations import AnyContract


def may_ask(contract: AnyContract, yes: bool) -> bool:
    """True where nobody has to be asked before the arm moves, or can be: a simulated one, leave given, a terminal."""
    return contract.simulated or yes or sys.stdin.isatty()


def check_may_ask(contract: AnyContract, yes: bool) -> None:
    """Raise `BadInput` where that is not so."""
    if not may_ask(contract, yes):
        raise BadInput(
            f"{contract.name} is a real arm, and there is no terminal to ask on before it moves",
            hint="Start this in a terminal, or with --yes where somebody holds the emergency stop",
        )


class TerminalOperator:
    """Questions on stderr, answers from stdin; without a terminal only leave to move is asked for.

    Args:
      yes: leave to move is given already.
    """

    def __init__(self, yes: bool) -> None:
        self._yes = yes

    def confirm_motion(self, robot: str) -> bool:
        if self._yes:
            return True
        _ask(
            f"The {robot} is about to move by itself. Is the emergency stop in your hand and nobody in "
            "reach of the arm? Type yes to go on: "
        )
        return sys.stdin.readline().strip().lower() == "yes"

    def restore_scene(self) -> None:
        if sys.stdin.isatty():
            _ask("Put everything in its place, then press Enter: ")
            sys.stdin.readline()

    def ended_episode(self) -> bool:
        # Enter ends an episode before its time.
        if sys.stdin.isatty() and select.select([sys.stdin], [], [], 0)[0]:
            sys.stdin.readline()
            return True
        return False

    def confirm_success(self) -> bool:
        if not sys.stdin.isatty():
            return False
        _ask("Did it succeed? [y/N] ")
        return sys.stdin.readline().strip().lower().startswith("y")


def _ask(question: str) -> None:
    print(question, end="", file=sys.stderr, flush=True)
