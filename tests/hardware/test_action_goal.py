"""One goal of an action, with servers that take it, refuse it, never answer or never end it; over DDS."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from rclpy.action.client import ActionClient
from rclpy.action.server import ActionServer, CancelResponse, GoalResponse
from rclpy.node import Node
from test_msgs.action import Fibonacci

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2.gripper_node import ANSWER_S, ActionGoal
from hardware.ros2.process import Background, wait_until

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 3
pytestmark = pytest.mark.realtime


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A client, and servers of the actions `taken`, `refused` and `endless`; nobody serves `nowhere`."""

    def __init__(self, ros: Background) -> None:
        self.clock, self.ended, self.handles = Clock(), [], []
        node = Node("rig", context=ros.context)

        def server(name: str, **callbacks: Any) -> ActionServer:
            return ActionServer(node, Fibonacci, name, **{"execute_callback": self.succeed, **callbacks})

        self.servers = [
            server("taken"),
            server("refused", goal_callback=lambda goal: GoalResponse.REJECT),
            server(
                "endless",
                handle_accepted_callback=self.handles.append,
                cancel_callback=lambda handle: CancelResponse.REJECT,
            ),
        ]
        names = ("taken", "refused", "endless", "nowhere")
        self.clients = {name: ActionClient(node, Fibonacci, name) for name in names}
        ros.add(node)  # with its clients: rclpy 9 does not make one of a node that is spun already
        wait_until(lambda: all(self.clients[name].server_is_ready() for name in names[:3]), 10.0, "the servers")

    @staticmethod
    def succeed(handle: Any) -> Any:
        handle.succeed()
        return Fibonacci.Result()

    def goal(self, name: str) -> ActionGoal:
        return ActionGoal(self.clients[name], Fibonacci.Goal(order=3), self.ended.append, self.clock)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Background(DOMAIN) as ros:  # of its own: rclpy does not take a server of a node that is spun away
        yield Rig(ros)
        assert not ros.errors


@pytest.mark.parametrize(("name", "taken"), [("taken", True), ("refused", False)])
def test_a_goal_ends_once_and_leaves_nothing_behind(rig: Rig, name: str, taken: bool) -> None:
    for count in range(1, 6):
        goal = rig.goal(name)
        wait_until(lambda count=count: len(rig.ended) == count, 10.0, "the end")
        rig.clock.now += 10 * ANSWER_S
        assert not goal.silent and rig.ended[-1] is taken
    client: Any = rig.clients[name]
    wait_until(lambda: not client._futures, 5.0, "rclpy to forget what has ended")
    assert not client._pending_goal_requests and not client._pending_result_requests


def test_a_server_that_is_not_there_is_given_up(rig: Rig) -> None:
    goal, client = rig.goal("nowhere"), rig.clients["nowhere"]
    rig.clock.now += 0.9 * ANSWER_S
    assert not goal.silent
    rig.clock.now += 0.2 * ANSWER_S
    assert goal.silent
    goal.forget()
    wait_until(lambda: not client._futures and not client._pending_goal_requests, 5.0, "rclpy to forget it")
    assert rig.ended == []


def test_a_motion_may_take_its_time_but_not_its_end(rig: Rig) -> None:
    goal = rig.goal("endless")
    wait_until(lambda: rig.handles, 10.0, "the goal to be taken")
    wait_until(lambda: goal._handle is not None, 10.0, "the answer")
    rig.clock.now += 100.0
    assert not goal.silent
    goal.cancel()
    goal.cancel()
    assert not goal.silent
    rig.clock.now += 1.1 * ANSWER_S
    assert goal.silent
    goal.forget()
    rig.handles[0].execute(rig.succeed)
    time.sleep(0.2)
    assert rig.ended == [], "nothing of one that was forgotten"
    again = rig.goal("taken")
    wait_until(lambda: rig.ended == [True], 10.0, "the end of the next one")
    assert not again.silent
