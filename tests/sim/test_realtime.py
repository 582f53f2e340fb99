"""The real-time world is world 0 of the vectorised ones, driven by set-points instead of actions."""

from __future__ import annotations

import time

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.core.se3 import quat_to_matrix
from robots import PANDA, ROBOTS, RobotSpec
from sim.embedded.world import MujocoWorlds
from sim.experts import make_expert
from sim.realtime import RealtimeWorld
from sim.tasks import TASKS

ALONE = [name for name, make in TASKS.items() if make().arms == 1]


class Recorded(MujocoWorlds):
    """Remembers the set-points of world 0, one row per step of physics: joints and the opening of the gripper."""

    def __init__(self, task: str, robot: RobotSpec, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(TASKS[task](), 1, robot=robot, randomise=False, threads=1)
        self.rows: list[tuple[NDArray, float]] = []
        physics = self.physics
        follow = physics.follow

        def recorded(rows: NDArray, arms: NDArray, width: NDArray, elapsed: NDArray) -> NDArray:
            before = self.batch.bind("ctrl")[:, [self.model.actuator(robot.gripper.joints[0]).id]].copy()
            for i, q in enumerate(arms[0]):
                opening = width if i >= physics.delay[0] else robot.gripper.width_of(before)
                self.rows.append((q.copy(), float(opening[0])))
            return follow(rows, arms, width, elapsed)

        monkeypatch.setattr(physics, "follow", recorded)


@pytest.mark.long
@pytest.mark.parametrize(("task", "robot"), [*((task, "panda") for task in ALONE), ("lift", "so101")])
def test_the_set_points_of_the_vectorised_world_lead_to_the_same_outcomes(
    task: str, robot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = Recorded(task, ROBOTS[robot], monkeypatch)
    here, n = RealtimeWorld(task, seed=3, robot=ROBOTS[robot], randomise=False), len(ROBOTS[robot].joints)
    expert = make_expert(task, worlds.interface, 1, "expert", seed=0)
    observation, _ = worlds.reset(seed=3)
    expert.reset(np.ones(1, dtype=bool))
    for episode in range(3):
        q, objects = here.joint_state()[1], here.objects()[1]
        np.testing.assert_array_equal(observation["proprio"][0, :n], q[:n].astype(np.float32))
        np.testing.assert_array_equal(observation["objects"][0], objects.astype(np.float32))
        # The last episode is not helped, and runs into the time limit.
        while True:
            command = expert.command(observation) if episode < 2 else np.zeros_like(expert.command(observation))
            worlds.rows.clear()
            observation, _, terminated, truncated, infos = worlds.step(command)
            assert here.outcome is None
            for q, width in worlds.rows:
                here.command(q, width)
                here.advance(here.task.timestep)
            if terminated or truncated:
                break
        assert here.outcome == {
            "success": bool(infos["success"][0]), "truncated": bool(truncated[0]), "steps": here.steps
        }  # fmt: skip
        final = infos["final_obs"]["proprio"][0]
        np.testing.assert_array_equal(final[:n], here.joint_state()[1][:n].astype(np.float32))
        assert here.reset() == 3 and here.outcome is None and here.steps == 0
        expert.reset(np.ones(1, dtype=bool))
    assert here.episode == 3


def test_starts_depend_on_the_seed_alone_and_are_those_of_world_0() -> None:
    def starts(seed: int) -> NDArray:
        world = RealtimeWorld("lift", seed)
        rows = [world.objects()[1]]
        for k in range(3):
            world.advance(0.1 * k)
            world.reset()
            rows.append(world.objects()[1])
        return np.stack(rows)

    first = starts(1)
    np.testing.assert_array_equal(first, starts(1))
    assert np.all(first != starts(2), axis=0)[:2].all()
    worlds = MujocoWorlds(TASKS["lift"](), 2, threads=1)
    observed = [worlds.reset(seed=1)[0]["objects"][0]] + [worlds.reset()[0]["objects"][0] for _ in range(3)]
    np.testing.assert_array_equal(first.astype(np.float32), observed)


def test_it_keeps_the_last_command_for_ever() -> None:
    world = RealtimeWorld("lift", 0)
    goal = world.joint_state()[1][:7] + 0.1
    world.command(goal, 0.02)
    world.advance(20.0)  # far beyond the time limit of the episode
    names, q, v = world.joint_state()
    np.testing.assert_allclose(q[:7], goal, atol=0.01)
    assert q[7:].sum() == pytest.approx(0.02, abs=1e-3) and np.abs(v).max() < 1e-2
    assert names == (*PANDA.joints, *PANDA.gripper.joints)
    assert world.outcome == {"success": False, "truncated": True, "steps": world.task.max_episode_steps}
    world.command(None, 0.08)
    world.advance(1.0)
    np.testing.assert_allclose(world.joint_state()[1][:7], goal, atol=0.01)


def test_an_episode_lasts_as_long_as_a_station_asks_for() -> None:
    world = RealtimeWorld("lift", 0, limit_s=5.0)
    world.command(world.joint_state()[1][:7], 0.08)
    world.advance(4.9)
    assert world.outcome is None
    world.advance(0.2)
    assert world.outcome == {"success": False, "truncated": True, "steps": 100}


@pytest.mark.parametrize("bad", [np.full(7, np.nan), np.zeros(6), np.array([np.inf] * 7)])
def test_a_bad_command_changes_nothing(bad: NDArray) -> None:
    world = RealtimeWorld("lift", 0)
    before = world.joint_state()[1][:7]
    with pytest.raises(BadInput):
        world.command(bad, 0.0)
    with pytest.raises(BadInput):
        world.command(None, float("nan"))
    world.advance(1.0)
    np.testing.assert_allclose(world.joint_state()[1][:7], before, atol=0.01)


def test_small_amounts_of_time_add_up() -> None:
    world = RealtimeWorld("lift", 0)
    world.command(None, 0.08)
    for _ in range(1000):
        world.advance(0.001)
    assert world.steps == 20


@pytest.mark.long
def test_the_clock_of_an_episode_starts_with_its_first_command() -> None:
    world = RealtimeWorld("lift", 0)
    for _ in range(2):
        before = world.joint_state()[1]
        world.advance(30.0)
        assert world.steps == 0 and world.outcome is None
        np.testing.assert_allclose(world.joint_state()[1], before, atol=0.01)
        world.command(before[:7])
        world.advance(5.0)
        assert world.steps == 100 and world.outcome is not None
        world.reset()


def test_a_world_that_diverges_says_so_and_stands_still_until_reset() -> None:
    world = RealtimeWorld("lift", 0)
    world.physics.qvel[0, :] = 1e9
    world.advance(0.05)
    assert world.outcome is not None and world.outcome["truncated"]
    assert np.isfinite(world.joint_state()[1]).all()
    world.reset()
    world.command(None, 0.08)
    world.advance(0.05)
    assert world.outcome is None and world.steps == 1


def test_a_step_costs_well_below_a_millisecond() -> None:
    world = RealtimeWorld("lift", 0)
    world.advance(0.1)
    start = time.process_time()
    world.advance(2.0)
    assert (time.process_time() - start) / 400 < 1e-3


def test_unknown_tasks_and_cameras_are_refused() -> None:
    for arguments in ({"task": "lifd"}, {"task": "lift", "cameras": ("fron",)}):
        with pytest.raises(BadInput):
            RealtimeWorld(**arguments, seed=0)
    with pytest.raises(BadInput):
        RealtimeWorld("lift", 0, cameras=("front",)).image("side")


def test_pictures_show_the_arm_where_it_is() -> None:
    world = RealtimeWorld("lift", 0, cameras=("front", "wrist"), image_size=48)
    first = world.image("front").copy()
    assert first.shape == (48, 48, 3) and first.dtype == np.uint8 and first.std() > 10
    world.command(world.joint_state()[1][:7] + 0.3)
    world.advance(1.0)
    assert np.abs(world.image("front").astype(int) - first).mean() > 1.0
    assert world.image("wrist").std() > 5
    world.close()


@pytest.mark.parametrize("task", ALONE)
def test_the_scene_is_where_mujoco_has_its_geoms(task: str) -> None:
    world = RealtimeWorld(task, 4)
    physics = world.physics
    arm = {name for name in _names(mujoco.MjModel.from_xml_path(str(PANDA.mjcf))) if name != "world"}
    geoms = [g for g in range(physics.model.ngeom) if physics.model.body(physics.model.geom_bodyid[g]).name not in arm]
    seen = []
    for _ in range(2):
        scene, truth = world.scene(), physics.batch.get_data(0)
        mujoco.mj_forward(physics.model, truth)
        assert len(scene.shapes) == len(geoms)
        for shape, pose, geom in zip(scene.shapes, scene.poses, geoms, strict=True):
            assert shape.name.startswith(physics.model.body(physics.model.geom_bodyid[geom]).name + "/")
            np.testing.assert_allclose(pose[:3], truth.geom_xpos[geom], atol=1e-9)
            np.testing.assert_allclose(quat_to_matrix(pose[3:]), truth.geom_xmat[geom].reshape(3, 3), atol=1e-9)
        seen.append(scene.poses)
        world.reset()
    assert np.abs(seen[0] - seen[1]).max() > 1e-3, "another episode, another place"


def _names(model: mujoco.MjModel) -> set[str]:
    return {model.body(i).name for i in range(model.nbody)}
