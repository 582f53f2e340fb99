"""The simulated arm over real DDS: it behaves as a position controller with a driver does, and can be made to fail."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node as PlainNode
from rclpy.parameter import Parameter
from std_srvs.srv import Trigger

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import faults, messages, qos, topics
from hardware.ros2.process import Background, wait_until
from hardware.ros2.sim_arm_node import SimArmNode
from robolearn.bench.emulators.node import make_world
from robolearn.core import BadInput
from robots import PANDA
from robots.stations import COMPRESSED, IMAGE, TRAJECTORY, Camera, CommandTopic, Contract, Topic, load_contract

pytestmark = pytest.mark.realtime

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 8
WAIT_S = 20.0
CONTRACT = load_contract("sim").with_cameras(())


@dataclass
class Station:
    """A simulated arm, and a client that hears everything and commands it."""

    ros: Background
    arm: SimArmNode
    client: PlainNode
    joints: list[messages.JointState] = field(default_factory=list)
    objects: list[messages.JointState] = field(default_factory=list)
    pictures: list[Any] = field(default_factory=list)
    episodes: list[dict[str, Any]] = field(default_factory=list)
    monitors: list[dict[str, Any]] = field(default_factory=list)
    clients: dict[str, Any] = field(default_factory=dict)

    def q(self) -> NDArray:
        return messages.pick(self.joints[-1], CONTRACT.joints)

    def next(self) -> None:
        """Wait for a joint state that was measured after now."""
        now = time.time()
        wait_until(lambda: messages.seconds(self.joints[-1].header.stamp) > now, WAIT_S, "joint states")
        wait_until(lambda: messages.seconds(self.objects[-1].header.stamp) > now, WAIT_S, "objects")

    def call(self, kind: Any, name: str, request: Any) -> Any:
        if name not in self.clients:
            self.clients[name] = self.client.create_client(kind, name)
        client = self.clients[name]
        assert client.wait_for_service(timeout_sec=WAIT_S)
        future = client.call_async(request)
        wait_until(future.done, WAIT_S, name)
        return future.result()

    def reset(self) -> dict[str, Any]:
        answer = self.call(Trigger, topics.SIM_RESET, Trigger.Request())
        assert answer.success
        return json.loads(answer.message)

    def fault(self, text: str) -> Any:
        request = SetParameters.Request(parameters=[Parameter("fault", value=text).to_parameter_msg()])
        return self.call(SetParameters, "/robolearn/sim_arm/set_parameters", request).results[0]

    def publisher(self, topic: Topic, node: PlainNode | None = None) -> Any:
        made = (node or self.client).create_publisher(messages.message_type(topic.type), topic.topic, qos.COMMAND)
        wait_until(lambda: made.get_subscription_count() > 0, WAIT_S, "the arm to listen")
        return made

    def move(self, publisher: Any, goal: NDArray, seconds: float = 1.0) -> int:
        """A minimum-jerk motion from where the arm is, somewhat below the nominal rate; how many commands it took.

        Held up on the way, it starts again from rest, as whoever commands an arm has to.
        """
        start = q = self.q()
        period = 1.0 / CONTRACT.stream_hz
        commands, sent, k = 0, 0.0, 0
        while k <= round(seconds / period):
            if k and time.monotonic() - sent > 3.5 * period:
                start, k = q, 0
            s = min(k * period / seconds, 1.0)
            q = start + (goal - start) * (10 * s**3 - 15 * s**4 + 6 * s**5)
            publisher.publish(messages.Float64MultiArray(data=q.tolist()))
            commands, sent, k = commands + 1, time.monotonic(), k + 1
            time.sleep(period)  # and never faster, to make up for lost time
        return commands


@contextmanager
def station(contract: Contract = CONTRACT, **overrides: Any) -> Iterator[Station]:
    with Background(DOMAIN) as ros:
        arm = SimArmNode(make_world, contract=contract, context=ros.context, overrides={"seed": 1, **overrides})
        client = PlainNode("client", namespace=topics.NAMESPACE, context=ros.context)
        made = Station(ros, arm, client)
        sensor = qos.sensor(50)
        client.create_subscription(messages.JointState, contract.joint_states.topic, made.joints.append, sensor)
        client.create_subscription(messages.JointState, "/task/objects", made.objects.append, sensor)
        for camera in contract.cameras.values():
            kind = messages.message_type(camera.type)
            client.create_subscription(kind, camera.topic, made.pictures.append, qos.sensor(2))
        for topic, heard in ((topics.SIM_EPISODE, made.episodes), (topics.SIM_MONITOR, made.monitors)):
            client.create_subscription(
                messages.String, topic, lambda m, heard=heard: heard.append(json.loads(m.data)), qos.latched(10)
            )
        ros.add(client)
        arm.start()
        ros.add(arm)
        wait_until(lambda: made.joints and made.objects, WAIT_S, "joint states and objects")
        yield made
        assert ros.errors == []


@pytest.fixture
def sim() -> Iterator[Station]:
    with station() as made:
        yield made


def test_joint_states_come_at_their_rate_under_the_names_of_the_contract(sim: Station) -> None:
    def rate() -> float:
        sim.joints.clear()
        begin = time.monotonic()
        time.sleep(1.0)
        return len(sim.joints) / (time.monotonic() - begin)

    # 200 are asked for. This machine may do other things too: in one of the next seconds it has time for this.
    wait_until(lambda: rate() >= 80, WAIT_S, "80 joint states a second")
    messages_ = list(sim.joints)
    assert tuple(messages_[-1].name) == (*CONTRACT.joints, *CONTRACT.gripper_joints)
    assert len(messages_[-1].velocity) == len(messages_[-1].position) == 9
    stamps = [messages.seconds(m.header.stamp) for m in messages_]
    assert np.all(np.diff(stamps) > 0) and abs(time.time() - stamps[-1]) < 5.0
    # Objects belong to the joint states of the same stamp.
    assert messages.seconds(sim.objects[-1].header.stamp) >= stamps[0]
    assert tuple(sim.objects[-1].name) == sim.arm.world.objects()[0]


@pytest.mark.long
def test_it_follows_commands_keeps_the_last_one_and_saw_no_violation(sim: Station) -> None:
    goal = sim.q() + 0.1
    with Background(DOMAIN) as other:
        sender = other.add(PlainNode("sender", context=other.context))
        count = sim.move(sim.publisher(CONTRACT.command, sender), goal)
        wait_until(lambda: sim.arm.monitor.summary()["commands"] == count, WAIT_S, "all commands")
    wait_until(lambda: np.abs(sim.q() - goal).max() < 0.02, WAIT_S, "the arm to arrive")
    time.sleep(0.5)
    sim.next()
    np.testing.assert_allclose(sim.q(), goal, atol=0.02)
    summary = sim.arm.monitor.summary()
    assert summary["commands"] == count >= 201 and summary["violations"] == 0, json.dumps(summary)
    assert 0.05 < summary["peak"]["velocity"] < 0.2  # 1.875 · 0.1 rad/s, of 2.175 or 2.61
    # Heard by others too.
    wait_until(lambda: sim.monitors and sim.monitors[-1] == sim.arm.monitor.summary(), WAIT_S, "the monitor")


def test_the_monitor_sees_a_step_and_commands_that_are_none_change_nothing(sim: Station) -> None:
    publisher = sim.publisher(CONTRACT.command)
    start = sim.q()
    for data in ([float("nan")] * 7, [0.0] * 3, []):
        publisher.publish(messages.Float64MultiArray(data=data))
    wait_until(lambda: sim.arm.monitor.summary()["commands"] == 3, WAIT_S, "commands")
    time.sleep(0.1)
    sim.next()
    np.testing.assert_allclose(sim.q(), start, atol=0.01)
    kinds = sim.arm.monitor.summary()["violations_by_kind"]
    assert kinds["non_finite"] == 1 and kinds["length"] == 2 and sum(kinds.values()) == 3
    for q in (start, start + 0.5):
        publisher.publish(messages.Float64MultiArray(data=q.tolist()))
    wait_until(lambda: sim.monitors and sim.monitors[-1]["violations_by_kind"]["velocity"] == 1, WAIT_S, "the step")
    wait_until(lambda: np.abs(sim.q() - start - 0.5).max() < 0.05, WAIT_S, "the arm to follow all the same")


def test_the_gripper_opens_and_closes_by_its_opening(sim: Station) -> None:
    assert CONTRACT.gripper is not None
    publisher = sim.publisher(CONTRACT.gripper)
    for opening in (0.03, 0.07):
        publisher.publish(messages.Float64MultiArray(data=[opening]))
        wait_until(
            lambda opening=opening: abs(
                CONTRACT.gripper_width(messages.pick(sim.joints[-1], CONTRACT.gripper_joints)) - opening
            ) < 0.003, WAIT_S, "the gripper",
        )  # fmt: skip


@pytest.mark.long
def test_an_episode_ends_once_and_reset_begins_the_next(sim: Station) -> None:
    first = np.array(sim.objects[-1].position)
    assert sim.reset() == {"episode": 0, "seed": 1}  # nothing had happened yet
    sim.next()
    np.testing.assert_allclose(sim.objects[-1].position[:3], first[:3], atol=1e-3)
    start = sim.q()
    publisher = sim.publisher(CONTRACT.command)
    sim.arm.world._most = 10  # type: ignore[attr-defined]
    first_part = sim.move(publisher, start + 0.1, 0.5)
    wait_until(lambda: sim.episodes, WAIT_S, "the end of the episode")
    time.sleep(0.5)
    sim.next()
    assert sim.episodes == [{"episode": 0, "success": False, "truncated": True, "steps": 10}]
    assert sim.reset() == {"episode": 1, "seed": 1}
    sim.next()
    second = np.array(sim.objects[-1].position)
    assert np.abs(second[:2] - first[:2]).max() > 1e-3
    # The arm was put elsewhere: commands from there are a motion of their own.
    both = first_part + sim.move(publisher, sim.q(), 0.1)
    wait_until(lambda: sim.arm.monitor.summary()["commands"] == both, WAIT_S, "commands")
    assert sim.arm.monitor.summary()["violations"] == 0, json.dumps(sim.arm.monitor.summary())
    assert sim.reset()["episode"] == 2 and sim.reset()["episode"] == 3


def test_faults_of_joint_states_are_switched_on_and_off_at_run_time(sim: Station) -> None:
    assert not sim.fault("joint_states:tired").successful and not sim.fault("joint:stop").successful
    assert sim.fault("joint_states:nan").successful
    wait_until(lambda: np.isnan(sim.joints[-1].position[0]), WAIT_S, "nan")
    sim.fault("joint_states:reorder")
    wait_until(lambda: sim.joints[-1].name[-1] == CONTRACT.joints[0], WAIT_S, "another order")
    assert np.abs(sim.q() - np.array(PANDA.home)).max() < 0.5
    sim.fault("clock:-10")
    wait_until(lambda: time.time() - messages.seconds(sim.joints[-1].header.stamp) > 9, WAIT_S, "an old stamp")
    sim.fault("joint_states:stop")
    time.sleep(0.2)
    have = len(sim.joints)
    time.sleep(0.3)
    assert len(sim.joints) == have and sim.objects
    sim.fault("")
    sim.next()
    assert abs(time.time() - messages.seconds(sim.joints[-1].header.stamp)) < 5


@pytest.mark.long
def test_a_camera_on_its_side_sends_pictures_that_lie() -> None:
    seen = {}
    for degrees in (0, 90):
        cameras = {"front": Camera("/camera/front/image_raw", IMAGE, 0.3, (64, 64), rotate=degrees)}
        with station(replace(CONTRACT, cameras=cameras)) as sim:
            wait_until(lambda: len(sim.pictures) > 2, WAIT_S, "pictures")
            sent = messages.picture(sim.pictures[-1], replace(cameras["front"], rotate=0))
            seen[degrees] = messages.picture(sim.pictures[-1], cameras["front"]).astype(int)
            np.testing.assert_array_equal(np.rot90(sent, -degrees // 90), seen[degrees])
    assert np.abs(seen[90] - seen[0]).mean() < 3 < np.abs(seen[90][::-1, ::-1] - seen[0]).mean()


@pytest.mark.long
@pytest.mark.parametrize("kind", [IMAGE, COMPRESSED])
def test_cameras_send_pictures_as_the_contract_wants_them_and_fail_when_told(kind: str) -> None:
    cameras = {"front": Camera("/camera/front/image_raw", kind, 0.3, (64, 64))}
    with station(replace(CONTRACT, cameras=cameras)) as sim:
        wait_until(lambda: len(sim.pictures) > 5, WAIT_S, "pictures")
        picture = messages.picture(sim.pictures[-1], cameras["front"])
        assert picture.std() > 10
        sim.joints.clear()
        sim.pictures.clear()
        wait_until(lambda: len(sim.pictures) >= 10, WAIT_S, "more pictures")
        assert len(sim.joints) >= 10  # pictures are drawn beside them, not in their place
        sim.fault("camera:black")
        wait_until(lambda: messages.picture(sim.pictures[-1], cameras["front"]).max() < 5, WAIT_S, "black")
        assert sim.pictures[-1].header.frame_id == "front"
        sim.fault("camera:swap")
        wait_until(lambda: sim.pictures[-1].header.frame_id != "front", WAIT_S, "another camera's")
        sim.fault("camera:stop")
        time.sleep(0.3)
        have = len(sim.pictures)
        time.sleep(0.3)
        assert len(sim.pictures) == have


def test_a_trajectory_of_one_point_is_a_command_whatever_the_order_of_its_names() -> None:
    contract = replace(CONTRACT, command=CommandTopic("/controller/joint_trajectory", TRAJECTORY))
    with station(contract) as sim:
        publisher = sim.publisher(contract.command)
        q = sim.q() + np.linspace(0.0003, 0.003, 7)
        publisher.publish(messages.target(contract.joints[::-1], q[::-1], sim.client.get_clock().now().to_msg()))
        wait_until(lambda: sim.arm.monitor.summary()["commands"] == 1, WAIT_S, "a command")
        assert sim.arm.monitor.summary()["violations"] == 0
        publisher.publish(messages.target(contract.joints[1:], q[1:], sim.client.get_clock().now().to_msg()))
        wait_until(
            lambda: sim.arm.monitor.summary()["violations_by_kind"]["length"] == 1,
            WAIT_S,
            "a refusal",
        )


def test_what_cannot_be_simulated_is_refused_before_anything_moves() -> None:
    with Background(DOMAIN) as ros:
        pose = replace(CONTRACT, command=CommandTopic("/pose", "geometry_msgs/msg/PoseStamped"))
        real = replace(CONTRACT, simulated=False)
        for contract, overrides in (
            (pose, {}), (CONTRACT, {"task": "lifd"}), (CONTRACT, {"joint_hz": 0.0}), (real, {}),
        ):  # fmt: skip
            arm = SimArmNode(make_world, contract=contract, context=ros.context, overrides=overrides)
            with pytest.raises(BadInput):
                arm.start()
            arm.destroy_node()


def test_faults_say_what_there_is() -> None:
    assert faults.parse(" joint_states:freeze, clock:-10 ") == {"joint_states": "freeze", "clock": "-10"}
    for bad in ("joints:stop", "camera:nan", "clock:late", "camera"):
        with pytest.raises(BadInput):
            faults.parse(bad)
    spoil, names = faults.VectorFault(), ("a", "b")

    def sent(what: str | None, value: float, at: float) -> Any:
        return spoil.apply(what, (names, np.array([value, 2.0]), np.zeros(2), at))

    assert sent(None, 1.0, 0.0)[1][0] == 1.0
    assert (sent("freeze", 3.0, 0.1)[1][0], sent("freeze", 4.0, 0.2)[3]) == (1.0, 0.2)
    assert sent("stale", 5.0, 0.3)[3] == 0.0
    old = [sent("old", 6.0 + k, 0.4 + 0.05 * k)[3] for k in range(4)]
    assert np.any(np.diff(old) < 0) and max(old) == pytest.approx(0.55)
    assert sent("missing", 7.0, 0.7)[0] == ("b",) and sent("stop", 7.0, 0.8) is None
    reordered = sent("reorder", 8.0, 0.9)
    assert dict(zip(reordered[0], reordered[1], strict=True)) == {"a": 8.0, "b": 2.0}
    assert (faults.stamp("zero", 5.0), faults.stamp("10", 5.0), faults.stamp(None, 5.0)) == (0.0, 15.0, 5.0)
