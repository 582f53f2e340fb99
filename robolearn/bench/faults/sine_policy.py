"""A policy that needs no training: it swings the tcp to and fro, and can be spoilt while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robolearn.core import ActionChunk, Interface, Observation, Policy, RobolearnError
from robolearn.deploy.nodes import leave, run_node
from robots.stations import Contract

SPOILT = "/robolearn/benchmark/policy"  # where the benchmark says how
STEPS = 4  # of a chunk


class Swing(Policy):
    """Moves the tcp to and fro and turns it a little.

    Args:
      contract: the station; its cameras are looked through.

    Attributes:
      think: called before each chunk.
      spoil: what is made of its actions (1, T, Da).
    """

    execute_steps = STEPS

    def __init__(self, contract: Contract) -> None:
        self.interface: Interface = contract.interface
        self.calls = 0
        self.think: Callable[[], None] = lambda: None
        self.spoil: Callable[[np.ndarray], np.ndarray] = lambda actions: actions

    def reset(self, seed: int) -> None:
        self.calls = 0

    def act(self, observation: Observation) -> ActionChunk:
        self.think()
        self.calls += 1
        actions = np.zeros((1, STEPS, self.interface.action.size), np.float32)
        actions[..., 0] = 0.3 if self.calls % 8 < 4 else -0.3
        actions[..., 5] = 0.7 if self.calls % 2 else -0.7
        actions[..., -1] = 1.0
        return self.spoil(actions)


def spoil(swing: Swing, how: str) -> None:
    """Spoil a policy: ``slow``, ``fails``, ``nan``, ``down`` (into whatever is there); empty: as it was."""

    def down(actions: np.ndarray) -> np.ndarray:
        actions[:] = 0.0
        actions[..., 2] = 1.0  # along the fingers
        return actions

    def fail() -> None:
        raise RobolearnError("told to fail")

    swing.think = {"slow": lambda: time.sleep(0.5), "fails": fail}.get(how, lambda: None)
    spoils: dict[str, Callable[[np.ndarray], np.ndarray]] = {"nan": lambda a: a * np.nan, "down": down}
    swing.spoil = spoils.get(how, lambda actions: actions)


def _node() -> Any:
    from std_msgs.msg import String

    from hardware.ros2 import qos
    from hardware.ros2.policy_node import PolicyNode

    made: list[Swing] = []

    class SwingNode(PolicyNode):
        """The policy node, told by topic how to spoil its policy."""

        def configure(self) -> None:
            self._load = lambda *_, **__: made[0]
            made.append(Swing(self.station()))
            super().configure()
            self.create_subscription(String, SPOILT, lambda message: spoil(made[0], message.data), qos.latched())

    return SwingNode(lambda *_, **__: made[0])


def main(argv: Sequence[str] | None = None) -> int:
    """Spin the policy node; the exit code."""
    return run_node(_node, ("contract", "realtime_priority"), argv)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
