"""The topics of a driver, found by the names of an arm's joints."""

from __future__ import annotations

import pytest

from hardware.station.driver_topics import LiveController, LiveGraph, LiveJoints, find_driver
from robolearn.core import BadInput
from robots.stations.values import FLOATS, TRAJECTORY

ARM, HAND = ("joint1", "joint2", "joint3"), ("finger",)
STATES = LiveJoints("/joint_states", ("finger", "joint3", "joint1", "joint2"))
LED = LiveController("/arm/joint_trajectory", TRAJECTORY, "/arm", ("joint3", "joint2", "joint1"))
VECTOR = LiveController("/forward/commands", FLOATS, "/forward", ARM)
GRIPPER = LiveController("/hand/commands", FLOATS, "/hand", HAND)


def test_what_is_there_is_found_by_the_joints() -> None:
    other = LiveController("/base/joint_trajectory", TRAJECTORY, "/base", ("wheel",))
    graph = LiveGraph((LiveJoints("/part", ARM[:1]), STATES), (other, VECTOR, GRIPPER, LED), ("/front/image",))
    found = find_driver(graph, ARM, HAND)
    assert (found.joint_states, found.command, found.gripper) == ("/joint_states", LED, GRIPPER)
    assert found.cameras == ("/front/image",) and not found.missing
    assert found.values() == {
        ("joints",): "[joint1, joint2, joint3]",
        ("joint_states", "topic"): "/joint_states",
        ("command", "topic"): "/arm/joint_trajectory",
        ("command", "type"): TRAJECTORY,
        ("gripper", "topic"): "/hand/commands",
        ("gripper", "type"): FLOATS,
        ("gripper", "joints"): "[finger]",
    }


def test_a_vector_has_to_have_the_arm_s_order() -> None:
    swapped = LiveController("/forward/commands", FLOATS, "/forward", ARM[::-1])
    found = find_driver(LiveGraph((STATES,), (swapped, GRIPPER)), ARM, HAND)
    assert found.command is None and "there is /forward/commands: joint3, joint2, joint1" in found.missing[0]
    found = find_driver(LiveGraph((STATES,), (VECTOR, GRIPPER)), ARM, HAND)
    assert found.command == VECTOR and found.values()["command", "horizon_s"] == "0.0"


def test_names_with_a_prefix() -> None:
    names = tuple(f"left_{joint}" for joint in (*ARM, *HAND))
    led = LiveController("/left/joint_trajectory", TRAJECTORY, "/left", names[:3])
    hand = LiveController("/hand/commands", FLOATS, "/hand", names[3:])
    graph = LiveGraph((LiveJoints("/joint_states", names),), (led, hand))
    for gripper in (HAND, names[3:]):  # as the model has it, or as it was written already
        found = find_driver(graph, ARM, gripper)
        assert found.joints == names[:3] and (found.command, found.gripper) == (led, hand) and not found.missing
    two = LiveGraph((LiveJoints("/joint_states", (*names, *(f"right_{joint}" for joint in ARM))),), (led, hand))
    with pytest.raises(BadInput, match=r"got 2, expected one, or --prefix; available: left_, right_"):
        find_driver(two, ARM, HAND)
    assert find_driver(two, ARM, HAND, "left_").command == led
    other = find_driver(two, ARM, HAND, "right_")
    assert other.joint_states == "/joint_states" and other.command is None and len(other.missing) == 2


def test_what_is_not_there_is_said_with_what_is() -> None:
    graph = LiveGraph((LiveJoints("/joint_states", ()), LiveJoints("/wheels", ("wheel",))), (GRIPPER,))
    found = find_driver(graph, ARM, ())
    assert found.joint_states is found.command is found.gripper is None
    said = "joint states of joint1, joint2, joint3 (there is /joint_states: no message; /wheels: wheel)"
    assert found.missing[0] == said and "there is /hand/commands: finger" in found.missing[1]
    assert set(found.values()) == {("joints",)}
    silent = LiveController("/arm/joint_trajectory", TRAJECTORY, "/arm", ())
    assert "/arm/joint_trajectory: joints not stated" in find_driver(LiveGraph((), (silent,)), ARM, ()).missing[1]
