"""Episodes of the embedded world: spaces, ends, final observations, chunks, rewards."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from robolearn.core import BadInput, Env, NonFinite
from robots import make_control
from sim.embedded.world import MujocoWorlds
from sim.experts import make_expert
from sim.registry import make_env
from sim.tasks import TASKS

sys.path.insert(0, str(Path(__file__).parent))
stepping = importlib.import_module("stepping")
assert_same_results, steps_of = stepping.assert_same_results, stepping.steps_of
LIMIT = TASKS["lift"]().max_episode_steps


@pytest.fixture(scope="module")
def shared() -> Iterator[MujocoWorlds]:
    """Four lift worlds; every test resets them with a seed."""
    env = MujocoWorlds(TASKS["lift"](), 4, threads=1)
    yield env
    env.close()


def still(n: int, steps: int | None = None) -> NDArray[np.float32]:
    """Actions that hold the tcp and keep the gripper open."""
    action = np.zeros((n, 7) if steps is None else (n, steps, 7), np.float32)
    action[..., 6] = 1.0
    return action


def run_expert(env: MujocoWorlds, until: Callable[[tuple], bool], seed: int = 0, limit: int = 200) -> tuple:
    """Step with the expert until `until(result)`; returns the last result."""
    expert = make_expert(env.task, env.interface, env.num_envs, "expert", seed)
    observation, _ = env.reset(seed=seed)
    expert.reset(np.ones(env.num_envs, bool))
    for _ in range(limit):
        result = env.step(expert.command(observation))
        if until(result):
            return result
        observation = result[0]
        expert.reset(result[2] | result[3])
    raise AssertionError("it never came")


def at_rest(env: MujocoWorlds, world: int) -> NDArray:
    return env.batch.state[world].copy()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", ["tcp_delta", "joint_position"])
def test_spaces_hold_what_passes_through_them(task: str, kind: str) -> None:
    env = make_env(task, 3, action_kind=kind, threads=1)
    assert isinstance(env, gym.vector.VectorEnv) and isinstance(env, Env)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    for _ in range(5):
        observation, reward, terminated, truncated, infos = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert reward.shape == terminated.shape == truncated.shape == infos["success"].shape == (3,)
        assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float32, bool, bool)
    for key, spec in env.interface.observation.items():
        assert observation[key].shape == (3, *spec.shape) and observation[key].dtype == spec.dtype
        assert len(spec.names) == spec.size == len(set(spec.names))
    assert env.single_action_space.shape == env.interface.action.shape
    assert (env.interface.control_hz, env.interface.action_kind, env.task) == (20.0, kind, task)


def test_the_observation_means_what_its_names_say(shared: MujocoWorlds) -> None:
    observation, _ = shared.reset(seed=3)
    value = {name: observation["proprio"][:, i] for i, name in enumerate(shared.interface.observation["proprio"].names)}
    value |= {
        name: observation["objects"][:, i] for i, name in enumerate(shared.interface.observation["objects"].names)
    }
    np.testing.assert_array_equal(value["panda_joint4"], shared.batch.bind("qpos")[:, 3].astype(np.float32))
    np.testing.assert_allclose(value["gripper_width"], 0.08, atol=1e-6)
    np.testing.assert_allclose(value["cube_z"], 0.02, atol=1e-6)
    assert np.all((value["cube_x"] > 0.4) & (value["cube_x"] < 0.6)) and np.ptp(value["cube_x"]) > 0.01
    rot = np.stack([[value[f"tcp_rot{3 * c + r}"] for r in range(3)] for c in range(2)], -1).transpose(1, 0, 2)
    gap = np.stack([value[f"cube_{a}"] - value[f"tcp_{a}"] for a in "xyz"], -1)
    seen = np.stack([value[f"tcp_cube_{a}"] for a in "xyz"], -1)
    np.testing.assert_allclose(np.einsum("nrc,nr->nc", rot, gap), seen[:, :2], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(seen, axis=-1), np.linalg.norm(gap, axis=-1), atol=1e-6)


def test_a_success_terminates_and_hands_over_the_last_observation(shared: MujocoWorlds) -> None:
    observation, reward, terminated, truncated, infos = run_expert(shared, lambda r: r[2].any())
    w = int(np.flatnonzero(terminated)[0])
    height = shared.interface.observation["objects"].names.index("cube_z")
    assert infos["success"][w] and not truncated[w] and reward[w] == 1.0
    np.testing.assert_array_equal(infos["_final_obs"], terminated | truncated)
    assert infos["final_obs"]["objects"][w, height] > 0.08  # raised
    assert observation["objects"][w, height] == pytest.approx(0.02, abs=1e-6)  # the next cube, on the table
    assert infos["final_obs"]["proprio"][w, 7] < 0.05 < observation["proprio"][w, 7]
    for other in np.flatnonzero(~terminated):
        np.testing.assert_array_equal(infos["final_obs"]["objects"][other], observation["objects"][other])


def test_the_clock_truncates_and_does_not_terminate(shared: MujocoWorlds) -> None:
    shared.reset(seed=0)
    close = still(4)
    close[:, 6] = -1.0
    for step in range(1, LIMIT + 1):
        observation, reward, terminated, truncated, infos = shared.step(close)
        assert not terminated.any() and not reward.any() and not infos["success"].any()
        assert truncated.all() == infos["_final_obs"].all() == (step == LIMIT)
        assert truncated.any() == infos["_final_obs"].any() == (step == LIMIT)
    width = shared.interface.observation["proprio"].names.index("gripper_width")
    assert np.all(infos["final_obs"]["proprio"][:, width] < 0.001)  # closed, as the old episode left it
    assert np.all(observation["proprio"][:, width] > 0.079)
    cubes = infos["final_obs"]["objects"][:, :2], observation["objects"][:, :2]
    assert np.abs(cubes[0] - cubes[1]).max(1).min() > 1e-3
    assert not shared.step(still(4))[3].any()  # the clock began anew


def test_each_world_has_its_own_clock(shared: MujocoWorlds) -> None:
    shared.reset(seed=0)
    only = np.array([False, True, False, True])
    shared.step_chunk(still(4, LIMIT - 40), only)
    _, _, _, truncated, infos = shared.step_chunk(still(4, LIMIT - 20))
    np.testing.assert_array_equal(truncated, only)
    np.testing.assert_array_equal(infos["steps"], [LIMIT - 20, 40, LIMIT - 20, 40])


def test_leaving_the_table_terminates_without_success(shared: MujocoWorlds) -> None:
    shared.reset(seed=0)
    address = shared.model.joint("cube").qposadr[0]
    shared.batch.bind("qpos")[2, address : address + 3] = 1.2, 0.0, -0.03
    _, reward, terminated, truncated, infos = shared.step(still(4))
    np.testing.assert_array_equal(terminated, [False, False, True, False])
    assert not truncated.any() and not infos["success"].any() and not reward.any()
    assert infos["final_obs"]["objects"][2, 2] < -0.02


def test_a_success_on_the_last_step_is_no_time_out(shared: MujocoWorlds) -> None:
    shared.reset(seed=0)
    shared.step_chunk(still(4, LIMIT - 1))
    address = shared.model.joint("cube").qposadr[0]
    shared.batch.bind("qpos")[1, address + 2] = 0.2
    _, reward, terminated, truncated, infos = shared.step(still(4))
    np.testing.assert_array_equal(terminated, [False, True, False, False])
    np.testing.assert_array_equal(truncated, ~terminated)
    np.testing.assert_array_equal(reward, terminated.astype(np.float32))
    np.testing.assert_array_equal(infos["success"], terminated)


def test_a_chunk_is_its_steps_one_after_the_other(shared: MujocoWorlds) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (4, 8, 7)).astype(np.float32)
    shared.reset(seed=5)
    for t in range(8):
        observation = shared.step(actions[:, t])[0]
    stepped = {key: value.copy() for key, value in observation.items()}
    shared.reset(seed=5)
    observation, reward, _, _, infos = shared.step_chunk(actions)
    for key, value in stepped.items():
        np.testing.assert_array_equal(observation[key], value)
    np.testing.assert_array_equal(infos["steps"], 8)
    assert not reward.any() and not infos["_final_obs"].any()


def test_worlds_that_finish_inside_a_chunk_rest(shared: MujocoWorlds) -> None:
    """What is left of a chunk must not be applied to the next episode."""
    shared.reset(seed=0)
    only = np.array([True, False, True, False])
    shared.step_chunk(still(4, LIMIT - 2), only)
    begin = at_rest(shared, 1)
    chunk = still(4, 6)
    chunk[:, 2:, :3] = 1.0  # would move the new episode's arm
    observation, _, terminated, truncated, infos = shared.step_chunk(chunk)
    np.testing.assert_array_equal(truncated, only)
    assert not terminated.any()
    np.testing.assert_array_equal(infos["steps"], [2, 6, 2, 6])
    np.testing.assert_array_equal(infos["_final_obs"], only)
    assert np.any(at_rest(shared, 1) != begin)  # who had not finished went on
    fresh, _ = shared.reset(seed=0)
    shared.step_chunk(still(4, LIMIT - 2), only)
    first = shared.step_chunk(still(4, 2), only)[0]  # the episodes' first observations, untouched since
    for key in fresh:
        np.testing.assert_array_equal(observation[key][only], first[key][only])


def test_a_success_inside_a_chunk_counts_once_and_keeps_its_final_observation(shared: MujocoWorlds) -> None:
    run_expert(shared, lambda r: r[0]["objects"][:, 2].max() > 0.05)
    raised = int(np.argmax(shared._observation["objects"][:, 2]))
    up = np.zeros((4, 12, 7), np.float32)
    up[..., 2], up[..., 6] = -1.0, -1.0  # the tcp looks down
    active = np.arange(4) == raised
    observation, reward, terminated, truncated, infos = shared.step_chunk(up, active)
    np.testing.assert_array_equal(terminated, active)
    np.testing.assert_array_equal(reward, active.astype(np.float32))
    np.testing.assert_array_equal(infos["success"], active)
    assert 0 < infos["steps"][raised] < 12 and not infos["steps"][~active].any() and not truncated.any()
    assert infos["final_obs"]["objects"][raised, 2] > 0.08 > observation["objects"][raised, 2]


def test_inactive_worlds_do_not_move(shared: MujocoWorlds) -> None:
    shared.reset(seed=1)
    observation = {key: value.copy() for key, value in shared.step(still(4))[0].items()}
    before = shared.batch.state.copy()
    active = np.array([True, False, True, False])
    actions = np.random.default_rng(1).uniform(-1, 1, (4, 5, 7)).astype(np.float32)
    after, _reward, _terminated, _truncated, infos = shared.step_chunk(actions, active)
    np.testing.assert_array_equal(shared.batch.state[~active], before[~active])
    assert np.any(shared.batch.state[active] != before[active], axis=1).all()
    for key, value in observation.items():
        np.testing.assert_array_equal(after[key][~active], value[~active])
    np.testing.assert_array_equal(infos["steps"], 5 * active)
    np.testing.assert_array_equal(active, [True, False, True, False])  # the caller's array is the caller's


def test_resting_does_not_change_what_comes_after(shared: MujocoWorlds) -> None:
    actions = np.random.default_rng(2).uniform(-1, 1, (4, 10, 7)).astype(np.float32)
    shared.reset(seed=2)
    shared.step_chunk(actions)
    straight = at_rest(shared, 1)
    shared.reset(seed=2)
    shared.step_chunk(actions[:, :4])
    shared.step_chunk(actions, np.array([True, False, True, True]))
    shared.step_chunk(actions[:, 4:])
    np.testing.assert_array_equal(at_rest(shared, 1), straight)


@pytest.mark.long
@pytest.mark.parametrize("reward", ["sparse", "dense"])
@pytest.mark.parametrize("task", TASKS)
def test_a_chunk_with_resting_worlds_and_ends_is_its_steps(task: str, reward: str) -> None:
    """Observations, rewards, ends and infos, in worlds that rest, go on, succeed, fail and run out of time."""
    env, twin = (MujocoWorlds(TASKS[task](), 8, reward=reward, threads=1) for _ in range(2))
    expert = make_expert(task, env.interface, 8, "expert", 0)
    observation, _ = env.reset(seed=0)
    twin.reset(seed=0)
    expert.reset(np.ones(8, bool))
    rng, ends = np.random.default_rng(0), np.zeros(2, int)
    for _ in range(80):
        # Half of the worlds follow the expert, some do something, some do nothing.
        chunks = np.repeat(expert.command(observation)[:, None], 3, 1)
        chunks[4:6] = rng.uniform(-1, 1, chunks[4:6].shape)
        chunks[6:] = [0, 0, 0, 0, 0, 0, -1] * TASKS[task]().arms
        active = rng.random(8) < 0.9
        result = env.step_chunk(chunks, active)
        assert_same_results(result, steps_of(twin, chunks, active))
        np.testing.assert_array_equal(env.batch.state, twin.batch.state)
        observation = result[0]
        expert.reset(result[2] | result[3])
        ends += result[2].sum(), result[3].sum()
    assert (ends > 0).all()
    nothing = env.step_chunk(chunks, np.zeros(8, bool))
    assert_same_results(nothing, steps_of(twin, chunks, np.zeros(8, bool)))
    np.testing.assert_array_equal(nothing[0]["objects"], observation["objects"])
    assert not nothing[4]["steps"].any() and not nothing[1].any()


def test_final_observations_are_the_next_ones_of_every_transition(shared: MujocoWorlds) -> None:
    shared.reset(seed=0)
    observation, _, _, _, infos = shared.step(still(4), np.array([True, True, False, True]))
    np.testing.assert_array_equal(infos["final_obs"]["proprio"], observation["proprio"])
    np.testing.assert_array_equal(infos["steps"], [1, 1, 0, 1])


def test_joint_positions_go_where_they_are_sent() -> None:
    env = MujocoWorlds(TASKS["lift"](), 2, action_kind="joint_position", threads=1)
    observation, _ = env.reset(seed=0)
    lower, upper = env.robot.lower, env.robot.upper
    goal = np.array(env.robot.home) + np.array([0.4, -0.2, 0.3, 0.2, -0.3, 0.2, 0.5])
    action = np.append(2 * (goal - lower) / (upper - lower) - 1, -1.0).astype(np.float32)
    before = observation["proprio"][:, :7]
    after = env.step(np.tile(action, (2, 1)))[0]["proprio"][:, :7]
    assert np.all(np.abs(after - before) <= np.array(env.robot.velocity) / 20 * 1.05)
    for _ in range(40):
        observation = env.step(np.tile(action, (2, 1)))[0]
    np.testing.assert_allclose(observation["proprio"][:, :7], np.tile(goal, (2, 1)), atol=0.01)
    np.testing.assert_allclose(observation["proprio"][:, 7], 0.0, atol=2e-3)


def test_a_tcp_action_moves_the_tcp_in_its_own_frame(shared: MujocoWorlds) -> None:
    shared.reset(seed=0)
    shared.step_chunk(still(4, 5))
    for axis in range(3):
        before = shared.truth
        action = still(4, 5)
        action[..., axis] = 0.5
        shared.step_chunk(action)
        moved = np.einsum("nji,nj->ni", before.tcp_rot, shared.truth.tcp_pos - before.tcp_pos)
        assert np.all(moved[:, axis] > 0.015)  # five times 1 cm, less the time to gain speed
        assert np.all(np.abs(np.delete(moved, axis, 1)) < 0.02)
        shared.step_chunk(-action * [1, 1, 1, 1, 1, 1, -1])


@pytest.mark.parametrize("kind", ["tcp_delta", "joint_position"])
def test_set_points_keep_to_the_velocity_limits_and_actions_to_one(shared: MujocoWorlds, kind: str) -> None:
    shared.reset(seed=0)
    control = make_control(kind, shared.robot)
    rng = np.random.default_rng(0)
    for _ in range(20):
        action = np.sign(rng.uniform(-1, 1, (4, control.spec.size))).astype(np.float32)
        q, width = control.targets(shared.truth.q, None, action)
        assert np.all(np.abs(q - shared.truth.q) <= np.array(shared.robot.velocity) / 20 + 1e-12)
        assert np.all((q >= shared.robot.lower) & (q <= shared.robot.upper))
        np.testing.assert_allclose(width, np.where(action[:, -1] > 0, 0.08, 0.0))
        for got, expected in zip(control.targets(shared.truth.q, None, 1.5 * action), (q, width), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_action_that_is_not_finite_is_refused_before_anything_moves(shared: MujocoWorlds, bad: float) -> None:
    shared.reset(seed=0)
    before = shared.batch.state.copy()
    action = still(4)
    action[2, 5] = bad
    with pytest.raises(NonFinite, match="action of world 2"):
        shared.step(action)
    with pytest.raises(NonFinite, match="action of world 2"):
        shared.step_chunk(np.stack([still(4), action], 1))
    np.testing.assert_array_equal(shared.batch.state, before)
    shared.step(action, np.arange(4) != 2)  # the action of a world that rests does not matter


@pytest.mark.parametrize("shape", [(4, 6), (4, 8), (3, 7), (7,)])
def test_actions_of_another_shape_are_refused(shared: MujocoWorlds, shape: tuple[int, ...]) -> None:
    shared.reset(seed=0)
    with pytest.raises(BadInput, match=r"actions: got shape .*, expected \(4, 7\)"):
        shared.step(np.zeros(shape, np.float32))
    with pytest.raises(BadInput, match="actions"):
        shared.step_chunk(np.zeros(shape, np.float32))


def test_what_the_caller_asks_wrongly() -> None:
    env = MujocoWorlds(TASKS["lift"](), 1, threads=1)
    with pytest.raises(BadInput, match="before the first reset"):
        env.step(still(1))
    with pytest.raises(BadInput, match="number of worlds: got 0"):
        MujocoWorlds(TASKS["lift"](), 0)
    with pytest.raises(BadInput, match=r"got spars; available: sparse, dense \(did you mean sparse\?"):
        MujocoWorlds(TASKS["lift"](), 1, reward="spars")
    with pytest.raises(BadInput, match=r"shaping_gamma: got 1\.5, expected above 0, at most 1"):
        MujocoWorlds(TASKS["lift"](), 1, reward="dense", shaping_gamma=1.5)
    with pytest.raises(BadInput, match="at least one action"):
        shaped = MujocoWorlds(TASKS["lift"](), 1, threads=1)
        shaped.reset(seed=0)
        shaped.step_chunk(still(1, 0))
    with pytest.raises(BadInput, match="action kind: got torque; available: tcp_delta, joint_position"):
        MujocoWorlds(TASKS["lift"](), 1, action_kind="torque")
    with pytest.raises(BadInput, match=r"camera: got top; available: .*front"):
        MujocoWorlds(TASKS["lift"](), 1, cameras=("top",))
