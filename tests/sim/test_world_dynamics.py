"""Dynamics of the worlds: what they do to an arm, by arithmetic; drawn by seed alone, and continued exactly."""

from __future__ import annotations

import json
from pathlib import Path

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import BadInput
from robots import PANDA
from sim.embedded.world import MujocoWorlds
from sim.realtime import RealtimeWorld
from sim.registry import make_env
from sim.vector import episode_rng

G = 9.81


def world(folder: Path, n: int = 1, task: str = "lift", **parameters: object) -> MujocoWorlds:
    path = folder / "arm.json"
    path.write_text(json.dumps({"parameters": parameters}))
    env = make_env(task, n, dynamics=str(path), threads=1, action_kind="joint_position")
    assert isinstance(env, MujocoWorlds)
    return env


def rest(env: MujocoWorlds, seconds: float = 3.0) -> NDArray[np.float64]:
    """(N, n) set-points minus joints when the arms have held still."""
    env.reset(seed=0)
    physics = env.physics
    commanded = env._set_q.copy()
    steps = round(seconds / env.world_task.timestep)
    elapsed = np.zeros(env.num_envs, np.int64)
    arms = np.broadcast_to(commanded[:, None], (env.num_envs, steps, 7)).copy()
    physics.follow(np.arange(env.num_envs), arms, np.full(env.num_envs, 0.08), elapsed)
    return commanded - physics.qpos[:, physics.arm_q]


KP = np.array([2000.0] * 4 + [300.0] * 3)


def test_a_payload_sags_the_arm_by_its_torque_over_the_gain(tmp_path: Path) -> None:
    env = world(tmp_path, payload=0.8, gain=0.5)
    sag = rest(env)[0]
    q = env.physics.qpos[:, env.physics.arm_q]
    torque = PANDA.chain.jacobian(q)[0][:3].T @ [0.0, 0.0, 0.8 * G]  # J' m g
    np.testing.assert_allclose(sag, torque / (0.5 * KP), atol=2e-5)
    assert np.abs(sag).max() > 3e-3


def test_links_that_weigh_more_than_modelled_are_not_carried(tmp_path: Path) -> None:
    """By MuJoCo's inverse dynamics on the arm's own model, with those masses; centres in the same way."""
    for parameters, change in (
        ({"link_mass": 1.3}, lambda m, b: m.body_mass.__setitem__(b, 1.3 * m.body_mass[b])),
        ({"link_centre": 0.01}, lambda m, b: m.body_ipos.__setitem__(b, m.body_ipos[b] + 0.01)),
    ):
        env = world(tmp_path, 1, "lift", **parameters)
        sag = rest(env)[0]
        q = env.physics.qpos[0, env.physics.arm_q]
        torques = []
        for changed in (False, True):
            model = mujoco.MjModel.from_xml_path(str(PANDA.mjcf))
            for name in PANDA.joints:
                if changed:
                    change(model, int(model.joint(name).bodyid[0]))
            data = mujoco.MjData(model)
            data.qpos[[model.joint(name).qposadr[0] for name in PANDA.joints]] = q
            data.qpos[[model.joint(name).qposadr[0] for name in PANDA.gripper.joints]] = 0.04
            model.body_gravcomp[:] = 0.0
            mujoco.mj_inverse(model, data)
            torques.append(data.qfrc_inverse[[model.joint(name).dofadr[0] for name in PANDA.joints]])
        np.testing.assert_allclose(sag, (torques[1] - torques[0]) / KP, atol=2e-5)
        assert np.abs(sag).max() > 3e-4


def test_dry_friction_holds_what_is_less_and_gives_way_to_more(tmp_path: Path) -> None:
    env = world(tmp_path, joint_friction=0.02)  # 1.74 Nm of 87
    env.reset(seed=0)
    physics, start = env.physics, env.physics.qpos[0, env.physics.arm_q].copy()
    for torque, moves in ((0.8 * 0.02 * 87.0, False), (3.0 * 0.02 * 87.0, True)):
        arms = np.tile(start, (1, 200, 1))
        arms[..., 0] += torque / KP[0]
        physics.follow(np.arange(1), arms, np.full(1, 0.08), np.zeros(1, np.int64))
        moved = physics.qpos[0, physics.arm_q][0] - start[0]
        assert (moved > 0.5 * torque / KP[0]) == moves and (moves or abs(moved) < 1e-4)


def test_gain_damping_and_armature_are_those_of_a_second_order_system(tmp_path: Path) -> None:
    """Joint 7 alone: J q̈ + d q̇ + k (q − u) = 0, solved by matrix exponential."""
    from scipy.linalg import expm

    env = world(tmp_path, gain=0.8, damping=0.3, armature=2.0)
    env.reset(seed=0)
    physics, m, dt = env.physics, env.model, env.world_task.timestep
    data = env.batch.get_data(0)
    mujoco.mj_forward(env.batch.get_model(0), data)
    full = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(env.batch.get_model(0), data, full)
    v = physics.arm_v[6]
    assert full[v, v] == pytest.approx(0.2 + mass_about_joint_7(), rel=0.05)
    q0 = physics.qpos[0, physics.arm_q].copy()
    arms = np.tile(q0, (1, 40, 1))
    arms[..., 6] += 0.05
    physics.follow(np.arange(1), arms, np.full(1, 0.08), np.zeros(1, np.int64))
    system = np.array([[0.0, 1.0], [-0.8 * 300.0 / full[v, v], -0.3 * 8.0 / full[v, v]]])
    expected = 0.05 + (expm(system * 40 * dt) @ [-0.05, 0.0])[0]
    assert physics.qpos[0, physics.arm_q][6] - q0[6] == pytest.approx(expected, rel=0.08)


def mass_about_joint_7() -> float:
    """Inertia of hand and last link about the last axis, from the model's own compiled inertia at rest."""
    model = mujoco.MjModel.from_xml_path(str(PANDA.mjcf))
    data = mujoco.MjData(model)
    data.qpos[[model.joint(name).qposadr[0] for name in PANDA.joints]] = PANDA.home
    mujoco.mj_forward(model, data)
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    v = int(model.joint(PANDA.joints[6]).dofadr[0])
    return float(full[v, v] - 0.1)


def test_the_gripper_presses_with_its_share_of_the_force(tmp_path: Path) -> None:
    pressed = []
    for share in (1.0, 0.5):
        env = world(tmp_path, gripper_force=share)
        env.reset(seed=0)
        force = env.batch.expand("actuator_forcerange")[0][env.physics._finger_u]
        pressed.append(force)
    np.testing.assert_allclose(pressed[1], 0.5 * pressed[0])


def test_sensors_are_off_late_and_noisy_and_success_is_of_the_truth(tmp_path: Path) -> None:
    env = world(tmp_path, 4, joint_offset=0.02, observation_delay=0.125, joint_noise=0.001)
    observation, _ = env.reset(seed=0)
    true = [env.truth.q.copy()]
    noise = []
    for _ in range(30):
        action = np.random.default_rng(len(true)).uniform(-1, 1, (4, 8)).astype(np.float32)
        observation, *_ = env.step(action)
        true.append(env.truth.q.copy())
        if len(true) > 4:  # 2.5 control steps ago
            noise.append(observation["proprio"][:, :7] - 0.02 - 0.5 * (true[-3] + true[-4]))
    errors = np.concatenate(noise)
    assert abs(errors.mean()) < 2e-4 and errors.std() == pytest.approx(1e-3, rel=0.15)
    tcp = env.robot.chain.forward(observation["proprio"][:, :7].astype(np.float64))[0]
    np.testing.assert_allclose(observation["proprio"][:, 8:11], tcp, atol=1e-5)  # what a real arm would report
    position = env.physics.qpos[:, env.model.joint("cube").qposadr[0]]
    assert np.abs(observation["objects"][:, 0] - position).max() < 1e-5


def test_a_measurement_is_at_most_as_late_as_there_is_room(tmp_path: Path) -> None:
    """A normal distribution has no longest delay; a draw beyond four deviations must not end the world."""
    env = world(tmp_path, observation_delay={"mean": 0.02, "sd": 0.01})
    env.reset(seed=0)
    env.physics.arms.write(0, {"observation_delay": np.array([5.0])})
    assert np.isfinite(env.step(np.zeros((1, 8), np.float32))[0]["proprio"]).all()


def test_the_start_of_an_episode_is_the_same_with_any_dynamics() -> None:
    starts = [make_env("lift", 3, dynamics=d, threads=1).reset(seed=4)[0]["objects"][:, :3]
              for d in ("none", "mild", "wild")]  # fmt: skip
    np.testing.assert_array_equal(starts[0], starts[1])
    np.testing.assert_array_equal(starts[0], starts[2])


def chunks(n: int, count: int) -> NDArray[np.float32]:
    return np.stack([np.random.default_rng([0, w]).uniform(-1, 1, (count, 8, 7)) for w in range(n)], 1).astype("f4")


@pytest.mark.long
@pytest.mark.parametrize("task", ["lift", "peg_insert"])
def test_wild_worlds_are_reproducible_and_go_on_exactly(task: str) -> None:
    runs = []
    for n, threads in ((2, 1), (2, 2), (5, 1)):
        env = make_env(task, n, dynamics="wild", threads=threads)
        assert isinstance(env, MujocoWorlds)
        env.reset(seed=7)
        seen, kept = [], {}
        ended = np.zeros(n, bool)
        for i, chunk in enumerate(chunks(n, 18)):
            if i == 5:
                kept = env.snapshot()
            observation, _, terminated, truncated, _ = env.step_chunk(chunk)
            ended |= terminated | truncated
            seen.append(np.concatenate([observation["proprio"], observation["objects"]], 1)[:2])
        assert ended.all()
        runs.append(np.array(seen))
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])
    other = make_env(task, 5, dynamics="wild", threads=2)
    assert isinstance(other, MujocoWorlds)
    other.restore(kept)
    for i, chunk in enumerate(chunks(5, 18)[5:]):
        observation = other.step_chunk(chunk)[0]
        again = np.concatenate([observation["proprio"], observation["objects"]], 1)[:2]
        np.testing.assert_array_equal(again, runs[2][5 + i])


def test_the_real_time_arm_is_world_0_of_the_vectorised_ones(tmp_path: Path) -> None:
    env = world(tmp_path, payload=0.5, command_delay=0.043, backlash=0.004, joint_offset=0.01, gain=1.2,
                observation_delay=0.035)  # fmt: skip
    here = RealtimeWorld("lift", 2, dynamics=str(tmp_path / "arm.json"))
    env.reset(seed=2)
    follow, rows = env.physics.follow, []

    def recorded(worlds: NDArray, arms: NDArray, width: NDArray, elapsed: NDArray) -> NDArray:
        rows.extend((q.copy(), float(width[0])) for q in arms[0])
        return follow(worlds, arms, width, elapsed)

    env.physics.follow = recorded  # type: ignore[method-assign]
    for t in range(12):
        rows.clear()
        env.step(np.random.default_rng(t).uniform(-1, 1, (1, 8)).astype(np.float32))
        for q, width in rows:
            here.command(q, width)
            here.advance(here.task.timestep)
        np.testing.assert_array_equal(here.physics.qpos, env.physics.qpos)
    measured, past = here.joint_state()[1][:7], env.physics.qpos[0, env.physics.arm_q]
    assert np.abs(measured - 0.01 - past).max() > 1e-3  # late, while it moves
    for _ in range(100):
        here.advance(0.05)
    still = here.physics.qpos[0, here.physics.arm_q]
    np.testing.assert_allclose(here.joint_state()[1][:7], still + 0.01, atol=1e-6)


def test_the_things_and_delays_of_worlds_without_dynamics_are_those_of_their_generators() -> None:
    """The numbers of an episode's generator, by hand."""
    env = make_env("lift", 3, threads=1)
    assert isinstance(env, MujocoWorlds)
    env.reset(seed=6)
    cube = env.model.body("cube")
    for w in range(3):
        rng = episode_rng(6, w, 0)
        friction, mass = rng.random((1, 2))[0]
        assert env.batch.expand("body_mass")[w, cube.id] == cube.mass[0] * (0.9 + (1.1 - 0.9) * mass)
        geom = int(cube.geomadr[0])
        found = env.batch.expand("geom_friction")[w, geom, 0]
        assert found == env.model.geom_friction[geom, 0] * (0.7 + (1.3 - 0.7) * friction)
        assert env.physics.delay[w] == rng.integers(5)


def test_masses_and_friction_of_things_stay_within_their_bounds(tmp_path: Path) -> None:
    """Normal distributions of which a quarter or more is negative."""
    wide = {"mean": 0.5, "sd": 1.0}
    env = world(tmp_path, 64, object_mass=wide, contact_friction=wide)
    physics = env.physics
    env.reset(seed=0)
    (body,) = physics._randomised
    for values, modelled in (
        (physics._mass[:, body.id], body.mass),
        (physics._friction[:, body.geoms, 0], body.friction),
    ):
        factors = values / modelled
        assert factors.min() >= 0.05 and len(np.unique(factors)) >= 64


def test_dynamics_of_another_arm_or_of_worlds_that_have_none(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("robot: fr3\nparameters: {gain: 1.1}\n")
    with pytest.raises(BadInput, match="got of the arm fr3, expected of panda"):
        make_env("lift", 1, dynamics=str(path))
    with pytest.raises(BadInput, match="option dynamics, expected an embedded task"):
        make_env("gym:x:Y-v0", 1, dynamics="mild")


def test_an_offset_is_of_what_is_commanded_and_of_what_actions_start_from(tmp_path: Path) -> None:
    env = world(tmp_path, joint_offset=0.02)
    np.testing.assert_allclose(rest(env)[0], 0.02, atol=1e-4)  # the sensors are where they were commanded to be
    observation, _ = env.reset(seed=0)
    env.step(np.ones((1, 8), np.float32))  # as far as a joint may in a control step
    expected = observation["proprio"][0, :7] + np.array(PANDA.velocity) / 20.0
    np.testing.assert_allclose(env._goal[0], np.minimum(expected, PANDA.upper), atol=1e-6)
