"""Openings as goals of actions: when which goal is due, and over DDS with the real types of franka_ros2."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import driver_messages

from hardware.gripper_goals import GripperGoals
from robots.stations import load_contract


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def want(
    goals: GripperGoals, clock: Clock, begin: float, end: float, seconds: float
) -> list[tuple[float, float, bool]]:
    """Want openings from `begin` to `end`; time, opening and direction of the goals that become due."""
    found, steps = [], max(round(seconds / 0.01), 1)
    for k in range(steps):
        clock.now += 0.01
        goals.want(begin + (end - begin) * (k + 1) / steps)
        if goals.due and not goals.busy:
            found.append((clock.now, *goals.begin(0.08)))
    return found


def test_an_opening_that_rests_is_the_goal_and_one_under_way_goes_all_the_way() -> None:
    clock = Clock()
    goals = GripperGoals(0.08, clock)
    ((_, width, closing),) = want(goals, clock, 0.05, 0.05, 0.5)
    assert (width, closing) == (0.05, True)
    goals.done()
    ((at, width, closing),) = want(goals, clock, 0.05, 0.01, 0.4)
    assert (width, closing) == (0.0, True) and at - 100.5 < 0.15
    want(goals, clock, 0.01, 0.01, 0.2)
    assert goals.due, "given up for where it came to rest"
    goals.done()
    assert goals.begin(0.04)[0] == pytest.approx(0.01)


def test_what_is_no_opening_or_no_change_is_no_goal() -> None:
    clock = Clock()
    goals = GripperGoals(0.08, clock)
    want(goals, clock, 0.05, 0.05, 0.3)
    goals.done()
    for width in (float("nan"), float("inf"), 0.051, 0.049):
        goals.want(width)
        clock.now += 0.3
        assert not goals.due
    goals.done(started=False)
    assert goals.due, "one that was refused is wanted again"
    goals.want(9.0)
    clock.now += 0.3
    assert goals.begin(0.0) == (0.08, False)


@pytest.mark.realtime
@pytest.mark.skipif(not driver_messages.buildable(), reason="no compilers here for the drivers' messages")
def test_openings_become_moves_and_grasps_of_the_hand(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(driver_messages.build(tmp_path_factory.mktemp("messages"))))
    from rclpy.node import Node

    import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
    from hardware.ros2 import messages, qos
    from hardware.ros2.background import Background, wait_until
    from hardware.ros2.doubles.hand import Hand
    from hardware.ros2.gripper_node import GripperNode

    contract = load_contract("fr3")
    assert contract.gripper is not None
    with Background(int(os.environ["ROS_DOMAIN_ID"]) + 9) as ros:
        gripper = GripperNode(contract=contract, context=ros.context)
        gripper.start()
        ros.add(gripper)
        client = ros.add(Node("driver", context=ros.context))
        wanted = client.create_publisher(messages.Float64MultiArray, contract.gripper.topic, qos.COMMAND)
        time.sleep(1.0)
        assert wanted.get_subscription_count() == 0, "nobody listens before the gripper's driver is there"
        fingers = [0.08]
        hand = Hand(client, "/franka_gripper", 0.08, lambda: fingers[0], lambda width: fingers.__setitem__(0, width))
        assert contract.gripper_states is not None
        states = client.create_publisher(messages.JointState, contract.gripper_states.topic, 10)

        def tick() -> None:
            hand.advance(0.01)
            states.publish(messages.joint_state(contract.gripper_joints, [fingers[0] / 2] * 2, time.time()))

        client.create_timer(0.01, tick)
        wait_until(lambda: wanted.get_subscription_count() == 1, 10.0, "the gripper node")
        for width, kind in ((0.02, "grasp"), (0.07, "move")):
            begun = len(hand.goals)
            for _ in range(400):
                wanted.publish(messages.Float64MultiArray(data=[width]))
                time.sleep(0.01)
                if len(hand.goals) > begun and hand.goals[-1][1] == width and abs(fingers[0] - width) < 1e-3:
                    break
            assert abs(fingers[0] - width) < 1e-3 and hand.goals[-1][1] == width
            assert hand.goals[begun][0] == kind
        assert hand.goals[0][2:] == (20.0, 0.08), "the force of the contract, and whatever is held is held"
        hand.close()
        wait_until(lambda: wanted.get_subscription_count() == 0, 10.0, "the gripper node to notice")
