"""Camera observations and pictures; what is said where nothing can be drawn."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from robolearn.core import BadInput
from robots import ROBOTS
from sim.embedded.painter import RenderContext
from sim.embedded.world import MujocoWorlds
from sim.tasks import TASKS

CAMERAS = ("front", "side", "wrist")


@pytest.fixture(scope="module")
def env() -> Iterator[MujocoWorlds]:
    env = MujocoWorlds(TASKS["lift"](), 2, cameras=CAMERAS, image_size=48, threads=1)
    yield env
    env.close()


def test_images_are_what_the_interface_says_and_no_two_alike(env: MujocoWorlds) -> None:
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    pictures = []
    for camera in CAMERAS:
        image = observation[f"images.{camera}"]
        assert image.shape == (2, 48, 48, 3) and image.dtype == np.uint8
        assert env.interface.observation[f"images.{camera}"].shape == (48, 48, 3)
        assert image.std(axis=(1, 2, 3)).min() > 10  # something is to be seen
        pictures += [image[0], image[1]]
    for i, one in enumerate(pictures):
        for other in pictures[i + 1 :]:
            assert np.abs(one.astype(int) - other.astype(int)).mean() > 0.2


def red(image: np.ndarray) -> np.ndarray:
    """Pixels of the red cube."""
    r, g, b = np.moveaxis(image.astype(int), -1, 0)
    return (r > 90) & (r > 2 * g) & (r > 2 * b)


def test_images_show_the_present_world(env: MujocoWorlds) -> None:
    """The cube is where the state says: nearer to the front camera is lower in its picture."""
    env.reset(seed=0)
    q = env.model.joint("cube").qposadr[0]
    env.batch.bind("qpos")[:, q : q + 3] = [[0.62, 0.0, 0.02], [0.38, 0.0, 0.02]]
    action = np.zeros((2, 7), np.float32)
    action[:, 6] = 1.0
    front = env.step(action)[0]["images.front"]
    rows = [np.flatnonzero(red(image).any(1)).mean() for image in front]
    assert rows[0] > rows[1] + 2
    after = env.step(action + np.float32([0, 0, 0.5, 0, 0, 0, 0]))[0]["images.wrist"].copy()
    assert np.any(after != env.step(action + np.float32([0, 0, 0.5, 0, 0, 0, 0]))[0]["images.wrist"])


def test_images_are_reproducible_and_change_no_physics(env: MujocoWorlds) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (2, 5, 7)).astype(np.float32)
    blind = MujocoWorlds(TASKS["lift"](), 2, threads=1)
    results = []
    for place in (env, env, blind):
        place.reset(seed=1)
        results.append({key: value.copy() for key, value in place.step_chunk(actions)[0].items()})
    for key, value in results[0].items():
        np.testing.assert_array_equal(results[1][key], value)
    for key, value in results[2].items():
        np.testing.assert_array_equal(results[0][key], value)


@pytest.mark.long
def test_worlds_drawn_side_by_side_are_those_drawn_one_after_the_other() -> None:
    pictures = []
    for processes in (0, 3):
        env = MujocoWorlds(
            TASKS["pick_place"](), 7, cameras=("front", "wrist"), image_size=40, threads=1, render_processes=processes
        )
        env.reset(seed=5)
        actions = np.random.default_rng(1).uniform(-1, 1, (7, 3, 7)).astype(np.float32)
        pictures.append(env.step_chunk(actions)[0])
        env.close()
    for key, value in pictures[0].items():
        np.testing.assert_array_equal(pictures[1][key], value)
    assert len(np.unique(pictures[0]["images.wrist"].reshape(7, -1), axis=0)) == 7  # each world has its own


def test_a_chunk_shows_what_as_many_steps_show(env: MujocoWorlds) -> None:
    """World 1's episode ends inside the chunk: its final picture is of that step, its present one new."""
    actions = np.random.default_rng(3).uniform(-1, 1, (2, 4, 7)).astype(np.float32)
    env.reset(seed=4)
    env._elapsed[1] = env.max_episode_steps - 2
    now, _, _, truncated, infos = env.step_chunk(actions)
    assert truncated.tolist() == [False, True]
    env.reset(seed=4)
    env._elapsed[1] = env.max_episode_steps - 2
    going, final = np.ones(2, bool), {}
    for i in range(4):
        step, _, _, ended, more = env.step(actions[:, i], None if going.all() else going)
        if i == 1:
            final = {key: value[1].copy() for key, value in more["final_obs"].items()}
            assert ended.tolist() == [False, True]
        going &= ~ended
    for key, value in now.items():
        np.testing.assert_array_equal(value, step[key])
        np.testing.assert_array_equal(infos["final_obs"][key][1], final[key])
        assert np.any(final[key] != value[1])


def test_nothing_is_drawn_that_nobody_looks_at(env: MujocoWorlds, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    draw = RenderContext.draw

    def counting(self: RenderContext, data: Any, camera: str, out: Any = None) -> Any:
        drawn.append(camera)
        return draw(self, data, camera, out)

    monkeypatch.setattr(RenderContext, "draw", counting)
    env.reset(seed=0)
    assert len(drawn) == 2 * len(CAMERAS)
    still = np.zeros((2, 4, 7), np.float32)
    drawn.clear()
    env.step_chunk(still)
    assert len(drawn) == 2 * len(CAMERAS)  # not four times
    before = {key: value.copy() for key, value in env._observation.items()}
    drawn.clear()
    after, *_ = env.step(still[:, 0] + np.float32(0.5), np.array([True, False]))
    assert len(drawn) == len(CAMERAS)  # the world that rests is not drawn
    np.testing.assert_array_equal(after["images.wrist"][1], before["images.wrist"][1])
    assert np.any(after["images.wrist"][0] != before["images.wrist"][0])
    env._elapsed[0] = env.max_episode_steps - 2
    drawn.clear()
    env.step_chunk(still)
    assert len(drawn) == 3 * len(CAMERAS)  # the end of an episode, its successor, and the other world


@pytest.mark.long
@pytest.mark.parametrize("robot", ["panda", "fr3", "ur5e"])
def test_the_wrist_camera_sees_the_fingers_and_what_is_between_them(robot: str) -> None:
    """The cube, put between the fingers, is in the middle of the picture's width, and not washed out."""
    env = MujocoWorlds(TASKS["lift"](), 1, robot=ROBOTS[robot], cameras=("wrist",), image_size=84, threads=1)
    env.reset(seed=0)
    q = env.model.joint("cube").qposadr[0]
    env.batch.bind("qpos")[0, q : q + 3] = env.truth.tcp_pos[0] + np.array([0, 0, -0.03])
    picture = env._look(env._numbers(env._state(), env._state()), np.arange(1))["images.wrist"][0]
    rows, columns = np.nonzero(red(picture))
    assert len(rows) > 100 and abs(columns.mean() - 41.5) < 3
    assert (picture == 255).all(-1).mean() < 0.01
    dark = picture.max(-1) < 60  # the fingers, left and right of it
    assert dark[:, :30].sum() > 50 and dark[:, 54:].sum() > 50
    env.close()


def test_the_final_image_is_the_old_episodes(env: MujocoWorlds) -> None:
    env.reset(seed=2)
    close = np.zeros((2, 99, 7), np.float32)
    close[..., 6] = -1.0
    env._elapsed[:] = env.max_episode_steps - 3
    last = env.step_chunk(close[:, :2])[0]["images.wrist"].copy()
    observation, _, _, truncated, infos = env.step(close[:, 0])
    assert truncated.all()
    gap = [np.abs(image.astype(int) - last).mean() for image in (infos["final_obs"]["images.wrist"],
                                                                 observation["images.wrist"])]  # fmt: skip
    assert gap[0] < 1.0 < gap[1]


def test_frames_for_videos_need_no_camera_observation() -> None:
    env = MujocoWorlds(TASKS["peg_insert"](), 2, threads=1)
    env.reset(seed=0)
    frames = env.frame(), env.frame(1)
    assert frames[0].shape == (360, 480, 3) and frames[0].dtype == np.uint8
    assert np.any(frames[0] != frames[1])
    np.testing.assert_array_equal(env.frame(0), frames[0])
    env.close()


def test_an_unknown_camera_lists_the_known() -> None:
    with pytest.raises(BadInput, match=r"camera: got wirst; available: .* \(did you mean wrist\?\)"):
        MujocoWorlds(TASKS["lift"](), 1, cameras=("wirst",))


@pytest.mark.long
@pytest.mark.parametrize("backend", ["disabled", "glfw"])
def test_without_gl_cameras_are_bad_input_and_states_work(backend: str) -> None:
    """No display and no back end: one clear error at once, and nothing lost for those who need no picture."""
    script = (
        "import numpy as np\n"
        "from robolearn.core import BadInput\n"
        "from sim.registry import make_env\n"
        "env = make_env('lift', 1, threads=1)\n"
        "env.reset(seed=0)\n"
        "env.step(np.zeros((1, 7), np.float32))\n"
        "for draw in (env.frame, lambda: make_env('lift', 1, cameras=('front',))):\n"
        "    try:\n"
        "        draw()\n"
        "    except BadInput as error:\n"
        "        print(error)\n"
    )
    hidden = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**hidden, "MUJOCO_GL": backend},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and all(line.startswith("cameras: got no OpenGL (") for line in lines)
    assert all("expected EGL, OSMesa or a display" in line for line in lines)
