"""Identification against an arm that shares no code with the fit: MuJoCo alone, at another time step."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from robots import PANDA
from robots.excitation import excitation
from robots.motion_log import MotionLog
from sim.identification.fit import Identifier

GAIN, DAMPING, DELAY_S, NOISE = 0.85, 1.3, 0.043, 1e-4


def hidden_arm(commanded: NDArray[np.float64], period: float, seed: int, dt: float = 0.001) -> MotionLog:
    """The motion of a Panda with other gains and damping, `DELAY_S` behind its set-points."""
    model = mujoco.MjModel.from_xml_path(str(PANDA.mjcf))
    model.opt.timestep, model.opt.integrator = dt, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    u = [model.actuator(name).id for name in PANDA.joints]
    q, v = ([getattr(model.joint(name), at)[0] for name in PANDA.joints] for at in ("qposadr", "dofadr"))
    model.actuator_gainprm[u, 0] *= GAIN
    model.actuator_biasprm[u, 1] *= GAIN
    model.dof_damping[v] *= DAMPING
    data = mujoco.MjData(model)
    data.qpos[q] = commanded[0]
    rng, measured = np.random.default_rng(seed), []
    t = period * np.arange(len(commanded))
    for k in range(len(commanded)):
        for i in range(round(period / dt)):
            late = t[k] + (i + 1) * dt - DELAY_S
            # A set-point holds until the next one comes.
            data.ctrl[u] = commanded[max(0, int(np.floor(late / period + 1e-9)))]
            mujoco.mj_step(model, data)
        measured.append(data.qpos[q] + NOISE * rng.standard_normal(7))
    return MotionLog("panda", period, commanded, np.array(measured))


@pytest.fixture(scope="module")
def motion() -> MotionLog:
    return hidden_arm(excitation(PANDA, 8.0, 0.005, seed=3), 0.005, seed=0)


@pytest.mark.long
def test_gains_damping_and_delay_of_an_arm_of_another_simulator_are_found(motion: MotionLog) -> None:
    identifier = Identifier(PANDA, motion.period, 1, ("gain", "damping", "command_delay"))
    fit = identifier.fit(motion)
    found = fit.values()
    assert abs(found["command_delay"][0] - DELAY_S) < 0.003
    np.testing.assert_allclose(found["gain"], GAIN, rtol=0.03)
    # A step of 5 ms takes the servo's spring half a step too late: the model needs k Δt/2 more damping than the arm.
    k, d = np.array([2000.0] * 4 + [300.0] * 3), np.array([60.0] * 4 + [8.0] * 3)
    np.testing.assert_allclose(found["damping"], DAMPING + 0.5 * GAIN * k * motion.period / d, rtol=0.025)
    assert not fit.unidentified
    assert fit.noise == pytest.approx(NOISE, rel=0.1)
    assert identifier.error(motion, found) < 0.1 * identifier.error(motion, {})
    config = fit.config("x")
    draws = [config.draw(PANDA, (0, 0, i)) for i in range(300)]
    gains = np.array([draw["gain"] for draw in draws])
    np.testing.assert_allclose(gains.mean(0), found["gain"], rtol=0.01)
    delays = np.array([draw["command_delay"][0] for draw in draws])
    at, by = fit.names.index("gain.1"), fit.names.index("command_delay.0")
    expected = fit.covariance[at, by] / np.sqrt(fit.covariance[at, at] * fit.covariance[by, by])
    assert np.corrcoef(gains[:, 1], delays)[0, 1] == pytest.approx(expected, abs=0.2)


@pytest.mark.long
def test_what_an_arm_at_rest_does_not_show_is_said() -> None:
    rest = np.tile(PANDA.home, (1200, 1))
    fit = Identifier(PANDA, 0.005, 1, ("gain", "damping", "command_delay")).fit(hidden_arm(rest, 0.005, seed=1))
    assert set(fit.unidentified) == set(fit.names)


@pytest.mark.parametrize("seed", range(3))
def test_an_excitation_stays_in_free_space_and_within_the_arms_speed(seed: int) -> None:
    q = excitation(PANDA, 25.0, 0.005, seed)
    assert (q > PANDA.lower).all() and (q < PANDA.upper).all()
    assert (np.abs(np.diff(q, axis=0)) / 0.005 < np.array(PANDA.velocity)).all()
    model = mujoco.MjModel.from_xml_path(str(PANDA.mjcf))
    data = mujoco.MjData(model)
    for row in q[::50]:
        data.qpos[[model.joint(name).qposadr[0] for name in PANDA.joints]] = row
        mujoco.mj_kinematics(model, data)
        assert data.site("tcp").xpos[2] > 0.12
    np.testing.assert_allclose(q[0], PANDA.home)
    assert np.abs(q[-1] - PANDA.home).max() < 0.02
