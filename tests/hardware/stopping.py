"""How an arm has stopped, by the commands that a witness heard: (time [s], (n,) positions [rad]) each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hardware.ros2.process import wait_until
from robots.stations import Contract

Commands = Sequence[tuple[float, Any]]


def silence(commands: Commands) -> int:
    """Wait until what was sent is heard: on a busy machine the news of a stop may overtake the last command.

    Returns:
      The number of commands.
    """
    wait_until(lambda: not commands or time.monotonic() - commands[-1][0] > 0.2, 2, "silence")
    return len(commands)


def at_rest(commands: Commands, contract: Contract) -> bool:
    """Whether the last two steps end a motion that is braked within the limits: 2 a dt², then a dt², then none.

    A sender that was held up while it braked has an arm that stands, and says so once.
    """
    (before, there), (at, last) = commands[-2:]
    if at - before > 2.5 / contract.stream_hz and np.array_equal(there, last):
        return True
    steps = np.abs(np.diff([q for _, q in commands[-3:]], axis=0))
    tick = contract.limits.acceleration / contract.stream_hz**2
    return bool((steps <= np.outer([2.0, 1.0], tick)).all())
