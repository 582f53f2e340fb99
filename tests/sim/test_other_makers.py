"""The adapters of other makers' worlds, against stand-ins of their packages in another interpreter."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.core import BadInput
from sim.adapters.other_makers import task_names
from sim.registry import FAMILIES, WorldConfig

sys.path.insert(0, str(Path(__file__).parent))
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = importlib.import_module("lent_python").make(tmp_path_factory.mktemp("theirs") / "env")
    importlib.import_module("fake_makers").write(made)
    return Path(made)


@contextmanager
def worlds(task: str, python: Path, count: int = 2, **options: Any) -> Iterator[Any]:
    """`count` worlds in one process."""
    env = WorldConfig(task, world_python=python, threads=1, **options).build(count)
    try:
        yield env
    finally:
        env.close()


def closing(count: int, size: int) -> np.ndarray:
    """(count, 1, size) actions that do nothing but close the gripper."""
    chunk = np.zeros((count, 1, size), np.float32)
    chunk[..., -1] = 1
    return chunk


@pytest.mark.parametrize("name", ["ogbench", "pusht", "aloha"])
def test_as_many_tasks_are_counted_as_there_are(name: str, python: Path) -> None:
    assert len(task_names(name, str(python))) == FAMILIES[name].count


def test_metaworld_is_read_as_its_experts_read_it(python: Path) -> None:
    with worlds("metaworld:reach-v3", python) as env:
        interface = env.interface
        assert (interface.embodiment, interface.control_hz, env.max_episode_steps) == ("sawyer", 80, 6)
        assert env.reports_success and env.demonstrates and env.prompt == "reach"
        first, _ = env.reset(seed=3)
        assert interface.observation["proprio"].names[3:5] == ("fingers", "before.hand.x")
        np.testing.assert_array_equal(first["proprio"][0, 1:], [1, 2, 3, 18, 19, 20, 21])
        np.testing.assert_array_equal(first["objects"][1], [*range(4, 18), *range(22, 39)])
        hand = first["proprio"][:, 0]
        np.testing.assert_allclose(env.demonstrate(), [[x, 0, -1, 0.25] for x in hand], rtol=1e-6)  # -38 is clipped
        _, reward, terminated, truncated, infos = env.step_chunk(closing(2, 4), active=np.array([True, False]))
        assert (reward[0], terminated[0], truncated[0], infos["success"][0]) == (1, True, False, True)
        _, reward, terminated, truncated, infos = env.step_chunk(np.zeros((2, 9, 4), np.float32))
        assert infos["steps"].tolist() == [6, 6] and truncated.all() and not terminated.any() and not reward.any()
        second = env.reset()[0]["proprio"][:, 0]
        assert len({*hand, *second}) == 4  # each episode draws its own
        np.testing.assert_array_equal(env.reset(seed=3)[0]["proprio"][:, 0], hand)


def test_envpool_steps_worlds_together_and_loses_no_action(python: Path) -> None:
    with worlds("envpool:reach-v3", python, 5) as env:
        assert (env.interface.control_hz, env.max_episode_steps, env.demonstrates) == (80, 500, True)
        first, _ = env.reset(seed=3)
        begins = first["proprio"][:, 0]
        assert len({*begins}) == 5
        np.testing.assert_array_equal(first["objects"][4, -3:], [36, 37, 38])  # the goal is seen
        np.testing.assert_allclose(env.demonstrate(), [[x, 0, -1, 0.25] for x in begins], rtol=1e-6)
        chunk = np.zeros((5, 4, 4), np.float32)
        chunk[..., 0] = 0.25  # the hand moves by it
        chunk[1, 2, 3] = 1  # one solves it in its third step,
        chunk[3, 1, 1] = 1  # the state of another is not finite in its second
        active = np.array([True, True, False, True, True])
        seen, reward, terminated, truncated, infos = env.step_chunk(chunk, active=active)
        assert infos["steps"].tolist() == [4, 3, 0, 2, 4] and reward.tolist() == [0, 1, 0, 0, 0]
        assert terminated.tolist() == [False, True, False, False, False] == infos["success"].tolist()
        assert truncated.tolist() == [False, False, False, True, False]
        final = infos["final_obs"]["proprio"]
        np.testing.assert_allclose(final[[1, 3], 1], [0.75, 0.25])  # the last that is finite
        np.testing.assert_allclose(seen["proprio"][:, 1], [1, 0, 0, 0, 1])
        same = begins == seen["proprio"][:, 0]
        assert same.tolist() == [True, False, True, False, True]
        # Starts are those of seed, world and number, whatever was done before.
        np.testing.assert_array_equal(env.reset(seed=3)[0]["proprio"][:, 0], begins)
        again, _ = env.reset()
        np.testing.assert_array_equal(again["proprio"][[1, 3], 0], seen["proprio"][[1, 3], 0])
        from_second = env.reset(seed=3, options={"start_ids": np.arange(5), "episodes": np.array([0, 1, 0, 1, 0])})[0]
        np.testing.assert_array_equal(from_second["proprio"][:, 0], seen["proprio"][:, 0])
        env.reset(seed=3)
        env.reset()
        _, _, terminated, truncated, infos = env.step_chunk(np.zeros((5, 600, 4), np.float32))
        assert infos["steps"].tolist() == [500] * 5 and truncated.all() and not terminated.any()
        _, _, _, truncated, infos = env.step_chunk(np.zeros((5, 1, 4), np.float32))
        assert infos["steps"].tolist() == [1] * 5 and not truncated.any()


def test_envpool_draws_no_pictures(python: Path) -> None:
    with pytest.raises(BadInput, match="expected none: metaworld:reach-v3 has pictures"):
        WorldConfig("envpool:reach-v3", cameras=("corner2",), world_python=python).build(1)
    with pytest.raises(BadInput, match="envpool task: got push-v3; available: reach-v3"):
        WorldConfig("envpool:push-v3", world_python=python).build(1)


def test_ogbench_begins_unsolved_with_its_goal_in_sight(python: Path) -> None:
    with worlds("ogbench:cube-single", python, 8) as env:
        assert (env.interface.embodiment, env.interface.control_hz, env.max_episode_steps) == ("ur5e", 20, 200)
        first, _ = env.reset(seed=0)
        plan = env.demonstrate()
        np.testing.assert_array_equal(first["proprio"][0], np.arange(19))
        assert env.interface.observation["objects"].names[8:11] == ("cube_0.sin_yaw", "goal.is_cube_0", "goal.x")
        # 10 ((0.525, 0.1, 0.02) - (0.425, 0, 0)), and the cosine and sine of a right angle
        np.testing.assert_allclose(first["objects"][:, 9:], [[1, 1, 1, 0.2, 0, 1]] * 8, atol=1e-6)
        for _ in range(4):
            start = env.reset()[0]["objects"]
            assert (np.abs(start[:, 0] - 1.0) > 0.4).all()  # 4 cm, times 10
        np.testing.assert_array_equal(env.reset(seed=0)[0]["objects"], first["objects"])
        np.testing.assert_array_equal(env.demonstrate(), plan)  # its oracle draws, too
        half = np.arange(8) < 4
        _, reward, terminated, _, infos = env.step_chunk(closing(8, 5), active=half)
        assert (terminated == half).all() and (infos["success"] == half).all() and (reward == half).all()
        _, _, terminated, truncated, infos = env.step_chunk(np.zeros((8, 250, 5), np.float32))
        assert truncated.all() and not terminated.any() and (infos["steps"] == 200).all()


def test_pusht_pays_for_success_alone_and_shows_no_mark(python: Path) -> None:
    with worlds("pusht:state", python, cameras=("render",), image_size=8) as env:
        assert (env.interface.control_hz, env.max_episode_steps) == (10, 300) and env.reports_success
        assert not env.demonstrates and env.prompt == "push the T into its place"
        first, _ = env.reset(seed=1)
        picture = first["images.render"]
        np.testing.assert_array_equal(picture[:, 0, 0, 0], first["proprio"][:, 0] // 2)
        chunk = np.full((2, 2, 2), 0.5, np.float32)  # 384 px, three quarters covered
        observation, reward, terminated, _, infos = env.step_chunk(chunk)
        assert not reward.any() and not terminated.any() and not infos["success"].any()
        np.testing.assert_array_equal(observation["proprio"][:, :2], 384)
        assert (observation["images.render"] == 192).all()
        np.testing.assert_array_equal(env.reset(seed=1)[0]["images.render"], picture)
        chunk = np.ones((2, 9, 2), np.float32)
        _, reward, terminated, truncated, infos = env.step_chunk(chunk)
        assert (reward == 1).all() and terminated.all() and not truncated.any() and infos["steps"].tolist() == [1, 1]


def test_aloha_takes_radians_and_draws_for_nobody(python: Path) -> None:
    with worlds("aloha:transfer_cube", python) as env:
        assert (env.interface.embodiment, env.interface.control_hz, env.max_episode_steps) == ("aloha", 50, 300)
        assert env.reports_success and not env.demonstrates and env.prompt.startswith("pass the cube")
        first, _ = env.reset(seed=2)
        assert env.interface.observation["objects"].names[:2] == ("cube.x", "cube.y")
        np.testing.assert_array_equal(first["proprio"][0], [*[0] * 14, *range(14)])
        assert first["objects"].shape == (2, 7) and not np.array_equal(first["objects"][0], first["objects"][1])
        np.testing.assert_array_equal(env.reset(seed=2)[0]["objects"], first["objects"])
        chunk = np.zeros((2, 1, 14), np.float32)
        chunk[0, 0, :7], chunk[1, 0, 13] = 1, -1  # world 1 gets as far as the last stage before success
        observation, reward, terminated, _, infos = env.step_chunk(chunk)
        # The middle of -i and i + 1 is 0.5; that of the right arm, of -10 i and 10 (i + 1), is 5
        np.testing.assert_allclose(observation["proprio"][0, :14], [1, 2, 3, 4, 5, 6, 1, *[5] * 6, 0.5])
        np.testing.assert_allclose(observation["proprio"][1, :14], [*[0.5] * 7, *[5] * 6, 0])
        assert not reward.any() and not terminated.any() and not infos["success"].any()
        chunk[:, 0, 6] = -1
        _, reward, terminated, truncated, infos = env.step_chunk(chunk, active=np.array([True, False]))
        assert (reward[0], terminated[0], truncated[0], infos["success"][0]) == (1, True, False, True)
        _, _, terminated, truncated, infos = env.step_chunk(np.zeros((2, 320, 14), np.float32))
        assert truncated.all() and not terminated.any() and infos["steps"].tolist() == [300, 299]
    with worlds("aloha:insertion", python, 1) as env:
        assert env.reset(seed=0)[0]["objects"].shape == (1, 14)


def test_libero_begins_settled_in_one_of_its_states(python: Path) -> None:
    assert task_names("libero", str(python)) == ["libero_goal/0", "libero_goal/1", "libero_ood/1"]
    with worlds("libero:libero_goal/1", python, 8) as env:
        assert (env.interface.embodiment, env.interface.control_hz, env.max_episode_steps) == ("panda", 20, 600)
        assert env.reports_success and not env.demonstrates and env.prompt == "push the cube"
        first, _ = env.reset(seed=0)
        names = env.interface.observation["objects"].names
        assert names == (*(f"cube_joint0.{part}" for part in ("x", "y", "z", "qw", "qx", "qy", "qz")), "drawer_slide")
        drawn = (first["objects"][:, 0] - 2) / 10  # of states that are 10 apart; what is not at rest adds 100
        assert set(drawn) <= {0, 1, 2, 3} and len(set(drawn)) > 1
        np.testing.assert_array_equal(first["objects"][:, -1], 10 * drawn + 9)
        np.testing.assert_allclose(first["proprio"][0, [6, 8, 9]], [6, 8, 9])
        np.testing.assert_allclose(first["proprio"][0, 10:], [1.0, 0.5, 0.6, 0.7, 10, 0.2])  # wxyz, ten steps at rest
        assert len(set(first["proprio"][:, 7])) == 8  # its reset draws for each
        for key, value in env.reset(seed=0)[0].items():
            np.testing.assert_array_equal(value, first[key])
        half = np.arange(8) < 4
        _, reward, terminated, _, infos = env.step_chunk(closing(8, 7), active=half)
        assert (terminated == half).all() and (infos["success"] == half).all() and (reward == half).all()
        _, _, terminated, truncated, infos = env.step_chunk(np.zeros((8, 601, 7), np.float32))
        assert truncated.all() and not terminated.any() and (infos["steps"] == 600).all()
    with pytest.raises(BadInput, match=r"got libero_goal/2, expected <suite>/<number>; available: libero_goal/0"):
        WorldConfig("libero:libero_goal/2", world_python=python).build(1)
    with pytest.raises(BadInput, match=r"got libero_ood/0, .*available: libero_ood/1"):
        WorldConfig("libero:libero_ood/0", world_python=python).build(1)
    with pytest.raises(BadInput, match=r"got goal/0, .*available: libero_goal, libero_ood"):
        WorldConfig("libero:goal/0", world_python=python).build(1)
