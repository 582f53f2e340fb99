"""A world that runs elsewhere is filmed as its own camera sees it, from joints and scene alone."""

from __future__ import annotations

import numpy as np
import pytest

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2.scene import SceneMarkers, read_scene
from robots import PANDA, SO101
from sim.embedded.camera import SceneFilm
from sim.registry import make_env
from sim.tasks import TASKS

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("task", "robot"), [("lift", PANDA), ("peg_insert", PANDA), ("pick_place", SO101)])
def test_the_film_is_what_the_worlds_own_camera_sees(task: str, robot: object) -> None:
    env = make_env(task, 1, threads=1, robot=robot.name)  # type: ignore[attr-defined]
    film = SceneFilm(robot, TASKS[task]())  # type: ignore[arg-type]
    try:
        observation, _ = env.reset(seed=3)
        rng, n = np.random.default_rng(0), len(robot.joints)  # type: ignore[attr-defined]
        before = None
        for _ in range(3):
            for _ in range(10):
                actions = rng.uniform(-1.0, 1.0, (1, env.interface.action.size)).astype(np.float32)
                observation = env.step(actions)[0]
            q, width = observation["proprio"][0, :n].astype(np.float64), float(observation["proprio"][0, n])
            truth = np.array(env.frame(0))
            scene = read_scene(SceneMarkers("base").message(env.scene(0), 1.0))  # type: ignore[arg-type,attr-defined]
            assert scene is not None
            picture = film.frame(q, width, scene)
            # To a shade: the marks of fingers and shadows move by a hair where an observation has single precision.
            assert np.abs(picture.astype(int) - truth).mean() < 0.5
            if before is not None:
                assert np.abs(before.astype(int) - truth).mean() > 1.0
            before = picture
    finally:
        film.close()
        env.close()
