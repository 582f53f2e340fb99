"""A world that runs elsewhere is filmed as its own camera sees it, from joints and scene alone."""

from __future__ import annotations

import numpy as np
import pytest

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2.scene import SceneMarkers, read_scene
from robots import PAIRS, PANDA, SO101
from sim.embedded.camera import SceneFilm
from sim.registry import make_env
from sim.tasks import TASKS

pytestmark = pytest.mark.long


OF = {"lift": PANDA, "peg_insert": PANDA, "pick_place": SO101, "lift_two": PAIRS["panda_pair"]}


@pytest.mark.parametrize("task", OF)
def test_the_film_is_what_the_worlds_own_camera_sees(task: str) -> None:
    robot = OF[task]
    env = make_env(task, 1, threads=1, robot=robot.name)
    film = SceneFilm(robot, TASKS[task]())
    try:
        observation, _ = env.reset(seed=3)
        rng, names = np.random.default_rng(0), env.interface.observation["proprio"].names
        widths = [i for i, name in enumerate(names) if name.endswith("gripper_width")]
        ends = [(i - len(part.robot.joints), i) for i, part in zip(widths, robot.parts, strict=True)]
        before = None
        for _ in range(3):
            for _ in range(10):
                actions = rng.uniform(-1.0, 1.0, (1, env.interface.action.size)).astype(np.float32)
                observation = env.step(actions)[0]
            seen = observation["proprio"][0].astype(np.float64)
            q = np.concatenate([seen[a:b] for a, b in ends])
            openings = seen[widths] if len(widths) == 1 else seen[None, widths]
            truth = np.array(env.frame(0))
            scene = read_scene(SceneMarkers("base").message(env.scene(0), 1.0))  # type: ignore[arg-type,attr-defined]
            assert scene is not None
            picture = film.frame(q, openings, scene)
            # To a shade: the marks of fingers and shadows move by a hair where an observation has single precision.
            assert np.abs(picture.astype(int) - truth).mean() < 0.5
            if before is not None:
                assert np.abs(before.astype(int) - truth).mean() > 1.0
            before = picture
    finally:
        film.close()
        env.close()


def test_each_of_two_grippers_is_drawn_as_it_is() -> None:
    pair, env = PAIRS["panda_pair"], make_env("lift_two", 1, threads=1)
    film = SceneFilm(pair, TASKS["lift_two"]())
    try:
        env.reset(seed=3)
        shown = {
            (left, right): film.frame(np.array(pair.home), np.array([[left, right]]), env.scene(0)).astype(int)  # type: ignore[attr-defined]
            for left in (0.0, 0.08)
            for right in (0.0, 0.08)
        }
    finally:
        film.close()
        env.close()
    columns = [np.abs(shown[one] - shown[0.0, 0.0]).sum((0, 2)).nonzero()[0] for one in ((0.08, 0.0), (0.0, 0.08))]
    assert all(len(one) for one in columns) and not set(columns[0]) & set(columns[1]), "two places of the picture"
    np.testing.assert_array_equal(shown[0.08, 0.08] - shown[0.08, 0.0], shown[0.0, 0.08] - shown[0.0, 0.0])
