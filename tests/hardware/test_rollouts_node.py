"""The recorder beside a policy as a node: what queues while it is held up is read in the order in which it was sent."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recording_rig import HOME, SIM, Paper

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos, topics
from hardware.ros2.process import Background, wait_until
from hardware.ros2.rollouts_node import Numbers, Rollouts, RolloutsNode, SenderOffset
from hardware.safety.states import SafetyState

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 8


@pytest.mark.long
@pytest.mark.realtime
@pytest.mark.parametrize(
    ("silent_s", "lost", "why"),
    [(0.0, 0, ""), (0.07, 0, ""), (0.2, 0, "no /joint_states for 0."), (0.0, 400, "s of /joint_states")],
)
def test_an_episode_that_queued_while_the_recorder_was_held_up_is_stored_as_it_was(
    silent_s: float, lost: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Or not at all: the arm was silent for longer than its contract permits, or more came than may wait."""
    from diagnostic_msgs.msg import DiagnosticArray
    from rclpy.node import Node
    from sensor_msgs.msg import JointState
    from std_msgs.msg import String
    from trajectory_msgs.msg import JointTrajectory

    contract, paper = SIM.with_cameras(()).with_objects(()), Paper()
    moved: list[float] = []  # of the first joint, when each target was sent
    with Background(DOMAIN) as ros:
        node = RolloutsNode(
            lambda *_: Rollouts(contract, paper, "lift"), contract=contract, context=ros.context,
            overrides={"every_arming": False},
        )  # fmt: skip
        node.start()  # nothing spins it yet
        arm = ros.add(Node("arm", namespace=node.get_namespace(), context=ros.context))

        def publisher(kind: Any, topic: str, profile: Any) -> Any:
            return arm.create_publisher(kind, topic, profile)

        joints = publisher(JointState, contract.joint_states.topic, qos.sensor())
        target = publisher(JointTrajectory, topics.TARGET, qos.TARGET)
        accepted = publisher(JointTrajectory, topics.ACCEPTED, qos.ACCEPTED)
        safety = publisher(DiagnosticArray, topics.SAFETY_STATE, qos.latched())
        rollout = publisher(String, topics.ROLLOUT, qos.latched(10))
        wait_until(lambda: joints.get_subscription_count() and target.get_subscription_count(), 10.0, "the recorder")
        time.sleep(0.5)

        def now() -> Any:
            return arm.get_clock().now().to_msg()

        rollout.publish(messages.text('{"outcome": ""}'))
        safety.publish(messages.safety_report(SafetyState.ARMED, "", {"arming": 1}, now()))
        names = (*contract.joints, *contract.gripper_joints)
        joints.publish(messages.joint_state(names, [*HOME, 0.02, 0.02], messages.seconds(now())))
        time.sleep(0.1)
        node.take_all()
        begun, steps = time.monotonic(), 60
        for tick in range(5 * steps + 1):
            q = HOME.copy()
            q[0] += 1e-4 * tick
            if not begun + 1.0 < time.monotonic() < begun + 1.0 + silent_s:
                joints.publish(messages.joint_state(names, [*q, 0.02, 0.02], messages.seconds(now())))
            for _ in range(lost if tick == 250 else 0):
                joints.publish(messages.joint_state(names, [*q, 0.02, 0.02], messages.seconds(now())))
            if tick % 5 == 0:
                moved.append(q[0])
                goal = np.append(q + 1e-3 * tick, 0.04)
                time.sleep(0.001)
                target.publish(messages.target((*contract.joints, "gripper"), goal, now()))
                accepted.publish(messages.target((*contract.joints, "gripper"), goal, now()))
            time.sleep(max(begun + 0.01 * (tick + 1) - time.monotonic(), 0.0))
        rollout.publish(messages.text('{"outcome": "success"}'))
        ros.add(node)
        recording = node.recording
        assert recording is not None
        wait_until(lambda: recording.recorded + recording.dropped, 10.0, "the outcome")
        wait_until(node.stopped, 10.0, "the rows")
    if why:
        assert recording.dropped == 1 and not paper.episodes and why in caplog.text
        return
    ((facts, rows),) = paper.episodes
    assert facts["success"] and len(rows) == steps
    seen = [row[0]["proprio"][0] for row in rows]
    np.testing.assert_allclose(seen, moved[:-1], atol=1.5e-4 + 0.011 * silent_s)
    stamps = np.array([row[3]["action"] for row in rows])
    np.testing.assert_allclose(np.diff(stamps), 0.05, atol=0.03)


def test_the_numbers_of_messages_show_which_are_missing() -> None:
    def info(number: int | None, publisher: int = 1) -> dict[str, Any]:
        return {"publication_sequence_number": number, "publisher_gid": {"data": bytes([publisher])}}

    numbers = Numbers()
    assert numbers.gap_s(info(7), 1.0) == 0.0, "where one begins to listen"
    assert numbers.gap_s(info(8), 1.3) == 0.0, "silent, and nothing is missing"
    assert numbers.gap_s(info(70, publisher=2), 1.35) == 0.0
    assert numbers.gap_s(info(10), 1.5) == pytest.approx(0.2)
    assert numbers.gap_s(info(71, publisher=2), 1.55) == numbers.gap_s(info(11), 1.6) == 0.0
    assert numbers.gap_s(info(None), 1.7) is None


def test_a_sender_elsewhere_has_a_clock_of_its_own() -> None:
    def info(sent: float, received: float) -> dict[str, int]:
        return {"source_timestamp": round(sent * 1e9), "received_timestamp": round(received * 1e9)}

    here, behind, ahead = SenderOffset(), SenderOffset(), SenderOffset()
    assert here.sent_s(info(100.0, 100.002)) == pytest.approx(100.0)
    assert here.sent_s(info(101.0, 101.4)) == pytest.approx(101.0), "it was late, its clock is right"
    assert behind.sent_s(info(70.0, 100.0)) == pytest.approx(100.0)
    assert behind.sent_s(info(71.0, 101.4)) == pytest.approx(101.0), "as late as others"
    assert ahead.sent_s(info(130.0, 100.0)) == pytest.approx(100.0)
    slow, near = SenderOffset(), SenderOffset()
    assert slow.sent_s(info(100.0, 100.05)) == pytest.approx(100.0), "a busy machine, or another clock: not known yet"
    assert slow.sent_s(info(101.0, 101.002)) == slow.sent_s(info(101.0, 101.002)) == pytest.approx(101.0)
    assert [near.sent_s(info(100.0 + k, 100.05 + k)) for k in range(30)][-1] == pytest.approx(129.05), "another clock"
    assert SenderOffset().sent_s(info(100.0, 0.0)) == pytest.approx(100.0), "no middleware gives more"
