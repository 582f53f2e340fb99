"""The faults of the simulated arm's sensors, by the messages that come of them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from hardware.ros2.faults import CameraFault, VectorFault, parse, picture_stamp
from robolearn.core import BadInput

NAMES, HZ = ("a", "b"), 100.0


def sent(what: str, count: int = 60) -> list[tuple[float, np.ndarray, float]]:
    """(time, positions, stamp) of each message of joints that are where the time is."""
    fault, found = VectorFault(), []
    for i in range(count):
        at = i / HZ
        message = fault.apply(what, (NAMES, np.array([at, -at]), np.zeros(2), at))
        assert message is not None
        found.append((at, message[1], message[3]))
    return found


@pytest.mark.parametrize(("what", "seconds", "every"), [("late", 0.3, 1), ("old", 0.1, 2)])
def test_messages_from_before_are_stamped_with_their_own_time(what: str, seconds: float, every: int):
    for at, q, stamp in sent(what)[40::every]:
        assert stamp == pytest.approx(at - seconds, abs=0.011) and q.tolist() == [stamp, -stamp]


def test_a_joint_is_one_turn_on():
    at, q, stamp = sent("turn")[-1]
    assert stamp == at and q == pytest.approx([at + math.tau, -at])


def test_a_finger_jitters_beside_an_arm_that_repeats_itself():
    found = sent("jitter")
    assert all(stamp == at and q[0] == 0.0 for at, q, stamp in found)
    assert all(p[1] != q[1] for (_, p, _), (_, q, _) in pairwise(found))
    assert max(abs(q[1]) for _, q, _ in found) < 1e-3


def test_a_picture_that_stands_differs_by_one_bit_each_time():
    fault, scene = CameraFault(), np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    fault.apply(None, scene)
    seen = [fault.apply("flicker", np.zeros_like(scene)) for _ in range(5)]
    for one in seen:
        assert one is not None and np.bitwise_count(one ^ scene).sum() == 1
    assert len({one.tobytes() for one in seen if one is not None}) == 5
    assert (scene == np.arange(48).reshape(4, 4, 3)).all(), "the held picture is not written to"


def test_two_cameras_send_the_picture_of_the_first():
    left, right = np.zeros((2, 2, 3), np.uint8), np.ones((2, 2, 3), np.uint8)
    sent = CameraFault().apply("same", right, left)
    assert sent is not None and (sent == left).all()
    assert (CameraFault().apply(None, right, left) == right).all()


def test_pictures_are_stamped_late_or_ahead():
    stamps = {what: picture_stamp(what, 10.0) for what in ("late", "ahead", "black", None)}
    assert stamps == {"late": 9.0, "ahead": 11.0, "black": 10.0, None: 10.0}
    assert parse("camera:late,joint_states:turn") == {"camera": "late", "joint_states": "turn"}
    with pytest.raises(BadInput, match="available: stop, freeze, black, swap, late, ahead, flicker, same"):
        parse("camera:turn")


def test_a_fault_of_one_of_two_arms_has_its_name_before_the_place():
    both = ("left", "right")
    assert parse("right/joint_states:freeze,clock:-1", both) == {"right/joint_states": "freeze", "clock": "-1"}
    with pytest.raises(BadInput, match="arm of fault rigth/clock:zero: got rigth; available: left, right"):
        parse("rigth/clock:zero", both)
    with pytest.raises(BadInput, match="fault: got left/camera:stop"):
        parse("left/camera:stop", both)
    with pytest.raises(BadInput, match="arm of fault left/clock:zero: got left; available: none"):
        parse("left/clock:zero", ("",))


def test_every_fault_of_the_benchmark_has_a_name_of_its_own():
    from robolearn.bench.faults.faults import FAULTS

    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)


def test_values_of_before_under_new_stamps_are_noisy_as_those_of_an_encoder():
    found = sent("restamped")[60:]
    assert all(stamp == at for at, _, stamp in found)
    for at, q, _ in found:
        assert q == pytest.approx([at - 0.5, 0.5 - at], abs=0.012)
    assert all(np.diff(q) != np.diff(p) for (_, p, _), (_, q, _) in pairwise(found))
