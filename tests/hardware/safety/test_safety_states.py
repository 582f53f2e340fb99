"""Every way between the states, and every way that is barred."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.safety import SafetyRefused, SafetyState


def test_begins_disarmed_and_silent(rig) -> None:
    assert rig.filter.state is SafetyState.DISARMED and rig.filter.reason == ""
    assert rig.tick() is None
    rig.tick(rig.goal(rig.measured + 0.1))
    assert rig.filter.state is SafetyState.DISARMED and rig.filter.step() is None


def test_armed_without_a_target_holds_still(rig) -> None:
    rig.arm()
    rig.run(None, 100)
    assert rig.filter.state is SafetyState.ARMED
    assert np.array_equal(rig.sent, np.tile(rig.robot.home, (100, 1)))


def test_disarm_is_a_planned_stop(rig) -> None:
    rig.moving().filter.disarm()
    assert rig.filter.state is SafetyState.BRAKING
    steps = rig.settle()
    assert rig.filter.state is SafetyState.DISARMED and 5 < steps * rig.period / 0.005 < 100
    assert rig.worst().max() <= 1.0
    rig.arm()
    assert rig.filter.state is SafetyState.ARMED and rig.filter.reason == ""


def test_a_fault_brakes_and_latches_and_only_reset_then_arm_leaves(rig) -> None:
    rig.moving().filter.stop("the chunk ran out")
    assert rig.filter.state is SafetyState.BRAKING and rig.filter.reason == "stop: the chunk ran out"
    with pytest.raises(SafetyRefused, match=r"still braking \(stop: the chunk ran out\)"):
        rig.filter.arm()
    with pytest.raises(SafetyRefused, match="still braking"):
        rig.filter.reset()
    assert rig.tick() is not None
    rig.settle()
    assert rig.filter.state is SafetyState.LATCHED and "chunk" in rig.filter.reason
    with pytest.raises(SafetyRefused, match=r"latched \(stop: the chunk ran out\): reset first"):
        rig.filter.arm()
    rig.tick(rig.goal(rig.measured))
    assert rig.filter.state is SafetyState.LATCHED, "targets do not wake it"
    rig.filter.reset()
    assert rig.filter.state is SafetyState.DISARMED and rig.filter.reason == ""
    assert rig.tick() is None
    rig.arm()
    assert rig.filter.state is SafetyState.ARMED


def test_reset_when_there_is_nothing_to_reset(rig) -> None:
    rig.filter.reset()
    assert rig.filter.state is SafetyState.DISARMED
    rig.arm()
    with pytest.raises(SafetyRefused, match="armed: there is nothing to reset"):
        rig.filter.reset()
    rig.filter.arm()
    assert rig.filter.state is SafetyState.ARMED


def test_estop_from_every_state(rig) -> None:
    rig.filter.estop()
    assert rig.filter.state is SafetyState.LATCHED and rig.filter.reason == "e-stop pressed"
    rig.filter.reset()
    rig.moving().filter.estop("the operator saw something")
    assert rig.filter.state is SafetyState.BRAKING and rig.filter.reason == "the operator saw something"
    rig.tick()
    rig.filter.estop("again")
    rig.settle()
    assert rig.filter.state is SafetyState.LATCHED and rig.filter.reason == "the operator saw something; then again"
    for _ in range(3):
        rig.filter.estop()
        assert rig.filter.state is SafetyState.LATCHED
    assert rig.filter.reason == "the operator saw something; then e-stop pressed", "the first and the newest"


def test_estop_while_a_planned_stop_is_braking_latches(rig) -> None:
    rig.moving().filter.disarm()
    rig.tick()
    rig.filter.estop()
    rig.settle()
    assert rig.filter.state is SafetyState.LATCHED and rig.filter.reason == "e-stop pressed"
    assert rig.worst().max() <= 1.0


def test_stop_and_disarm_outside_armed_do_nothing(rig) -> None:
    rig.filter.stop("end")
    rig.filter.disarm()
    assert rig.filter.state is SafetyState.DISARMED
    rig.moving().filter.disarm()
    rig.filter.stop("end")
    rig.settle()
    assert rig.filter.state is SafetyState.DISARMED


def test_braking_begins_within_a_period_and_comes_to_rest_soon(rig) -> None:
    rig.moving()
    before = len(rig.sent)
    rig.filter.estop()
    rig.settle()
    speeds = np.abs(np.diff(np.array(rig.sent), axis=0)[before - 1 :, 0]) / rig.period
    assert speeds[0] > 2.0 and speeds[-1] < 0.01
    assert np.all(np.diff(speeds) < 1e-9), "it only gets slower"
    assert len(speeds) * rig.period < 0.25


@pytest.mark.parametrize("away", [0.0, 0.01, 0.0199, 0.5])
def test_rearming_begins_where_the_arm_is(rig, away: float) -> None:
    """Whether it hangs a little, or was moved: the last command is no place to begin."""
    rig.moving().filter.estop()
    rig.settle()
    rig.filter.reset()
    rig.arm(at=rig.sent[-1] - away)
    assert np.array_equal(rig.tick().positions, rig.measured)


def test_a_target_of_before_is_forgotten(rig) -> None:
    rig.moving().filter.disarm()
    rig.settle()
    rig.arm()
    begin = len(rig.sent)
    rig.run(None, 50)
    assert np.ptp(np.array(rig.sent)[begin:], axis=0).max() == 0.0
    assert rig.filter.state is SafetyState.ARMED


def test_late_steps_stretch_time(make_rig) -> None:
    prompt, late = make_rig(), make_rig()
    for rig, extra in ((prompt, 0.0), (late, 0.01)):
        rig.arm()
        for _ in range(60):
            rig.now += extra
            rig.tick(rig.goal(np.array(rig.robot.home) + 0.2))
    assert np.array_equal(prompt.sent, late.sent)


def test_the_first_command_is_where_the_arm_stands(rig) -> None:
    rig.arm()
    assert np.array_equal(rig.tick(rig.goal(rig.measured + 0.2)).positions, rig.robot.home)
    assert not np.array_equal(rig.tick(rig.goal(rig.measured + 0.2)).positions, rig.robot.home)


def test_status(rig) -> None:
    status = rig.filter.status()
    assert status["state"] == "disarmed" and status["target_age_s"] is None and status["refusals"] == {}
    rig.arm()
    rig.tick(rig.goal(rig.measured, gripper=0.04))
    rig.now += 0.02
    status = rig.filter.status()
    assert status["state"] == "armed" and abs(status["target_age_s"] - 0.02) < 1e-9
    assert abs(status["joint_state_age_s"] - 0.02) < 1e-9 and status["deadman_held"] is True
    rig.filter.stop("done")
    assert rig.filter.status()["refusals"] == {"stop": 1} and rig.filter.status()["reason"] == "stop: done"
