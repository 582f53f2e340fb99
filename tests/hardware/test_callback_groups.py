"""What a node's executor waits for in a turn: its own services always, those of parameters and lifecycle seldom."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import rclpy
from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import GetParameters
from rclpy.context import Context
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node as PlainNode
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import Int64
from std_srvs.srv import Trigger

from hardware.node_parameters import PolicyParameters
from hardware.ros2.process import EXECUTOR_S, SELDOM, Background, wait_until
from hardware.ros2.runtime import Node

sys.path.insert(0, str(Path(__file__).parent))
from hosted import running

pytestmark = [pytest.mark.realtime, pytest.mark.long]

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 6
BEST_EFFORT = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


class Worker(Node):
    """Beats 200 times a second, has a service of its own, and hears a topic reliably."""

    def configure(self) -> None:
        self.called: list[float] = []
        self.mismatched: list[Any] = []
        self.create_service(Trigger, "stop_now", self._on_stop)
        events = SubscriptionEventCallbacks(incompatible_qos=self.mismatched.append)
        self.hear(Int64, "/counted", lambda message, info: None, QoSProfile(depth=1), events)
        self.said = self.create_publisher(Int64, "/said", 1)

    def activate(self) -> None:
        self._still = self.beat(0.005, lambda: None)

    def deactivate(self) -> None:
        self._still()

    def _on_stop(self, request: Any, response: Any) -> Any:
        self.called.append(time.monotonic())
        response.success = True
        return response


def make(context: Context) -> Worker:
    return Worker("policy", PolicyParameters(), context=context)


def test_a_turn_waits_for_what_an_arm_depends_on() -> None:
    context = Context()
    rclpy.init(args=[], context=context, domain_id=DOMAIN)
    executor, worker = SingleThreadedExecutor(context=context), make(context)
    try:
        worker.start()

        def waited() -> tuple[set[str], int]:
            services = {one.srv_name.rpartition("/")[2] for one in worker.services if executor.can_execute(one)}
            return services, sum(executor.can_execute(one) for one in worker.waitables)

        every, events = waited()
        worker.seldom.open = False
        assert waited() == ({"stop_now"}, 0)
        assert {"get_parameters", "change_state", "stop_now"} < every and events > 5
    finally:
        executor.shutdown()
        worker.destroy_node()
        rclpy.try_shutdown(context=context)


def test_whoever_asks_is_answered_and_a_mismatch_is_seen() -> None:
    with Background(DOMAIN) as ros, ExitStack() as stack:
        worker = running(stack, make, DOMAIN)
        client = ros.add(PlainNode("client", context=ros.context))
        here = worker.get_fully_qualified_name()
        calls = {
            "own": (client.create_client(Trigger, f"{worker.get_namespace()}/stop_now"), Trigger.Request()),
            "parameters": (client.create_client(GetParameters, f"{here}/get_parameters"),
                           GetParameters.Request(names=["contract"])),
            "lifecycle": (client.create_client(GetState, f"{here}/get_state"), GetState.Request()),
        }  # fmt: skip
        took: dict[str, list[float]] = {name: [] for name in calls}
        for name, (service, request) in calls.items():
            assert service.wait_for_service(20.0)
            for _ in range(10):
                begun = time.monotonic()
                future = service.call_async(request)
                wait_until(future.done, 10.0, name)
                took[name].append(time.monotonic() - begun)
        assert len(worker.called) == 10
        # An ordinary turn is enough for the node's own service; the others wait for the fifth.
        assert sorted(took["own"])[5] < SELDOM * EXECUTOR_S
        assert max(map(min, took.values())) < 1.0
        client.create_publisher(Int64, "/counted", BEST_EFFORT)
        wait_until(lambda: worker.mismatched, 10.0, "the mismatch")
