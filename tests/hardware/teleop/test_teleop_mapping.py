"""Axes to actions: by hand, and by what the arm's own kinematics make of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.teleop import TELEOPERATORS, make_device
from hardware.teleop.mapping import Axis, AxisMotion, MappingConfig, curve, joint_action
from hardware.teleop.operated import Watchdog
from robolearn.core import BadInput, Interface
from robolearn.core.se3 import matrix_to_rotvec
from robots import DELTA_POS, DELTA_ROT, PANDA, SO101, make_control

SIX = MappingConfig(axes={m: Axis(m) for m in ("x", "y", "z", "roll", "pitch", "yaw")}, dead_zone=0.0, expo=0.0)


def test_the_curve_by_hand() -> None:
    assert curve(0.1, 0.1, 0.5) == 0 == curve(-0.05, 0.1, 0.5)
    assert curve(1.0, 0.1, 0.5) == pytest.approx(1) and curve(-1.0, 0.1, 0.5) == pytest.approx(-1)
    # u = (0.55 - 0.1) / 0.9 = 0.5; v = 0.5 · 0.5 + 0.5 · 0.125
    assert curve(0.55, 0.1, 0.5) == pytest.approx(0.3125)
    assert curve(7.0, 0.1, 0.5) == 1


@given(a=st.floats(-1, 1), b=st.floats(-1, 1), d=st.floats(0, 0.9), e=st.floats(0, 1))
def test_the_curve_is_odd_and_never_falls(a: float, b: float, d: float, e: float) -> None:
    low, high = sorted((a, b))
    assert curve(low, d, e) <= curve(high, d, e) + 1e-12
    assert curve(-a, d, e) == pytest.approx(-curve(a, d, e)) and abs(curve(a, d, e)) <= 1


@pytest.mark.parametrize(("axis", "world"), [("x", (1, 0, 0)), ("y", (0, 1, 0)), ("z", (0, 0, 1))])
def test_a_motion_is_along_the_axes_of_the_base(interface: Interface, observe, axis, world) -> None:
    motion = AxisMotion("test", interface, PANDA, SIX)
    q = np.asarray(PANDA.home) + 0.1
    action = motion.action({axis: 0.5}, observe(q=q))
    assert action is not None and action.dtype == np.float32 and action.shape == (7,)
    _, rot = PANDA.chain.forward(q[None])
    np.testing.assert_allclose(rot[0] @ action[:3], 0.5 * np.array(world), atol=1e-6)
    # ... and the arm's control moves the tcp that way.
    goal, _ = make_control("tcp_delta", PANDA).targets(q[None], None, action[None])
    pos, _ = PANDA.chain.forward(np.concatenate([q[None], goal]))
    np.testing.assert_allclose(pos[1] - pos[0], 0.5 * DELTA_POS * np.array(world), atol=5e-4)


def test_a_turn_is_about_the_axes_of_the_base(interface: Interface, observe) -> None:
    action = AxisMotion("test", interface, PANDA, SIX).action({"yaw": 1.0}, observe())
    assert action is not None
    q = np.asarray(PANDA.home)[None]
    goal, _ = make_control("tcp_delta", PANDA).targets(q, None, action[None])
    _, rot = PANDA.chain.forward(np.concatenate([q, goal]))
    np.testing.assert_allclose(matrix_to_rotvec(rot[1] @ rot[0].T), [0, 0, DELTA_ROT], atol=5e-3)


def test_in_the_tool_frame_axes_are_components(interface: Interface, observe) -> None:
    config = MappingConfig(axes={"z": Axis("lever", -1.0)}, dead_zone=0.0, expo=0.0, speed=0.5, frame="tool")
    action = AxisMotion("test", interface, PANDA, config).action({"lever": 0.8}, observe())
    np.testing.assert_allclose(action, [0, 0, -0.4, 0, 0, 0, 1], atol=1e-6)


@given(st.lists(st.floats(-1, 1), min_size=6, max_size=6), st.integers(0, 3))
def test_no_action_leaves_its_range_and_directions_are_kept(values: list[float], seed: int) -> None:
    # Fixtures are made once for all examples; these are cheap to make here.
    from robots.spec import proprio, proprio_spec

    interface = Interface(
        {"proprio": proprio_spec(PANDA)}, make_control("tcp_delta", PANDA).spec, 20.0, "panda", "tcp_delta"
    )
    q = np.asarray(PANDA.home)[None] + np.random.default_rng(seed).uniform(-0.4, 0.4, (1, 7))
    pos, rot = PANDA.chain.forward(q)
    observation = {"proprio": proprio(q, np.array([0.08]), pos, rot)}  # with its world axis
    action = AxisMotion("test", interface, PANDA, SIX).action(
        dict(zip(("x", "y", "z", "roll", "pitch", "yaw"), values, strict=True)), observation
    )
    assert action is not None and (np.abs(action) <= 1).all()
    moved = rot[0] @ action[:3]
    np.testing.assert_allclose(np.cross(moved, values[:3]), 0, atol=1e-5)
    assert moved @ np.array(values[:3]) >= -1e-9


def test_the_gripper_toggles_from_where_it_is(interface: Interface, observe) -> None:
    motion = AxisMotion("test", interface, PANDA, SIX)

    def grip(opening: float, toggles: int = 0) -> float:
        action = motion.action({}, observe(opening=opening), toggles=toggles)
        assert action is not None
        return float(action[6])

    assert grip(0.0) == -1, "a closed gripper does not open by itself"
    assert grip(0.0, toggles=1) == 1 and grip(0.3) == 1
    assert grip(1.0, toggles=1) == -1 and grip(0.5, toggles=2) == -1
    motion.restart()
    assert grip(0.6) == -1, "what it holds keeps it open"
    assert grip(1.0) == -1, "still the same episode"
    motion.restart()
    assert grip(66 / 80) == -1, "what it holds is wide"
    motion.restart()
    assert grip(1.0) == 1, "the arm was reset"


def test_a_trigger_says_how_far_the_gripper_closes(interface: Interface, observe) -> None:
    config = MappingConfig(axes={}, gripper="analog")
    motion = AxisMotion("test", interface, PANDA, config)
    for squeeze, expected in ((0.0, 1.0), (0.25, 0.5), (1.0, -1.0)):
        action = motion.action({}, observe(), squeeze=squeeze)
        assert action is not None and action[6] == pytest.approx(expected)


def test_joint_actions_move_the_tcp_too_and_hold_still_at_rest(panda_joints: Interface, observe) -> None:
    motion = AxisMotion("test", panda_joints, PANDA, SIX)
    q = np.asarray(PANDA.home)
    control = make_control("joint_position", PANDA)
    rest = motion.action({}, observe())
    assert rest is not None and rest.shape == (8,)
    goal, width = control.targets(q[None], None, rest[None])
    np.testing.assert_allclose(goal[0], q, atol=1e-5)
    assert width[0] == pytest.approx(PANDA.gripper.max_width)
    moving = motion.action({"z": 1.0}, observe())
    assert moving is not None
    goal, _ = control.targets(q[None], None, moving[None])
    pos, _ = PANDA.chain.forward(np.concatenate([q[None], goal]))
    np.testing.assert_allclose(pos[1] - pos[0], [0, 0, DELTA_POS], atol=1e-3)
    sagging = motion.action({}, observe(q=q - 0.01))
    np.testing.assert_array_equal(sagging, moving)


@pytest.mark.parametrize("robot", [PANDA, SO101])
def test_joint_action_is_the_inverse_of_joint_position(robot) -> None:
    rng = np.random.default_rng(0)
    q = rng.uniform(robot.lower, robot.upper)
    action = joint_action(robot, q, 0.3 * robot.gripper.max_width)
    goal, width = make_control("joint_position", robot).targets(q[None], None, action[None])
    np.testing.assert_allclose(goal[0], q, atol=1e-6)
    assert width[0] == pytest.approx(0.3 * robot.gripper.max_width)


def test_without_an_observation_there_is_no_action(interface: Interface) -> None:
    assert AxisMotion("test", interface, PANDA, SIX).action({"x": 1.0}, None) is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"axes": {"spin": Axis("x")}}, "available: x, y, z"),
        ({"dead_zone": 1.0}, "less than 1"),
        ({"expo": -0.1}, "0 to 1"),
        ({"speed": 0.0}, "more than 0"),
        ({"frame": "wolrd"}, "available: base, tool"),
        ({"gripper": "toogle"}, "did you mean toggle?"),
    ],
)
def test_a_bad_mapping_is_refused(fields, says: str) -> None:
    with pytest.raises(BadInput, match="mapping: ") as error:
        MappingConfig(**fields)
    assert says.removeprefix("did you mean ").rstrip("?") in str(error.value)


def test_a_device_is_refused_where_it_does_not_fit(interface: Interface, so101_joints: Interface) -> None:
    native = Interface(interface.observation, interface.action, 20.0, "panda", "native")
    with pytest.raises(BadInput, match=r"action kind: got native, expected tcp_delta or joint_position"):
        make_device("keyboard", native, PANDA)
    with pytest.raises(BadInput, match=r"embodiment: got so101, expected panda"):
        make_device("gamepad", so101_joints, PANDA)
    blind = Interface({}, interface.action, 20.0, "panda", "tcp_delta")
    with pytest.raises(BadInput, match=r"proprio.*missing"):
        make_device("spacemouse", blind, PANDA)
    with pytest.raises(BadInput, match=r"got gampad; available: .*did you mean gamepad"):
        make_device("gampad", interface, PANDA)
    with pytest.raises(BadInput, match=r"leader: robot: got panda, expected the joints shoulder_pan"):
        make_device("leader", interface, PANDA)
    assert set(TELEOPERATORS) >= {"keyboard", "gamepad", "spacemouse", "browser", "leader", "scripted", "recorded"}


def test_the_watchdog_latches(clock) -> None:
    dog = Watchdog("mouse", 0.5, clock)
    assert not dog.alive() and "not open" in dog.why
    dog.start()
    clock.now += 0.4
    assert dog.alive()
    clock.now += 10
    assert dog.alive(must_speak=False), "at rest it may be silent"
    assert not dog.alive() and dog.why == "mouse: silent for 10.40 s"
    dog.report()
    assert not dog.alive(), "it came back, but nobody looked"
    dog.start()
    assert dog.alive()
    dog.fail("unplugged")
    dog.fail("again")
    assert not dog.alive() and dog.why == "mouse: unplugged"
