"""Worlds that nobody resets: judged by MuJoCo's own state, by scripts that take turns, and by the clock."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import BadInput
from sim.embedded.task import BodyPose, State
from sim.embedded.two_way import PATIENCE, TwoWayWorlds
from sim.experts import make_expert
from sim.registry import WorldConfig
from sim.tasks import lift, pick_place
from sim.tasks.ways_back import lift_back

N = 6


def worlds(task: str = "lift", n: int = N, **options: object) -> TwoWayWorlds:
    made = WorldConfig(task, two_way=True, threads=1, **options).build(n)  # type: ignore[arg-type]
    assert isinstance(made, TwoWayWorlds)
    return made


def still(env: TwoWayWorlds) -> NDArray[np.float32]:
    return np.zeros((env.num_envs, env.interface.action.size), np.float32)


@pytest.mark.long
@pytest.mark.parametrize("task", ["lift", "pick_place"])
def test_two_scripts_take_turns_and_nobody_helps(task: str) -> None:
    env = worlds(task)
    scripts = [make_expert(name, env.interface, N, "expert", 0) for name in (task, f"{task}_back")]
    observation, _ = env.reset(seed=1)
    for script in scripts:
        script.reset(np.ones(N, bool))
    area, ends, places = (lift if task == "lift" else pick_place).STARTS[:2], [], []
    for _ in range(500):
        turn = env.back
        action = np.where(turn[:, None], scripts[1].command(observation), scripts[0].command(observation))
        before = env.batch.state.copy()
        observation, reward, terminated, truncated, infos = env.step(action)
        ended = terminated | truncated
        np.testing.assert_array_equal(env.back, turn ^ ended)
        np.testing.assert_array_equal(reward, infos["success"])
        assert not (before == env.batch.state).all(1).any(), "every world moves"
        cube = env.batch.bind("qpos")[:, env.model.joint("cube").qposadr[0] :][:, :3]
        for w in np.flatnonzero(ended):
            ends.append(bool(infos["success"][w]))
            # The next episode begins where this one ends: the arm and the cube stay, MuJoCo's state has no jump.
            np.testing.assert_array_equal(observation["proprio"][w], infos["final_obs"]["proprio"][w])
            np.testing.assert_array_equal(observation["objects"][w], infos["final_obs"]["objects"][w])
            if turn[w]:  # judged by arithmetic on MuJoCo's positions
                assert np.hypot(*(cube[w, :2] - infos["final_obs"]["target"][w])) < 0.03 and cube[w, 2] < 0.025
                assert infos["final_obs"]["proprio"][w, 7] > 0.055, "it has let go"
            else:
                places.append(observation["target"][w])
        for script in scripts:
            script.reset(ended)
    assert all(ends) and len(ends) > 4 * N and env.helped == 0
    places = np.array(places)
    assert ((places >= area[:, 0]) & (places <= area[:, 1])).all() and (np.ptp(places, axis=0) > 0.05).all()
    assert len(np.unique(places, axis=0)) == len(places), "another place each time"


@pytest.mark.parametrize(
    ("changes", "solved"),
    [
        ({}, True),
        ({"aside": 0.029}, True),
        ({"aside": 0.031}, False),
        ({"height": 0.026}, False),
        ({"speed": 0.06}, False),
        ({"width": 0.05}, False),
        ({"tcp": (0.5, 0.0, 0.09)}, False),
        ({"tcp": (0.58, 0.0, 0.165)}, False),
    ],
)
def test_the_way_back_ends_when_the_cube_lies_there_and_the_open_gripper_is_back(changes: dict, solved: bool) -> None:
    at = {"aside": 0.0, "height": 0.02, "speed": 0.0, "width": 0.07, "tcp": (0.5, 0.0, 0.165)} | changes
    none, eye = np.zeros((1, 3)), np.eye(3)[None]
    cube = BodyPose(np.array([[0.45 + at["aside"], 0.1, at["height"]]]), eye, np.array([[at["speed"], 0.0, 0.0]]), none)
    place = BodyPose(np.array([[0.45, 0.1, 0.0]]), eye, none, none)
    arm = np.zeros((1, 7))
    state = State(arm, arm, np.array([at["width"]]), np.array([at["tcp"]]), eye, {"cube": cube, "place": place})
    assert lift_back().success(state).tolist() == [solved]


def test_after_a_failure_the_arm_goes_home_and_things_stay() -> None:
    env = worlds(n=3)
    env.max_episode_steps = 12
    env.reset(seed=0)
    down = still(env)
    down[:, 2], down[:, 6] = 1.0, -1.0  # along the gripper's own z, and closed
    at = env.model.joint("cube").qposadr[0]
    cube = env.batch.bind("qpos")[:, at : at + 7].copy()
    for _ in range(11):
        env.step(down)
    low = env.truth.tcp_pos.copy()
    observation, _, _, truncated, infos = env.step(down)
    assert truncated.all() and (infos["final_obs"]["proprio"][:, 7] < 0.03).all() and env.back.all()
    names = env.interface.observation["proprio"].names
    tcp = observation["proprio"][:, [names.index(f"tcp_{axis}") for axis in "xyz"]]
    np.testing.assert_allclose(tcp, np.tile((0.5, 0.0, 0.165), (3, 1)), atol=0.01)
    assert (tcp[:, 2] - low[:, 2] > 0.03).all() and (observation["proprio"][:, 7] > 0.07).all()
    np.testing.assert_allclose(env.batch.bind("qpos")[:, at : at + 7], cube, atol=2e-3)


def test_a_thing_out_of_reach_is_put_back_by_a_person() -> None:
    env = worlds()
    env.reset(seed=0)
    qpos = env.batch.bind("qpos")
    at = env.model.joint("cube").qposadr[0]
    qpos[2, at : at + 3] = (0.5, 1.2, -0.3)  # beside the table and below it
    observation, _, terminated, _, infos = env.step(still(env))
    assert terminated.tolist() == [w == 2 for w in range(N)] and not infos["success"].any()
    assert env.helped == 1 and not env.back.any()
    names = env.interface.observation["objects"].names
    assert observation["objects"][2, names.index("cube_z")] == pytest.approx(0.02, abs=1e-3)
    assert infos["final_obs"]["objects"][2, names.index("cube_z")] < -0.2


def test_a_person_has_patience_for_some_failures_in_a_row() -> None:
    env = worlds(n=2)
    env.max_episode_steps = 3
    env.reset(seed=0)
    turns, helped = [], []
    for _ in range(PATIENCE * 3 + 3):
        turns.append(env.back[0])
        env.step(still(env))
        helped.append(env.helped)
    assert helped[: PATIENCE * 3 - 1] == [0] * (PATIENCE * 3 - 1) and helped[PATIENCE * 3 - 1] == 2
    assert turns[::3] == [False, True] * (PATIENCE // 2) + [False], "each in its turn, solved or not"


@pytest.mark.long
def test_a_snapshot_goes_on_bit_for_bit() -> None:
    one, two = (worlds(n=3, dynamics="wild") for _ in range(2))
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (60, 3, one.interface.action.size)).astype(np.float32)
    for env in (one, two):
        env.max_episode_steps = 7
    one.reset(seed=4)
    for action in actions[:24]:
        one.step(action)
    assert one.back.any()
    two.reset(seed=9)
    restored = two.restore(one.snapshot())
    for key, value in one._observation.items():
        np.testing.assert_array_equal(restored[key], value)
    for action in actions[24:]:
        for mine, theirs in zip(one.step(action)[:4], two.step(action)[:4], strict=True):
            np.testing.assert_equal(mine, theirs)
        np.testing.assert_array_equal(one.back, two.back)
    assert one.helped == two.helped > 0


def test_looks_and_dynamics_stay_until_a_person_comes() -> None:
    env = worlds(n=2, dynamics="wild")
    env.max_episode_steps = 2
    env.reset(seed=0)
    assert env.physics.arms is not None
    drawn = [env.physics.arms.gain.copy()]
    for _ in range(2 * PATIENCE):
        env.step(still(env))
        drawn.append(env.physics.arms.gain.copy())
    for gain in drawn[1:-1]:
        np.testing.assert_array_equal(gain, drawn[0])
    assert (drawn[-1] != drawn[0]).any() and env.helped == 2


def test_a_task_without_a_way_back_is_refused() -> None:
    with pytest.raises(BadInput, match=r"task with a way back: got peg_insert; available: lift, pick_place"):
        worlds("peg_insert")
    with pytest.raises(BadInput, match=r"robot of lift_back: got so101, .* available: panda, fr3, ur5e"):
        worlds("lift", robot="so101")
    with pytest.raises(BadInput, match="option two way"):
        WorldConfig("gym:nowhere:Id-v0", two_way=True).check()
