"""The physics of the embedded world: what rests, what is held, what differs, and what breaks."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sim.embedded.physics import FRICTION_SPREAD, MASS_SPREAD
from sim.embedded.world import MujocoWorlds
from sim.tasks import TASKS


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo leaves a MUJOCO_LOG.TXT in the current folder when physics breaks."""
    monkeypatch.chdir(tmp_path)


def make(task: str, n: int, **options: object) -> MujocoWorlds:
    return MujocoWorlds(TASKS[task](), n, threads=1, **options)  # type: ignore[arg-type]


def hold(n: int, steps: int, gripper: float) -> NDArray[np.float32]:
    actions = np.zeros((n, steps, 7), np.float32)
    actions[..., 6] = gripper
    return actions


def test_a_cube_at_rest_stays_at_rest() -> None:
    env = make("lift", 16)
    env.reset(seed=0)
    before = env._truth.bodies["cube"]
    env.step_chunk(hold(16, 60, 1.0))
    after = env._truth.bodies["cube"]
    assert np.abs(after.pos - before.pos).max() < 5e-4
    assert np.abs(after.rot - before.rot).max() < 5e-3
    assert np.abs(after.linear).max() < 1e-3 and np.abs(after.angular).max() < 1e-2


def test_the_arm_holds_its_place() -> None:
    env = make("lift", 8)
    env.reset(seed=0)
    before = env._truth
    env.step_chunk(hold(8, 60, 1.0))
    assert np.abs(env._truth.tcp_pos - before.tcp_pos).max() < 2e-3


def test_a_held_peg_is_kept_while_closed_and_lost_when_opened() -> None:
    env = make("peg_insert", 16)
    env.reset(seed=0)
    before = env._truth
    _, _, terminated, truncated, infos = env.step_chunk(hold(16, 40, -1.0))
    assert not terminated.any() and not truncated.any()
    grip = [np.einsum("nji,nj->ni", s.tcp_rot, s.bodies["peg"].pos - s.tcp_pos) for s in (before, env._truth)]
    assert np.abs(grip[1] - grip[0]).max() < 2e-3  # it does not creep
    _, reward, terminated, truncated, infos = env.step_chunk(hold(16, 40, 1.0))
    assert terminated.all() and not truncated.any() and not infos["success"].any() and not reward.any()
    assert infos["steps"].max() < 20


def test_friction_and_mass_differ_by_world_and_by_seed() -> None:
    env = make("lift", 32)
    cube = env.model.body("cube")
    geom = int(cube.geomadr[0])

    def draws(seed: int) -> NDArray:
        env.reset(seed=seed)
        friction, mass, inertia = (
            np.array(env.batch.expand(name)) for name in ("geom_friction", "body_mass", "body_inertia")
        )
        np.testing.assert_allclose(inertia[:, cube.id] / env.model.body_inertia[cube.id],
                                   np.tile(mass[:, [cube.id]] / cube.mass, 3))  # fmt: skip
        others = np.arange(env.model.nbody) != cube.id
        np.testing.assert_array_equal(mass[:, others], np.tile(env.model.body_mass[others], (32, 1)))
        return np.stack([friction[:, geom, 0] / env.model.geom_friction[geom, 0], mass[:, cube.id] / cube.mass], -1)

    one, two = draws(1), draws(2)
    for column, spread in enumerate((FRICTION_SPREAD, MASS_SPREAD)):
        assert np.abs(one[:, column] - 1).max() <= spread
        assert np.ptp(one[:, column]) > spread and len(np.unique(one[:, column])) == 32
    assert np.all(one != two)
    np.testing.assert_array_equal(draws(1), one)  # not scaled on top of the last draw


def test_worlds_can_be_alike() -> None:
    env = make("lift", 4, randomise=False)
    env.reset(seed=0)
    a = env.batch.state.copy()
    same = env.snapshot()
    same["state"][:] = a[0]  # one start in all worlds
    same["motion"][:] = same["motion"][:, :1]
    env.restore(same)
    env.step_chunk(np.tile(np.random.default_rng(0).uniform(-1, 1, (1, 10, 7)), (4, 1, 1)).astype(np.float32))
    assert np.array_equal(env.batch.state, np.tile(env.batch.state[:1], (4, 1)))


def test_friction_matters() -> None:
    """A pushed cube slides further where friction is lower."""
    env = make("lift", 24)
    env.reset(seed=0)
    friction = np.array(env.batch.expand("geom_friction"))[:, int(env.model.body("cube").geomadr[0]), 0]
    q, v = env.model.joint("cube").qposadr[0], env.model.joint("cube").dofadr[0]
    env.batch.bind("qpos")[:, q : q + 7] = [0.3, 0.3, 0.02, 1, 0, 0, 0]
    env.batch.bind("qvel")[:, v : v + 3] = [0.0, -0.3, 0.0]  # too slow to tip over
    env.step_chunk(hold(24, 20, 1.0))
    slid = 0.3 - env._truth.bodies["cube"].pos[:, 1]
    assert np.all(slid > 0.001)
    assert np.corrcoef(slid, friction)[0, 1] < -0.5


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_diverged_world_is_truncated_reset_and_reported(
    value: float, chunked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    env, twin = make("lift", 4), make("lift", 4)
    actions = np.random.default_rng(0).uniform(-1, 1, (4, 12, 7)).astype(np.float32)
    for place in (env, twin):
        place.reset(seed=0)
        place.step_chunk(actions[:, :3])
    sensible = {key: array[2].copy() for key, array in env._observation.items()}
    env.batch.bind("qvel")[2, 3] = value
    with caplog.at_level(logging.WARNING, "sim"):
        if chunked:
            observation, reward, terminated, truncated, infos = env.step_chunk(actions[:, 3:9])
            np.testing.assert_array_equal(infos["steps"], [6, 6, 1, 6])
        else:
            observation, reward, terminated, truncated, infos = env.step(actions[:, 3])
    np.testing.assert_array_equal(truncated, [False, False, True, False])
    np.testing.assert_array_equal(infos["_final_obs"], truncated)
    assert not terminated.any() and not infos["success"].any() and np.isfinite(reward).all()
    messages = [r.getMessage() for r in caplog.records if "diverged" in r.getMessage()]
    assert len(messages) == 1 and "world(s) 2 of lift" in messages[0]
    for key, array in observation.items():
        assert np.isfinite(array).all()
        np.testing.assert_array_equal(infos["final_obs"][key][2], sensible[key])  # the last that made sense
    assert observation["objects"][2, 2] == pytest.approx(0.02, abs=1e-6)
    # The new episode lives, and the others never noticed.
    others = [0, 1, 3]
    expected = twin.step_chunk(actions[:, 3:9])[0] if chunked else twin.step(actions[:, 3])[0]
    for key in expected:
        np.testing.assert_array_equal(observation[key][others], expected[key][others])
    after, expected = env.step_chunk(actions[:, 9:])[0], twin.step_chunk(actions[:, 9:])[0]
    for key in expected:
        np.testing.assert_array_equal(after[key][others], expected[key][others])
        assert np.isfinite(after[key]).all()


def test_every_world_can_diverge_at_once() -> None:
    env = make("peg_insert", 3, reward="dense")
    env.reset(seed=0)
    env.batch.bind("qpos")[:] = np.nan
    observation, reward, terminated, truncated, infos = env.step(hold(3, 1, -1.0)[:, 0])
    assert truncated.all() and not terminated.any() and not reward.any()
    assert all(np.isfinite(value).all() for value in (*observation.values(), *infos["final_obs"].values()))
    assert not env.step(hold(3, 1, -1.0)[:, 0])[3].any()
