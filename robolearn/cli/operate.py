"""``robolearn operate``: the operator's terminal for nodes that `ros2 launch` has started.

The software dead-man's switch is this program: it is held from `A` until the arm is disarmed, and let go by any key
that stops, by the end of the program however it comes, and by a terminal that hangs up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from robolearn.cli.command import Command

POLL_S = 0.02
HELP = "A arm · D disarm · Space stop at once · R reset after a stop · Q disarm and quit"


@dataclass(frozen=True, kw_only=True)
class Operate(Command):
    """Arm, disarm, stop and reset an arm whose nodes run already, and see what the safety filter says.

    For ``ros2 launch robolearn deploy.launch.py`` and the like, in a second terminal beside the hardware emergency
    stop. It is no substitute for that: a key of a terminal is software.
    """

    domain: int | None = None
    """ROS domain; by default ROS_DOMAIN_ID, or 0."""
    wait: float = 20.0
    """For the safety node to appear [s]."""

    def run(self) -> dict[str, Any]:
        from hardware.ros2.environment import prepare
        from hardware.teleop.terminal import Keys
        from robolearn.core import BadInput

        if self.domain is not None and not 0 <= self.domain <= 232:
            raise BadInput("--domain", got=self.domain, expected="0 to 232")
        if not Keys.available():
            raise BadInput("robolearn operate", got="no terminal", expected="one to press keys on")
        if self.domain is not None:
            os.environ["ROS_DOMAIN_ID"] = str(self.domain)
        prepare()
        from rich.console import Console

        from hardware.ros2.operator import Operator

        console, keys = Console(stderr=True, highlight=False), Keys()
        with Operator() as operator:
            operator.wait_ready(self.wait, policy=False)
            keys.open()
            try:
                console.print(HELP)
                told = ""

                def say(line: str) -> None:
                    nonlocal told
                    if line != told:
                        told = line
                        console.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False)

                return operate(operator, keys, say)
            finally:
                operator.release()
                keys.close()

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        console.print(f"armed {result['armed']} times, stopped {result['stopped']} times; left {result['state']}")


class Switch(Protocol):
    """What is operated; `hardware.ros2.operator.Operator`."""

    @property
    def state(self) -> str: ...

    @property
    def reason(self) -> str: ...

    def arm(self, timeout_s: float = ...) -> None: ...

    def disarm(self, timeout_s: float = ...) -> None: ...

    def reset(self, timeout_s: float = ...) -> None: ...

    def estop(self, timeout_s: float = ...) -> None: ...

    def release(self) -> None: ...


class Pressed(Protocol):
    """Where keys come from; `hardware.teleop.terminal.Keys`."""

    gone: bool

    def poll(self) -> list[tuple[str, bool]]: ...


def operate(
    switch: Switch, keys: Pressed, say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """Do what is pressed until Q, or until the terminal is gone.

    Args:
      switch: the safety node's client.
      keys: of the operator.
      say: shows a line; the same line again is not news.
      sleep: waits between two looks.

    Returns:
      How often the arm was armed and stopped, and the state that it was left in.
    """
    from robolearn.core import RobolearnError

    armed = stopped = 0

    def asked(key: str) -> None:
        nonlocal armed, stopped
        if key == "a":
            switch.arm(2.0)
            armed += 1
        elif key == "d":
            switch.disarm()
            switch.release()
        elif key == "r":
            switch.reset()
        elif key in ("space", "escape"):
            stopped += 1
            switch.estop()

    try:
        while not keys.gone:
            # Whatever is pressed besides, a stop comes first.
            pressed = sorted((key for key, new in keys.poll() if new), key=lambda key: key not in ("space", "escape"))
            if "q" in pressed and "space" not in pressed:
                break
            for key in pressed:
                try:
                    asked(key)
                except RobolearnError as error:
                    say(f"refused: {error}")
            say(f"{switch.state or 'silent'}{': ' if switch.reason else ''}{switch.reason}")
            sleep(POLL_S)
        if not keys.gone and switch.state == "armed":
            switch.disarm()
    finally:
        switch.release()  # brakes and latches, should it still be armed
    return {"armed": armed, "stopped": stopped, "state": switch.state}
