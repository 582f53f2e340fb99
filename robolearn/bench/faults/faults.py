"""The faults that a station is given: how each is done, and what has to be said about it.

Who does it stands on the same topics as anybody else: signals to processes, faults of the simulated arm's sensors,
programs that publish what they should not.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64
from trajectory_msgs.msg import JointTrajectory

from hardware.ros2 import messages, qos, topics
from robolearn.bench.faults.station import FaultStation

Inject = Callable[[FaultStation, ExitStack], float]
"""Does it, and returns when [s]; what is to be undone afterwards goes to the stack."""

CONTACT, CAMERA, NOISY, CAMERAS, POSES = "contact", "camera", "noisy", "cameras", "poses"
STATIONS = (CONTACT, CAMERA, NOISY, CAMERAS, POSES)
"""The first feels contact; the second looks, the third has noise, too, the fourth has two cameras; the last is led by a
planner's poses."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
      name: in words.
      inject: see `Inject`.
      why: words of which one stands in the reason of the stop; none: nobody notices, and it stands here to compare.
      station: one of `STATIONS`.
      watch_s: how long to look afterwards [s].
    """

    name: str
    inject: Inject
    why: tuple[str, ...]
    station: str = CONTACT
    watch_s: float = 1.5


def _signal(node: str, number: int) -> Inject:
    def inject(station: FaultStation, stack: ExitStack) -> float:
        if number == signal.SIGSTOP:
            stack.callback(lambda: station.signal(node, signal.SIGCONT))
        return station.signal(node, number)

    return inject


def _sensor(what: str) -> Inject:
    return lambda station, stack: station.fault(what)


def _policy(how: str) -> Inject:
    def inject(station: FaultStation, stack: ExitStack) -> float:
        if how == "fails":  # it does not try again: a new one is started
            stack.callback(lambda: station.signal("policy", signal.SIGKILL))
        return station.policy_fault(how)

    return inject


def _publisher(station: FaultStation, stack: ExitStack, kind: type, topic: str, profile: QoSProfile) -> Publisher:
    """Of a node that is of another program than ours."""
    publisher = station.stranger.create_publisher(kind, topic, profile)
    stack.callback(lambda: station.stranger.destroy_publisher(publisher))
    return publisher


def _publishes(kind: type, topic: Callable[[FaultStation], str], make: Callable[[FaultStation], object]) -> Inject:
    """A stranger publishes at 10 Hz; the fault begins with its first message, which nobody may have discovered yet."""
    profile = {JointTrajectory: qos.CHUNK, Float64: qos.CONTROLLER}.get(kind, qos.sensor())

    def inject(station: FaultStation, stack: ExitStack) -> float:
        publisher = _publisher(station, stack, kind, topic(station), profile)
        end = time.monotonic() + 5.0
        while not publisher.get_subscription_count() and time.monotonic() < end:
            time.sleep(0.002)
        at = time.monotonic()
        publisher.publish(make(station))
        timer = station.stranger.create_timer(0.1, lambda: publisher.publish(make(station)))
        stack.callback(lambda: station.stranger.destroy_timer(timer))
        return at

    return inject


def _begins(act: Callable[[FaultStation, ExitStack], object]) -> Inject:
    """A fault that begins when `act` does."""

    def inject(station: FaultStation, stack: ExitStack) -> float:
        at = time.monotonic()
        act(station, stack)
        return at

    return inject


def _at_the_controller(station: FaultStation, stack: ExitStack) -> None:
    """It need not say anything: that it is there is enough."""
    command = station.contract.command
    _publisher(station, stack, messages.message_type(command.type), command.topic, qos.CONTROLLER)


def _second_streamer(station: FaultStation, stack: ExitStack) -> None:
    _publisher(station, stack, JointTrajectory, topics.TARGET, qos.TARGET)


def _no_heartbeat(station: FaultStation, stack: ExitStack) -> float:
    """The operator's program hangs; another switch beside it is not held."""
    timers = list(station.operator.node.timers)
    for timer in timers:
        timer.cancel()
        stack.callback(timer.reset)
    return time.monotonic()


def _second_switch(station: FaultStation, stack: ExitStack) -> None:
    stack.callback(station.onlooker.release)
    station.onlooker.hold()


def _meets_the_table(station: FaultStation, stack: ExitStack) -> float:
    """The policy goes down; the fault begins where the fingers touch, by the first set-point that is not followed."""
    station.policy_fault("down")
    return station.touched(20.0)


def _elsewhere(station: FaultStation) -> JointState:
    """The arm, 0.3 rad from where it is."""
    _, q = station.commands[-1]
    return messages.joint_state(station.contract.joints, q + 0.3, time.time())


def _nothing_felt(station: FaultStation) -> JointState:
    joints = station.contract.joints
    return messages.joint_state(joints, (), time.time(), efforts=np.zeros(len(joints)))


def _fingers(station: FaultStation) -> JointState:
    """The gripper, shut."""
    names = station.contract.gripper_joints
    return messages.joint_state(names, np.zeros(len(names)), time.time())


def _shut(station: FaultStation) -> Float64:
    return Float64(data=0.0)


def _planner(behind: float) -> Inject:
    """The planner's clock goes back by so much [s]."""

    def inject(station: FaultStation, stack: ExitStack) -> float:
        assert station.planner is not None
        stack.callback(station.planner.set_clock, 0.0)
        return station.planner.set_clock(-behind)

    return inject


def _picture(station: FaultStation) -> Image:
    camera = station.contract.cameras["front"]
    return messages.image(np.full((*camera.size, 3), 90, np.uint8), time.time(), camera.frame)


def _chunk(station: FaultStation) -> JointTrajectory:
    names = station.contract.interface.action.names
    return messages.chunk(names, np.zeros((4, len(names))), station.node.get_clock().now().to_msg(), 0.05)


def _joints_topic(station: FaultStation) -> str:
    return station.contract.joint_states.topic


def _camera_topic(station: FaultStation) -> str:
    return station.contract.cameras["front"].topic


def _opening_topic(station: FaultStation) -> str:
    return topics.TARGET_OPENING


def _contact_topic(station: FaultStation) -> str:
    assert station.contract.contact is not None
    return station.contract.contact.topic


_STREAM = ("ran out", "gone", "late", "freshness", "frozen", "silent")
_SILENT, _TWICE = ("silent",), ("publishers at once",)

FAULTS: tuple[Fault, ...] = (
    Fault("policy node killed", _signal("policy", signal.SIGKILL), _STREAM),
    Fault("policy node halted", _signal("policy", signal.SIGSTOP), _STREAM),
    Fault("policy too slow", _policy("slow"), _STREAM),
    Fault("policy fails", _policy("fails"), ("told to fail",)),
    Fault("policy says NaN", _policy("nan"), ("not finite",)),
    Fault("second policy", _publishes(JointTrajectory, lambda s: topics.ACTION_CHUNK, _chunk), ("policies at once",)),
    Fault("streamer killed", _signal("streamer", signal.SIGKILL), _STREAM),
    Fault("streamer halted", _signal("streamer", signal.SIGSTOP), _STREAM),
    Fault("second streamer", _begins(_second_streamer), ("publishers of",)),
    Fault("safety node killed", _signal("safety", signal.SIGKILL), _SILENT),
    Fault("safety node halted", _signal("safety", signal.SIGSTOP), (*_SILENT, "did not run")),
    Fault("stranger at the controller", _begins(_at_the_controller), ("only the safety node may",)),
    Fault("arm's driver killed", _signal("sim_arm", signal.SIGKILL), ("joint state", *_STREAM)),
    Fault("arm's driver halted", _signal("sim_arm", signal.SIGSTOP), ("joint state", *_STREAM)),
    Fault("joint states: silent", _sensor("joint_states:stop"), ("joint state",)),
    Fault("joint states: same values", _sensor("joint_states:freeze"), ("frozen", "jump", "following")),
    Fault("joint states: same values, a finger jitters", _sensor("joint_states:jitter"), ("frozen",)),
    Fault("joint states: same values, with noise before", _sensor("joint_states:freeze"), ("had noise",), NOISY),
    Fault("joint states: same message", _sensor("joint_states:stale"), ("frozen", "joint state")),
    Fault("joint states: NaN", _sensor("joint_states:nan"), ("joint state",)),
    Fault("joint states: a joint missing", _sensor("joint_states:missing"), ("joint state",)),
    Fault("joint states: jump by 0.5 rad", _sensor("joint_states:jump"), ("following", "jump")),
    Fault("joint states: all 0", _sensor("joint_states:zeros"), ("following", "jump")),
    Fault("joint states: second publisher", _publishes(JointState, _joints_topic, _elsewhere), _TWICE),
    Fault("joint states: a joint one turn on", _sensor("joint_states:turn"), ("following", "jump")),
    Fault("joint states: 0.3 s late", _sensor("joint_states:late"), ("when it arrives", "joint state", *_STREAM)),
    Fault(
        "joint states: 0.5 s late, stamped anew",
        _sensor("joint_states:restamped"),
        ("follows its commands", "jumped"),
        watch_s=6.0,
    ),
    Fault("joint states: a stranger's gripper", _publishes(JointState, _joints_topic, _fingers), _TWICE),
    Fault("clock of the arm 0.5 s behind", _sensor("clock:-0.5"), ("when it arrives", "joint state", *_STREAM)),
    Fault("clock of the arm 10 s ahead", _sensor("clock:10"), ("future", "too late", "ran out")),
    Fault("clock of the arm stands at 0", _sensor("clock:zero"), ("no stamp", *_STREAM)),
    Fault("dead-man's switch let go", _begins(lambda station, _: station.operator.release()), ("released",)),
    Fault("dead-man's switch: no heartbeat", _no_heartbeat, ("dead-man",)),
    Fault("dead-man's switch: a second one held", _begins(_second_switch), ("2 dead-man's",)),
    Fault("emergency stop", _begins(lambda station, _: station.operator.estop()), ("e-stop",)),
    Fault("emergency stop by a stranger", _begins(lambda station, _: station.onlooker.estop()), ("e-stop",)),
    Fault("hand meets the table", _meets_the_table, ("contact on",), watch_s=3.0),
    Fault("contact sensor silent", _sensor("contact:stop"), ("contact on",)),
    Fault("contact sensor: NaN", _sensor("contact:nan"), ("contact on",)),
    Fault("contact sensor: second publisher", _publishes(JointState, _contact_topic, _nothing_felt), _TWICE),
    Fault("hand meets the table, no sensor", _meets_the_table, (), CAMERA, 5.0),
    Fault("camera silent", _sensor("camera:stop"), ("silent",), CAMERA, 2.0),
    Fault("camera frozen", _sensor("camera:freeze"), ("frozen",), CAMERA, 4.0),
    Fault("camera frozen but for one bit", _sensor("camera:flicker"), ("single pixels",), CAMERA, 4.0),
    Fault("camera frozen, with noise before", _sensor("camera:freeze"), ("had noise",), NOISY, 4.0),
    Fault("cameras swapped", _sensor("camera:swap"), ("swapped",), CAMERA, 2.0),
    Fault("camera 1 s late", _sensor("camera:late"), ("clock",), CAMERA, 2.0),
    Fault("camera 1 s ahead", _sensor("camera:ahead"), ("clock",), CAMERA, 2.0),
    Fault("camera: second publisher", _publishes(Image, _camera_topic, _picture), _TWICE, CAMERA, 2.0),
    Fault("camera black", _sensor("camera:black"), ("black",), CAMERA, 2.0),
    Fault("two cameras, one picture", _sensor("camera:same"), ("the very picture of camera",), CAMERAS, 2.0),
    Fault("poses: 10 s old", _planner(10.0), ("pose stamped 10.",), POSES),
    Fault("poses: 10 s ahead", _planner(-10.0), ("in the future",), POSES),
    Fault("gripper's opening: second publisher", _publishes(Float64, _opening_topic, _shut), _TWICE, POSES),
)
