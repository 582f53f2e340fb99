"""A policy without training: it moves the tcp to and fro, and takes faults while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robolearn.core import ActionChunk, Interface, Observation, Policy, RobolearnError
from robolearn.core.machine import leave
from robolearn.deploy.nodes import run_node
from robots.stations import Contract

POLICY_FAULT = "/robolearn/benchmark/policy"  # the topic that names the fault
STEPS = 4  # of a chunk


class SinePolicy(Policy):
    """Moves the tcp to and fro and turns it a little.

    Args:
      contract: the station; its cameras are looked through.

    Attributes:
      think: called before each chunk.
      corrupt: changes its actions (1, T, Da).
    """

    execute_steps = STEPS

    def __init__(self, contract: Contract) -> None:
        self.interface: Interface = contract.interface
        self.calls = 0
        self.think: Callable[[], None] = lambda: None
        self.corrupt: Callable[[np.ndarray], np.ndarray] = lambda actions: actions

    def reset(self, seed: int) -> None:
        self.calls = 0

    def act(self, observation: Observation) -> ActionChunk:
        self.think()
        self.calls += 1
        actions = np.zeros((1, STEPS, self.interface.action.size), np.float32)
        actions[..., 0] = 0.3 if self.calls % 8 < 4 else -0.3
        actions[..., 5] = 0.7 if self.calls % 2 else -0.7
        actions[..., -1] = 1.0
        return self.corrupt(actions)


def inject_fault(policy: SinePolicy, how: str) -> None:
    """Inject a fault: ``slow``, ``fails``, ``nan``, ``down`` (into whatever is there); empty: none."""

    def down(actions: np.ndarray) -> np.ndarray:
        actions[:] = 0.0
        actions[..., 2] = 1.0  # along the fingers
        return actions

    def fail() -> None:
        raise RobolearnError("told to fail")

    policy.think = {"slow": lambda: time.sleep(0.5), "fails": fail}.get(how, lambda: None)
    corruptions: dict[str, Callable[[np.ndarray], np.ndarray]] = {"nan": lambda a: a * np.nan, "down": down}
    policy.corrupt = corruptions.get(how, lambda actions: actions)


def _node() -> Any:
    from std_msgs.msg import String

    from hardware.ros2 import qos
    from hardware.ros2.policy_node import PolicyNode

    made: list[SinePolicy] = []

    class SinePolicyNode(PolicyNode):
        """The policy node; a topic says which fault its policy has."""

        def configure(self) -> None:
            self._load = lambda *_, **__: made[0]
            made.append(SinePolicy(self.station()))
            super().configure()
            self.create_subscription(
                String, POLICY_FAULT, lambda message: inject_fault(made[0], message.data), qos.latched()
            )

    return SinePolicyNode(lambda *_, **__: made[0])


def main(argv: Sequence[str] | None = None) -> int:
    """Spin the policy node; the exit code."""
    return run_node(_node, ("contract", "realtime_priority"), argv)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
