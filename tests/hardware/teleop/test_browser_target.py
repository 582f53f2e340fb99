"""From a target to an action: it undoes the control, goes straight, and stops."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from browser_rig import interface_of

from hardware.teleop import Status, make_device
from hardware.teleop.browser.device import Browser, action_towards
from robolearn.core import BadInput
from robolearn.core.se3 import matrix_to_rotvec, rotvec_to_matrix
from robots import DELTA_POS, DELTA_ROT, ROBOTS, make_control
from robots.spec import proprio

unit = st.floats(-1.0, 1.0, width=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(unit, min_size=7, max_size=7))
def test_undoes_tcp_delta(values: list[float]) -> None:
    # T* = T · [exp(Δr) | Δp] is what TcpDelta makes of an action.
    robot, a = ROBOTS["panda"], np.array(values)
    q = np.array(robot.home)
    pos, rot = (array[0] for array in robot.chain.forward(q[None]))
    target = pos + rot @ (a[:3] * DELTA_POS), rot @ rotvec_to_matrix(a[3:6] * DELTA_ROT)
    found = action_towards("tcp_delta", robot, q, *target, 0.5 * (a[6] + 1))
    assert np.allclose(found, a, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-0.4, 0.4), min_size=3, max_size=3), st.lists(st.floats(-1.5, 1.5), min_size=3, max_size=3))
def test_a_far_target_is_gone_to_straight(step: list[float], turn: list[float]) -> None:
    robot = ROBOTS["fr3"]
    q = np.array(robot.home)
    pos, rot = (array[0] for array in robot.chain.forward(q[None]))
    a = action_towards("tcp_delta", robot, q, pos + rot @ step, rot @ rotvec_to_matrix(np.array(turn)), 1.0)
    for part, wanted, unit_ in ((a[:3], step, DELTA_POS), (a[3:6], turn, DELTA_ROT)):
        wanted = np.array(wanted) / unit_
        most = np.abs(wanted).max()
        assert np.allclose(part, wanted / max(1.0, most), atol=1e-4)


@pytest.mark.parametrize("kind", ["tcp_delta", "joint_position"])
@pytest.mark.parametrize("name", ["panda", "ur5e", "so101"])
def test_arrives_and_stops(name: str, kind: str) -> None:
    robot = ROBOTS[name]
    control = make_control(kind, robot)
    q = np.array(robot.home)
    goal_q = q + 0.15 * np.array([(-1.0) ** i for i in range(len(q))])
    pos, rot = (array[0] for array in robot.chain.forward(goal_q[None]))
    for _ in range(120):
        a = action_towards(kind, robot, q, pos, rot, 0.5)
        assert a.shape == control.spec.shape and np.abs(a).max() <= 1.0
        goal, width = control.targets(q[None], None, a[None])
        q = q + 0.6 * (goal[0] - q)  # an arm lags behind its set-points
    reached, reached_rot = (array[0] for array in robot.chain.forward(q[None]))
    assert np.linalg.norm(reached - pos) < 1e-3
    assert np.linalg.norm(matrix_to_rotvec(reached_rot.T @ rot)) < 5e-3
    assert width[0] == pytest.approx(0.5 * robot.gripper.max_width)


def test_says_what_it_cannot_do() -> None:
    robot, interface = ROBOTS["panda"], interface_of("panda")
    with pytest.raises(BadInput, match="kind of action: got native"):
        action_towards("native", robot, np.array(robot.home), np.zeros(3), np.eye(3), 1.0)
    with pytest.raises(BadInput, match="7 components, expected 8"):
        Browser(dataclasses.replace(interface, action_kind="joint_position"), robot)
    for options, words in (
        ({"heartbeat_s": 0.0}, "heartbeat_s"),
        ({"port": 70000}, "port"),
        ({"key": Path("key.pem")}, "a key alone"),
    ):
        with pytest.raises(BadInput, match=words):
            make_device("browser", interface, robot, **options)


@pytest.mark.parametrize(("simulated", "silence"), [(False, 0.3), (True, 1.0)])
def test_a_page_may_be_silent_for_longer_where_the_arm_is_simulated(clock, simulated: bool, silence: float) -> None:
    robot, interface = ROBOTS["panda"], interface_of("panda")
    arbiter = make_device("browser", interface, robot, simulated=simulated).arbiter
    arbiter.clock = clock
    arbiter.join(1)
    arbiter.beat(1, 1)
    clock.now += silence - 0.01
    assert arbiter.request().engaged
    clock.now += 0.02
    assert arbiter.request().note == f"the page was silent for more than {silence:g} s"
    assert make_device("browser", interface, robot).arbiter.heartbeat_s == 0.3, "strict, where nobody says what it is"
    assert make_device("browser", interface, robot, simulated=True, heartbeat_s=3.0).arbiter.heartbeat_s == 3.0


def test_the_device_holds_still_until_asked_and_follows_the_arm_between_episodes() -> None:
    robot = ROBOTS["panda"]
    device = Browser(interface_of("panda"), robot)  # never opened: the arbiter stands in for its page
    device.arbiter.join(1)

    def sample(q: np.ndarray):
        observation = {"proprio": proprio(q, np.array([0.08]), *robot.chain.forward(q))[0]}
        device.arbiter.beat(1, press)
        return device.sample(observation)

    press, home = 1, np.array([robot.home])
    device.arbiter.beat(1, 1)
    first = device.sample(None)
    assert first.engaged and first.action is None  # nothing observed
    assert np.abs(sample(home).action[:6]).max() < 1e-5 and sample(home).action[6] == pytest.approx(1.0)
    position, rotation = (array[0] for array in robot.chain.forward(home))
    device.arbiter.drag(1, position + rotation @ [0.0, 0.01, 0.0], rotation)
    assert sample(home).action[:3] == pytest.approx([0.0, 0.5, 0.0], abs=1e-5)

    # The recording takes the arm elsewhere: the old target must not draw it back.
    away = home + 0.1
    for state in ("resetting", "waiting"):
        device.show(Status(state, "", 1, 5, 0, 0.0))
        assert np.abs(sample(away).action[:6]).max() < 1e-4
    broken = {"proprio": np.full(17, np.nan, np.float32)}
    assert device.sample(broken).action is None
    press = 0
    assert sample(home).action is None and not sample(home).engaged


def test_the_gripper_goes_on_as_the_arm_stands_when_it_was_put_in_its_place() -> None:
    robot = ROBOTS["panda"]
    device = Browser(interface_of("panda"), robot)
    device.arbiter.join(1)
    q = np.array([robot.home])
    tcp = robot.chain.forward(q)

    def grip(width: float) -> float:
        device.arbiter.beat(1, 1)
        action = device.sample({"proprio": proprio(q, np.array([width]), *tcp)[0]}).action
        assert action is not None
        return float(action[6])

    assert grip(0.08) == pytest.approx(1)
    device.arbiter.grip(1, 0.0)
    assert grip(0.066) == pytest.approx(-1)
    for state in ("storing", "waiting", "recording", "preparing"):
        device.show(Status(state, "", 1, 5, 0, 0.0))
        assert grip(0.066) == pytest.approx(-1), "it goes on to hold what it holds"
    device.prepared()
    assert grip(0.066) == pytest.approx(-1)
    device.prepared()
    assert grip(0.08) == pytest.approx(1), "the reset has opened it: it does not close at once"
