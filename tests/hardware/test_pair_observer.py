"""The observation of two arms: each in its own base, as old as the older one, cameras judged by the arm that moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hardware.observing.joints import StationJoints
from hardware.observing.monitor import LimitMonitor, joined
from hardware.observing.observer import NotObserved, Observer
from robots import PANDA
from robots.stations import load_contract, load_pair
from sim.embedded.world import MujocoWorlds
from sim.registry import make_env

PAIR = load_pair("panda_pair")
SIM = load_contract("sim")
NAMES = (*SIM.joints, *SIM.gripper_joints)
SIDES = ("left", "right")
HOME = np.array(PANDA.home)


def test_it_is_the_simulators_of_the_same_state() -> None:
    env = make_env("handover", 1, threads=1)
    assert isinstance(env, MujocoWorlds)
    expected, _ = env.reset(seed=4)
    state = env.truth
    names = env.interface.observation["objects"].names
    seen = Observer(PAIR.with_objects(names), ("proprio", "objects"), lambda: 5.0)
    fingers = state.width[0] / 2
    for k, side in enumerate(SIDES):
        positions = [*state.q[0, 7 * k : 7 * k + 7], fingers[k], fingers[k]]
        assert seen.joints.update(NAMES, positions, 10.0, arm=side)
    seen.objects(names, expected["objects"][0], 10.0)
    found = seen.observation()
    assert PAIR.with_objects(names).interface.observation["objects"].names == names
    np.testing.assert_allclose(found["proprio"], expected["proprio"], atol=1e-6)
    np.testing.assert_allclose(found["objects"], expected["objects"], atol=1e-6)


def test_joints_of_two_arms_are_as_old_as_those_of_the_older() -> None:
    now = [5.0]
    joints = StationJoints(PAIR, lambda: now[0])
    joints.update(NAMES, [*HOME, 0.01, 0.01], 10.0, arm="left")
    assert joints.q is None and joints.problem() == "joint states on /right/joint_states: nothing arrived yet"
    joints.update(NAMES, [*HOME + 0.1, 0.03, 0.03], 10.02, arm="right")
    assert joints.q is not None and joints.problem() == ""
    np.testing.assert_array_equal(joints.q, [*HOME, *HOME + 0.1])
    np.testing.assert_allclose(joints.widths, [0.02, 0.06])
    assert joints.openings.shape == (1, 2) and StationJoints(SIM).openings.shape == (1,)
    assert joints.stamp == 10.0 and joints.apart == pytest.approx(0.02)
    assert Observer(PAIR, ("proprio",), lambda: 5.0).stamps()[0] == 0.0
    now[0] += 0.08
    joints.update(NAMES, [*HOME, 0.01, 0.01], 10.08, arm="left")
    now[0] += 0.08
    assert "/right/joint_states: silent for 0.16 s" in joints.problem()


@pytest.mark.parametrize(("camera", "moved"), [("left_wrist", "left"), ("right_wrist", "right"), ("front", "right")])
def test_a_camera_is_frozen_where_its_own_arm_moved(camera: str, moved: str) -> None:
    now = [5.0]
    seen = Observer(PAIR, ("proprio", f"images.{camera}"), lambda: now[0])
    picture = np.full((84, 84, 3), 90, np.uint8)
    q = {side: HOME.copy() for side in SIDES}

    def look(frame: str) -> str:
        now[0] += 0.02
        for side in SIDES:
            seen.joints.update(NAMES, [*q[side], 0.02, 0.02], now[0], arm=side)
        seen.image(camera, 1, show, now[0], frame)
        return seen.problem()

    show: Callable[[], np.ndarray] = lambda: picture  # noqa: E731
    frame = PAIR.cameras[camera].frame
    assert look(frame) == ""
    (other,) = (side for side in SIDES if side != moved)
    if camera != "front":  # that of an arm shows the same while the other one moves
        q[other] = q[other] + 0.1
        assert look(frame) == ""
    q[moved] = q[moved] + 0.1
    assert "frozen, the same picture although the arm moved" in look(frame)
    with pytest.raises(NotObserved, match=f"camera {camera} on "):
        seen.observation()


def test_monitors_of_two_arms_are_counted_together() -> None:
    left, right = (LimitMonitor.of(PANDA, 0.01) for _ in SIDES)
    left.command(HOME, 0.0)
    for k, q in enumerate((HOME, HOME + 0.5, HOME + 0.5)):  # a step of 50 rad/s
        right.command(q, 0.01 * k)
    both = joined([left.summary(), right.summary()])
    assert both.keys() == left.summary().keys() and both["peak"].keys() == left.summary()["peak"].keys()
    assert both["commands"] == 4 and both["violations"] == right.summary()["violations"] > 0
    assert both["violations_by_kind"]["velocity"] == 1
    assert both["peak"]["velocity"] == right.summary()["peak"]["velocity"] > 20
    assert both["peak"]["position_margin"] == right.summary()["peak"]["position_margin"]
    assert both["peak"]["measured_margin"] is None
    assert joined([left.summary()]) == left.summary()
