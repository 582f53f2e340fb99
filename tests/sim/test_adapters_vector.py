"""The vector env over worlds of a foreign library, in this process and in workers; and the user's example."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from contextlib import closing
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import BadInput, Env, NonFinite, RobolearnError
from sim.adapters import AdapterVectorEnv, gym_env, make_gym

sys.path.insert(0, str(Path(__file__).parent))
stepping = importlib.import_module("stepping")
assert_same_results, steps_of = stepping.assert_same_results, stepping.steps_of
TASK = "gym:counter_env:Counter-v0"


@pytest.fixture(params=[0, 2], ids=["here", "workers"])
def env(request):
    made = make_gym(TASK, 3, workers=request.param)
    yield made
    made.close()


@pytest.mark.long
def test_it_is_an_env(env):
    assert isinstance(env, Env) and isinstance(env, gymnasium.vector.VectorEnv)
    assert env.metadata["autoreset_mode"] == gymnasium.vector.AutoresetMode.SAME_STEP
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert env.snapshot() is None
    with pytest.raises(RobolearnError):
        env.restore({})


def test_final_observations_steps_and_rest(env, capfd):
    capfd.readouterr()
    first, _ = env.reset(seed=0)
    chunks = np.zeros((3, 4, 1), np.float32)
    observation, reward, terminated, _, infos = env.step_chunk(chunks, active=np.array([True, False, True]))
    np.testing.assert_array_equal(infos["steps"], [4, 0, 4])
    np.testing.assert_allclose(reward, [0.4, 0, 0.4], rtol=1e-6)
    np.testing.assert_array_equal(observation["proprio"][1], first["proprio"][1])
    assert not terminated.any() and not infos["_final_obs"].any()
    np.testing.assert_array_equal(infos["final_obs"]["proprio"], observation["proprio"])

    observation, reward, terminated, truncated, infos = env.step_chunk(chunks)
    np.testing.assert_array_equal(infos["steps"], [1, 4, 1])
    np.testing.assert_array_equal(terminated, [True, False, True])
    np.testing.assert_array_equal(infos["_final_obs"], terminated)
    assert "success" not in infos  # this env reports none
    np.testing.assert_allclose(infos["final_obs"]["proprio"][:, 1], [5, 4, 5])
    np.testing.assert_allclose(observation["proprio"][:, 1], [0, 4, 0])
    assert not truncated.any()

    one = env.step(np.array([[-1], [0], [1]], np.float32))
    np.testing.assert_allclose(one[0]["proprio"][::2, 2], [-2, 6])  # the env's own bounds
    assert "prints" not in capfd.readouterr().out


def test_starts_depend_on_seed_and_world_alone():
    def starts(num_envs: int, workers: int, long: bool) -> np.ndarray:
        env = make_gym(TASK, num_envs, workers=workers)
        rows = [env.reset(seed=5)[0]["proprio"][:, 0]]
        if long:
            env.step_chunk(np.zeros((num_envs, 3, 1), np.float32))
        rows.append(env.reset()[0]["proprio"][:, 0])
        env.close()
        return np.stack(rows)

    here = starts(3, 0, long=False)
    np.testing.assert_array_equal(here, starts(3, 2, long=True))
    np.testing.assert_array_equal(here[:, :2], starts(2, 0, long=True))
    assert len(np.unique(here)) == here.size


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
def test_equal_start_ids_meet_equal_episodes(workers):
    """Whatever the worlds' numbers and the lengths of their episodes."""
    env = make_gym(TASK, 4, workers=workers)
    ids = {"start_ids": np.array([7, 2, 7, 2])}
    first = env.reset(seed=3, options=ids)[0]["proprio"][:, 0].copy()
    only = np.array([True, False, True, True])
    second = env.step_chunk(np.zeros((4, 5, 1), np.float32), only)[0]["proprio"][:, 0].copy()  # ends three episodes
    assert first[0] == first[2] != first[1] == first[3]
    assert second[0] == second[2] != first[0] and second[1] == first[1] != second[3]
    assert env.step_chunk(np.zeros((4, 5, 1), np.float32), ~only)[0]["proprio"][1, 0] == second[3]
    np.testing.assert_array_equal(env.reset(options=ids)[0]["proprio"][:, 0], first)  # ids begin their sequences anew
    default = env.reset(seed=3)[0]["proprio"][:, 0].copy()
    np.testing.assert_array_equal(env.reset(seed=3, options={"start_ids": np.arange(4)})[0]["proprio"][:, 0], default)
    assert default[2] == first[1]
    for bad in ({"start_ids": [1, 2]}, {"start_ids": [0.5] * 4}, {"start_ids": [-1] * 4}, {"start": 1}):
        with pytest.raises(BadInput, match="start_ids"):
            env.reset(seed=0, options=bad)
    env.close()


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
def test_a_chunk_is_its_steps_one_after_the_other(workers):
    env, twin = (make_gym(TASK, 3, workers=workers, kwargs={"tells": "is_success"}) for _ in range(2))
    env.reset(seed=1), twin.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(6):
        chunk, active = rng.uniform(-1, 1, (3, 3, 1)).astype(np.float32), rng.random(3) < 0.7
        result = env.step_chunk(chunk, active)
        assert_same_results(result, steps_of(twin, chunk, active))
    env.close(), twin.close()


def test_success_is_reported_or_absent_never_guessed():
    """Hopper gets a positive reward for every step, the one that ends in a fall included."""
    silent = make_gym("gym:gymnasium:Hopper-v5", 2, workers=0)
    silent.reset(seed=0)
    down = np.tile(np.array([1.0, -1.0, 1.0], np.float32), (2, 200, 1))
    _, reward, terminated, _, infos = silent.step_chunk(down)
    assert terminated.all() and (reward > 0).all()  # it fell
    assert not silent.reports_success and "success" not in infos and not silent.continuing
    silent.close()

    probed = make_gym(TASK, 1, workers=0, kwargs={"tells": "success"})
    assert probed.reports_success  # before the first step
    assert make_gym("gym:gymnasium:Pendulum-v1", 1, workers=0).continuing

    late = make_gym(TASK, 1, workers=0, kwargs={"tells": "late"})
    late.reset(seed=0)
    assert "success" not in late.step_chunk(np.zeros((1, 4, 1), np.float32))[4] and not late.reports_success
    assert late.step_chunk(np.zeros((1, 4, 1), np.float32))[4]["success"].all() and late.reports_success
    assert not late.step_chunk(np.zeros((1, 4, 1), np.float32))[4]["success"].any()  # but it stays


def test_an_env_without_a_limit_lasts_until_it_ends():
    gymnasium.register("Endless-v0", entry_point="counter_env:Counter")
    try:
        env = make_gym("gym:counter_env:Endless-v0", 1, workers=0)
        assert env.max_episode_steps == 0
        env.reset(seed=0)
        assert env.step_chunk(np.zeros((1, 9, 1), np.float32))[4]["steps"] == 5
    finally:
        del gymnasium.registry["Endless-v0"]


@pytest.mark.long
def test_returned_arrays_are_the_callers_own(env):
    observation, _ = env.reset(seed=0)
    observation["proprio"][:] = 99
    again = env.step_chunk(np.zeros((3, 1, 1), np.float32), active=np.zeros(3, bool))[0]
    assert again["proprio"].max() < 99


@pytest.mark.long
def test_pictures(env):
    env.reset(seed=0)
    env.step_chunk(np.zeros((3, 2, 1), np.float32), active=np.array([False, True, False]))
    assert env.frame(0).max() == 0 and env.frame(1).shape == (2, 3, 3) and env.frame(1).min() == 2


@pytest.mark.long
def test_bad_chunks(env):
    env.reset(seed=0)
    with pytest.raises(BadInput, match=r"expected \(3, Ta, 1\)"):
        env.step_chunk(np.zeros((3, 2, 2), np.float32))
    with pytest.raises(BadInput, match="actions"):
        env.step(np.zeros((2, 1), np.float32))
    chunk = np.zeros((3, 1, 1), np.float32)
    chunk[2] = np.nan
    with pytest.raises(NonFinite, match="world 2"):
        env.step_chunk(chunk)
    env.step_chunk(chunk, active=np.array([True, True, False]))  # a resting world's chunk does not matter


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
def test_nan_is_a_warning_and_a_truncation(workers, caplog):
    env = make_gym(TASK, 2, workers=workers, kwargs={"nan_at": 2})
    env.reset(seed=0)
    active = np.array([False, True])
    _, _, terminated, truncated, infos = env.step_chunk(np.zeros((2, 4, 1), np.float32), active=active)
    assert truncated.tolist() == [False, True] and not terminated.any() and infos["steps"].tolist() == [0, 2]
    assert infos["final_obs"]["proprio"][1, 1] == 1 and np.isfinite(infos["final_obs"]["proprio"]).all()
    assert "world 1" in caplog.text and "non-finite" in caplog.text
    env.close()


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
def test_an_env_that_raises_is_named(workers):
    env = make_gym(TASK, 2, workers=workers, kwargs={"fail_at": 2})
    env.reset(seed=0)
    with pytest.raises(RobolearnError, match=r"world 1 of gym:.*ValueError: the motor burnt"):
        env.step_chunk(np.zeros((2, 2, 1), np.float32), active=np.array([False, True]))
    with pytest.raises(RobolearnError, match="cannot be used any more"):
        env.reset(seed=0)
    env.close()


def test_an_env_that_raises_while_its_speed_is_measured_is_named():
    with pytest.raises(RobolearnError, match=r"world 0 of gym:.*ValueError: the motor burnt"):
        make_gym(TASK, 2, kwargs={"fail_at": 2})


@pytest.mark.parametrize("number", [0, 1])
def test_a_world_that_exits_at_first_is_refused_in_one_line(number, monkeypatch, capfd):
    """An exit in our own process would end the command with the world's exit code and no word."""
    monkeypatch.chdir(Path(__file__).parent)
    task = f"gym:counter_env:Exits{number}-v0"
    assert main(["worlds", "show", task, "--json"]) == 2
    out, err = capfd.readouterr()
    said = f"task '{task}': got SystemExit in its first steps: 0. With --world-python it runs in an interpreter that"
    assert out == "" and said in err.splitlines()[-1]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_a_world_that_exits_later_is_named(workers, capfd):
    env = make_gym(TASK, 2, workers=workers, kwargs={"exit_at": 3})
    env.reset(seed=0)
    env.step_chunk(np.zeros((2, 2, 1), np.float32))
    with pytest.raises(RobolearnError, match="world 1 of gym:counter_env:Counter-v0 failed: SystemExit: 0"):
        env.step_chunk(np.zeros((2, 2, 1), np.float32), active=np.array([False, True]))
    assert capfd.readouterr().out == ""


def test_a_world_that_exits_when_it_is_drawn_or_closed_ends_no_run(monkeypatch, caplog):
    env = make_gym(TASK, 2, workers=0)
    env.reset(seed=0)
    single = env._pool._worlds._worlds[0]._adapter._env.unwrapped  # type: ignore[attr-defined]
    monkeypatch.setattr(single, "render", sys.exit)
    monkeypatch.setattr(single, "close", sys.exit)
    assert env.frame(0) is None and env.frame(1) is not None
    env.close()
    assert ["cannot be drawn" in caplog.text, "cannot be closed" in caplog.text] == [True, True]


def test_what_a_world_prints_at_first_is_not_on_stdout(monkeypatch, capfd):
    monkeypatch.chdir(Path(__file__).parent)
    assert main(["worlds", "show", TASK, "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["task"] == TASK and "an env that prints" in err


@pytest.mark.long
def test_a_worker_that_dies_is_named():
    env = make_gym(TASK, 2, workers=2, kwargs={"die_at": 2})
    env.reset(seed=0)
    with pytest.raises(RobolearnError, match=r"world 0 .*exit code 7"):
        env.step_chunk(np.zeros((2, 2, 1), np.float32))
    env.close()

    env = make_gym(TASK, 2, workers=2)
    env.reset(seed=0)
    pids = env._pool.pids()  # type: ignore[attr-defined]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RobolearnError, match=r"world 1 .*killed by SIGKILL"):
        env.step_chunk(np.zeros((2, 2, 1), np.float32))
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)  # the other one was ended and collected
    env.close()


@pytest.mark.long
def test_a_light_env_stays_here_and_a_file_in_the_current_folder_is_found(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.setattr(gym_env, "LIGHT_STEP_S", 0.0)  # how long a step takes is the machine's business
    with closing(make_gym("gym:reach2d:Reach2D-v0", 2)) as heavy:
        assert type(heavy._pool).__name__ == "WorkerPool"
    monkeypatch.setattr(gym_env, "LIGHT_STEP_S", 1.0)
    env = make_gym("gym:reach2d:Reach2D-v0", 4)
    assert type(env._pool).__name__ == "LocalPool"
    assert (env.prompt, env.max_episode_steps, env.interface.control_hz) == ("go round the disc to the goal", 60, 20)
    env.reset(seed=0)
    _, _, terminated, truncated, _ = env.step_chunk(np.zeros((4, 80, 2), np.float32))
    assert truncated.all() and not terminated.any()
    assert env.frame(2).shape == (128, 128, 3)


def test_demonstrations_of_the_example_are_imperfect_and_take_both_sides():
    reach2d = importlib.import_module("reach2d")
    env = gymnasium.make("Reach2D-v0", disable_env_checker=True)
    rng = np.random.default_rng(0)
    episodes = [reach2d.demonstrate(env, rng) for _ in range(200)]
    assert 0.3 < np.mean([episode.success for episode in episodes]) < 0.65
    middle = [e.observation["proprio"][len(e) // 2] for e in episodes if e.success]
    left = np.mean([row[0] < row[6] for row in middle])
    assert 0.3 < left < 0.7
    for episode in episodes[:5]:
        assert episode.observation["proprio"].shape == (len(episode), 8) and np.abs(episode.action).max() <= 1
        assert episode.success == (episode.reward[-1] > 0)


@pytest.mark.long
def test_what_an_env_draws_is_observed_when_it_is_asked_for():
    for workers in (0, 2):
        env = make_gym(TASK, 2, workers=workers, cameras=("render",), image_size=6)
        picture = env.reset(seed=0)[0]["images.render"]
        assert picture.shape == (2, 6, 6, 3) and picture.dtype == np.uint8 and (picture == 0).all()
        observation, _, terminated, _, infos = env.step_chunk(np.zeros((2, 5, 1), np.float32))
        assert terminated.all()
        assert (infos["final_obs"]["images.render"] == 5).all() and (observation["images.render"] == 0).all()
        env.close()
    with pytest.raises(BadInput, match=r"camera of gym:counter_env:Counter-v0: got front; available: render"):
        make_gym(TASK, 1, cameras=("front",))


@pytest.mark.parametrize("picture", [None, np.full((2, 3, 3), 0.5), np.zeros((2, 3), np.uint8)])
def test_a_drawing_that_is_no_picture_is_named(picture, monkeypatch):
    monkeypatch.setattr("counter_env.Counter.render", lambda self: picture)
    with pytest.raises(RobolearnError, match=r"world 0 of .* failed: it draws .*, expected uint8 \(H, W, 3\)"):
        make_gym(TASK, 1, workers=0, cameras=("render",))


def test_the_class_is_exported():
    assert AdapterVectorEnv.__mro__[1] is gymnasium.vector.VectorEnv
