"""The physics of the embedded world: what rests, what is held, what differs, and what breaks."""

from __future__ import annotations

import logging
from pathlib import Path

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from robots import ROBOTS
from sim.embedded.scene import build_model
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
    before = env.truth.bodies["cube"]
    env.step_chunk(hold(16, 60, 1.0))
    after = env.truth.bodies["cube"]
    assert np.abs(after.pos - before.pos).max() < 5e-4
    assert np.abs(after.rot - before.rot).max() < 5e-3
    assert np.abs(after.linear).max() < 1e-3 and np.abs(after.angular).max() < 1e-2


def test_the_arm_holds_its_place() -> None:
    env = make("lift", 8)
    env.reset(seed=0)
    before = env.truth
    env.step_chunk(hold(8, 60, 1.0))
    assert np.abs(env.truth.tcp_pos - before.tcp_pos).max() < 2e-3


def test_a_held_peg_is_kept_while_closed_and_lost_when_opened() -> None:
    env = make("peg_insert", 16)
    env.reset(seed=0)
    before = env.truth
    _, _, terminated, truncated, infos = env.step_chunk(hold(16, 40, -1.0))
    assert not terminated.any() and not truncated.any()
    grip = [np.einsum("nji,nj->ni", s.tcp_rot, s.bodies["peg"].pos - s.tcp_pos) for s in (before, env.truth)]
    assert np.abs(grip[1] - grip[0]).max() < 2e-3  # it does not creep
    _, reward, terminated, truncated, infos = env.step_chunk(hold(16, 40, 1.0))
    assert terminated.all() and not truncated.any() and not infos["success"].any() and not reward.any()
    assert infos["steps"].max() < 20


def test_friction_mass_and_delay_differ_by_world_by_episode_and_by_seed() -> None:
    env = make("lift", 32)
    cube = env.model.body("cube")
    geom = int(cube.geomadr[0])

    def draws(seed: int | None) -> NDArray:
        env.reset(seed=seed)
        friction, mass, inertia, weight = (
            np.array(env.batch.expand(name))
            for name in ("geom_friction", "body_mass", "body_inertia", "body_invweight0")
        )
        np.testing.assert_allclose(inertia[:, cube.id] / env.model.body_inertia[cube.id],
                                   np.tile(mass[:, [cube.id]] / cube.mass, 3))  # fmt: skip
        np.testing.assert_allclose(weight[:, cube.id, 0], 1.0 / mass[:, cube.id], rtol=1e-6)  # what follows from it
        others = np.arange(env.model.nbody) != cube.id
        np.testing.assert_array_equal(mass[:, others], np.tile(env.model.body_mass[others], (32, 1)))
        return np.stack([friction[:, geom, 0] / env.model.geom_friction[geom, 0], mass[:, cube.id] / cube.mass], -1)

    one, next_episode, two = draws(1), draws(None), draws(2)
    for column, spread in enumerate((0.3, 0.1)):  # friction within ±30%, mass within ±10%
        assert np.abs(one[:, column] - 1).max() <= spread
        assert np.ptp(one[:, column]) > spread and len(np.unique(one[:, column])) == 32
    assert np.all(one != two) and np.all(one != next_episode)
    np.testing.assert_array_equal(draws(1), one)  # not scaled on top of the last draw
    assert set(env.physics.delay) == {0, 1, 2, 3, 4}  # up to 20 ms, in time steps of 5 ms


def test_an_episode_that_ends_draws_its_worlds_physics_anew_and_no_others() -> None:
    env = make("peg_insert", 4)
    env.reset(seed=0)
    before = np.array(env.batch.expand("geom_friction"))
    active = np.array([True, False, True, False])
    _, _, terminated, _, _ = env.step_chunk(hold(4, 40, 1.0), active)  # drops the peg
    np.testing.assert_array_equal(terminated, active)
    changed = np.any(env.batch.expand("geom_friction") != before, axis=(1, 2))
    np.testing.assert_array_equal(changed, active)


def test_the_friction_of_peg_and_hole_is_the_holes() -> None:
    """Of two frictions MuJoCo takes the larger, unless one geom has priority."""
    env = make("peg_insert", 4)
    env.reset(seed=0)
    hole = env.model.body("hole")
    mine = np.array(env.batch.expand("geom_friction"))[:, int(hole.geomadr[0]), 0]
    assert len(np.unique(mine)) == 4
    peg = env.model.geom("peg").id
    address = env.model.joint("peg").qposadr[0]
    for w in range(4):
        model, data = env.batch.get_model(w), env.batch.get_data(w)
        data.qpos[address : address + 3] = data.mocap_pos[0] + [0.03, 0.0, 0.035]  # its tip 5 mm inside the wall
        data.qpos[address + 3 : address + 7] = 1.0, 0.0, 0.0, 0.0
        mujoco.mj_forward(model, data)
        found = [
            contact.friction[0]
            for contact in data.contact[: data.ncon]
            if peg in contact.geom and {int(model.geom_bodyid[g]) for g in contact.geom} & {hole.id}
        ]
        assert found and np.allclose(found, mine[w])


@pytest.mark.long
@pytest.mark.parametrize("robot", ["panda", "fr3", "ur5e", "so101"])
def test_the_links_of_the_arm_meet_the_table_and_not_each_other(robot: str) -> None:
    """Whatever overlaps the table, by MuJoCo's distance, which knows no filter, has a contact with it."""
    model = build_model(ROBOTS[robot], TASKS["lift"]())
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    joints = [model.joint(name) for name in ROBOTS[robot].joints]
    moving = [model.body(int(joint.bodyid[0])).name for joint in joints[1:]]
    geoms = [g for g in range(model.ngeom) if model.body(int(model.geom_bodyid[g])).name in moving]
    table, seen = model.geom("table").id, set()
    for _ in range(300):
        for joint in joints:
            data.qpos[joint.qposadr[0]] = rng.uniform(*joint.range)
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        pairs = [set(map(int, contact.geom)) for contact in data.contact[: data.ncon]]
        arms = [sum(model.body(int(model.geom_bodyid[g])).name.startswith(robot) for g in pair) for pair in pairs]
        assert max(arms, default=0) < 2
        for g in geoms:
            if mujoco.mj_geomDistance(model, data, g, table, 0.01, None) < -1e-3:
                assert {g, table} in pairs
                seen.add(int(model.geom_bodyid[g]))
    assert len(seen) >= 3


def test_an_arm_that_is_pushed_at_the_table_stops_there() -> None:
    """The forearm of an arm that lies down rests on the table."""
    env = make("lift", 1, action_kind="joint_position", randomise=False)
    env.reset(seed=0)
    q = np.array([0.0, 1.7, 0.0, -0.4, 0.0, 1.9, 0.8])
    low, high = env.robot.lower, env.robot.upper
    action = np.append(2 * (q - low) / (high - low) - 1, 1.0).astype(np.float32)
    lowest = 1.0
    for _ in range(60):
        env.step(action[None])
        data = env.batch.get_data(0)
        mujoco.mj_forward(env.model, data)
        lowest = min(lowest, data.body("panda_link5").xpos[2])
    assert lowest > 0.0


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
    slid = 0.3 - env.truth.bodies["cube"].pos[:, 1]
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
