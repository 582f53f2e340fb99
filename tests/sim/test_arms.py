"""Every arm at its tasks, with MuJoCo's own kinematics, distances and contacts as the judge."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from robolearn.core import BadInput
from robots import ROBOTS, solve
from sim.embedded.physics import Physics
from sim.embedded.task import fits
from sim.embedded.world import MujocoWorlds
from sim.experts import make_expert
from sim.experts.waypoints import downward, nearest, yaw_of
from sim.registry import make_env, robot_names
from sim.tasks import TASKS

ARMS = ("panda", "fr3", "ur5e", "so101")
PADS = {
    "panda": ("panda_pad_left", "panda_pad_right"),
    "fr3": ("fr3_pad_left", "fr3_pad_right"),
    "ur5e": ("ur5e_pad_left", "ur5e_pad_right"),
    "so101": ("so101_fixed_jaw", "so101_moving_jaw"),
}


def touching(env: MujocoWorlds, world: int) -> set[frozenset[str]]:
    """Pairs of geoms that press on each other in a world, by a model and a state of MuJoCo's own."""
    model, data = env.batch.get_model(world), env.batch.get_data(world)
    mujoco.mj_forward(model, data)
    found, force = set(), np.zeros(6)
    for i, contact in enumerate(data.contact[: data.ncon]):
        mujoco.mj_contactForce(model, data, i, force)
        if force[0] > 0.01:
            found.add(frozenset(model.geom(int(g)).name for g in contact.geom))
    return found


@pytest.mark.long
@pytest.mark.parametrize("robot", ARMS)
def test_what_is_lifted_is_pressed_between_both_fingers_and_nothing_else_carries_it(robot: str) -> None:
    n = 16
    env = make_env("lift", n, robot=robot, threads=1)
    assert isinstance(env, MujocoWorlds)
    expert, going = make_expert("lift", env.interface, n, "expert", 0), np.ones(n, bool)
    observation, _ = env.reset(seed=0)
    expert.reset(going)
    lifted: dict[int, set[frozenset[str]]] = {}
    while going.any() and len(lifted) < n:
        observation, _, terminated, truncated, _ = env.step(expert.command(observation), going)
        going &= ~(terminated | truncated)
        for w in np.flatnonzero(going & (env.truth.bodies["cube"].pos[:, 2] > 0.05)):
            lifted.setdefault(int(w), touching(env, int(w)))
    assert len(lifted) >= 15
    for pairs in lifted.values():
        with_cube = {name for pair in pairs if "cube" in pair for name in pair} - {"cube"}
        assert set(PADS[robot]) <= with_cube and "table" not in with_cube


@pytest.mark.long
@pytest.mark.parametrize("task", ["lift", "pick_place"])
@pytest.mark.parametrize("robot", ARMS)
def test_every_start_is_free_and_every_cube_is_in_reach_of_a_gripper_that_points_down(robot: str, task: str) -> None:
    n, arm = 100, ROBOTS[robot]
    physics = Physics(arm, TASKS[task](), n, threads=1, randomise=False)
    q = physics.begin(np.arange(n), [(0, w, 0) for w in range(n)])
    model, data = physics.model, mujoco.MjData(physics.model)
    mine = {g for g in range(model.ngeom) if model.body(int(model.geom_bodyid[g])).name.startswith(robot)}
    cubes = physics.state().bodies["cube"]
    tcp = physics.state().tcp_rot
    down = downward(nearest(yaw_of(cubes.rot), yaw_of(tcp), np.pi / 2))
    for _ in range(60):
        q = solve(
            arm.chain, q, cubes.pos - down @ np.array(arm.gripper.grip), down, rest=np.array(arm.home), config=arm.ik
        )
    for w in range(n):
        data.qpos[:] = physics.qpos[w]
        mujoco.mj_forward(model, data)
        assert not any(mine & set(map(int, contact.geom)) for contact in data.contact[: data.ncon])
        data.qpos[physics.arm_q] = q[w]
        mujoco.mj_kinematics(model, data)
        at, turned = data.site("tcp").xpos, data.site("tcp").xmat.reshape(3, 3)
        assert np.linalg.norm(at + turned @ np.array(arm.gripper.grip) - cubes.pos[w]) < 0.005
        assert turned[2, 2] < -np.cos(0.12)  # z of the tcp, which points out of the gripper


def gap(model: mujoco.MjModel, data: mujoco.MjData, robot: str) -> float:
    """Between two sliding pads, or between the inner edges of the tips of finger and jaw [m]."""
    if robot != "so101":
        return mujoco.mj_geomDistance(model, data, *(model.geom(name).id for name in PADS[robot]), 1.0, None)
    tips = []
    for name, inwards in zip(PADS[robot], (1.0, -1.0), strict=True):
        turned, size = data.geom(name).xmat.reshape(3, 3), model.geom(name).size
        tips.append(data.geom(name).xpos + turned[:, 0] * size[0] + inwards * turned[:, 2] * size[2])
    return float(np.linalg.norm(tips[1] - tips[0]))


@pytest.mark.long
@pytest.mark.parametrize("robot", ARMS)
@pytest.mark.parametrize("kind", ["tcp_delta", "joint_position"])
def test_the_last_number_of_an_action_is_the_gap_between_the_fingers(robot: str, kind: str) -> None:
    """By where MuJoCo has the tips of the pads; a jaw's gap is taken as linear in its angle, 1 cm off at most."""
    env = make_env("lift", 1, robot=robot, action_kind=kind, threads=1)
    assert isinstance(env, MujocoWorlds) and env.interface.action.names[-1] == "gripper"
    env.reset(seed=0)
    most, gaps = ROBOTS[robot].gripper.max_width, []
    for share in (0.0, 0.35, 0.6):
        for _ in range(25):
            q = env.truth.q
            action = env._control.actions(q, q, np.array([share * most]))
            observation = env.step(action.astype(np.float32))[0]
        model, data = env.batch.get_model(0), env.batch.get_data(0)
        mujoco.mj_kinematics(model, data)
        gaps.append(gap(model, data, robot))
        assert observation["proprio"][0, len(ROBOTS[robot].joints)] == pytest.approx(share * most, abs=0.002)
        assert gaps[-1] == pytest.approx(share * most, abs=0.011 if robot == "so101" else 0.002)
    assert gaps[0] < gaps[1] - 0.02 and gaps[1] < gaps[2] - 0.015


@pytest.mark.long
def test_the_cameras_come_nearer_with_the_bench() -> None:
    """A cube in the middle of its places is in the middle of the picture, and before a small arm it is larger."""
    for robot in ("panda", "so101"):
        env = make_env("lift", 1, robot=robot, start_range=0.01, cameras=("front",), threads=1)
        assert isinstance(env, MujocoWorlds)
        picture = env.reset(seed=0)[0]["images.front"][0].astype(int)
        red = (
            (picture[..., 0] > 100)
            & (picture[..., 0] > 1.8 * picture[..., 1])
            & (picture[..., 0] > 1.8 * picture[..., 2])
        )
        assert red.sum() > (8 if robot == "panda" else 40)
        env.close()
        middle = np.argwhere(red).mean(0)
        assert middle.min() > 15 and middle.max() < 69


def test_an_arm_that_cannot_do_a_task_is_refused_with_those_that_can() -> None:
    assert robot_names() == (*ARMS, "panda_pair", "fr3_pair")
    assert not fits(ROBOTS["so101"], "peg_insert") and fits(ROBOTS["so101"], "pick_place")
    says = r"robot of peg_insert: got so101, expected an arm that can do it; available: panda, fr3, ur5e\. A jaw"
    with pytest.raises(BadInput, match=says):
        make_env("peg_insert", 1, robot="so101")
