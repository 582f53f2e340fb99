"""A policy's node over real DDS, on an arm that stands a whole turn from the demonstrations."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from hardware.ros2.policy_node import PolicyNode
from hardware.ros2.process import Background, wait_until
from hardware.ros2.safety_client import SafetyClient
from policies.normalize import Normalizer, unfamiliar
from robolearn.bench.faults.sine_policy import SinePolicy
from robolearn.core import Observation
from robots.stations import load_contract

sys.path.insert(0, str(Path(__file__).parent))
from hosted import running
from ros_station import Arm

pytestmark = [pytest.mark.realtime, pytest.mark.long]

CONTRACT = load_contract("sim").with_cameras(())


class Taught(SinePolicy):
    """Its demonstrations were about the home position, a third of a radian to either side."""

    def unfamiliar(self, observation: Observation) -> tuple[str, str]:
        size = self.interface.observation["proprio"].size
        mean = np.zeros(size)
        mean[: len(CONTRACT.joints)] = CONTRACT.robot.home
        wide = np.full(size, 0.3)
        action = self.interface.action.size
        statistics = {
            "proprio": {"mean": mean, "std": wide, "min": mean - wide, "max": mean + wide},
            "action": {"min": -np.ones(action), "max": np.ones(action)},
        }
        normalizer = Normalizer.from_statistics(self.interface, statistics)
        return unfamiliar(normalizer, self.interface, observation)


def test_an_arm_a_whole_turn_on_is_not_ready_for_its_policy() -> None:
    with ExitStack() as stack:
        arm = running(stack, lambda context: Arm(CONTRACT, context=context))
        running(
            stack, lambda context: PolicyNode(lambda *_, **__: Taught(CONTRACT), contract=CONTRACT, context=context)
        )
        client = SafetyClient(stack.enter_context(Background()))
        wait_until(lambda: client.policy.get("ready"), 30, "the policy at home")
        arm.q = arm.q + 2 * np.pi * np.eye(7)[0]
        wait_until(lambda: not client.policy.get("ready"), 10, "the policy to look")
        assert "a whole turn from what the policy has seen: panda_joint1 at 6.283" in client.policy["reason"]
        arm.q = arm.q - (2 * np.pi - 2.5) * np.eye(7)[0]
        wait_until(lambda: client.policy.get("unfamiliar"), 10, "the policy to look again")
        assert client.policy["ready"] and "panda_joint1 at 2.500" in client.policy["unfamiliar"]
