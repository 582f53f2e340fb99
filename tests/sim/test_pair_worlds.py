"""Worlds with two arms: where they stand, what they touch and what counts as done, by MuJoCo and by hand."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import BadInput
from robolearn.core.se3 import rotvec_to_matrix
from robots import PAIRS
from sim.embedded.task import BodyPose, Start, State
from sim.embedded.world import MujocoWorlds
from sim.experts import make_expert, make_operator
from sim.realtime import RealtimeWorld
from sim.registry import WorldConfig, make_env
from sim.tasks import TASKS
from sim.tasks.lift_two import HALF

TASKS_OF_TWO = ("lift_two", "handover")


def worlds(task: str, n: int, **options: object) -> MujocoWorlds:
    env = make_env(task, n, threads=1, **options)
    assert isinstance(env, MujocoWorlds)
    return env


def touching(env: MujocoWorlds, world: int) -> set[frozenset[str]]:
    """Pairs of bodies that press on each other in a world, by a model and a state of MuJoCo's own."""
    model, data = env.batch.get_model(world), env.batch.get_data(world)
    mujoco.mj_forward(model, data)
    bodies = [[model.body(int(model.geom_bodyid[geom])).name for geom in one.geom] for one in data.contact[: data.ncon]]
    return {frozenset(pair) for pair in bodies}


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS_OF_TWO)
@pytest.mark.parametrize("quality", ["expert", "narrow"])
def test_the_script_does_it(task: str, quality: str) -> None:
    n = 16
    env, going, solved = worlds(task, n), np.ones(n, bool), np.zeros(n, bool)
    expert = make_expert(task, env.interface, n, quality, 0)
    observation, _ = env.reset(seed=1)
    expert.reset(going)
    ends: dict[int, tuple[set[frozenset[str]], np.ndarray]] = {}
    while going.any():
        before = {int(w): (touching(env, int(w)), env.truth.bodies["bar"].pos[w].copy()) for w in np.flatnonzero(going)}
        observation, _, terminated, truncated, infos = env.step(expert.command(observation), going)
        ended = going & (terminated | truncated)
        solved |= ended & infos["success"]
        ends |= {int(w): before[int(w)] for w in np.flatnonzero(ended & infos["success"])}
        going &= ~ended
    assert solved.mean() >= 0.9
    for pairs, bar in ends.values():
        holding = {name.split("_")[0] for pair in pairs if "bar" in pair for name in pair if name != "bar"}
        assert holding == ({"left", "right"} if task == "lift_two" else {"right"})
        assert bar[2] > 0.08 if task == "lift_two" else bar[1] < -0.05


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS_OF_TWO)
def test_in_real_time_it_ends_as_in_the_vectorised_world(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The set-points of the one, arm by arm, lead the other to the same state, to the last bit."""
    there = MujocoWorlds(TASKS[task](), 1, robot=PAIRS["panda_pair"], randomise=False, threads=1)
    here = RealtimeWorld(task, 3, robot=PAIRS["panda_pair"], randomise=False)
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    follow = there.physics.follow

    def recorded(which: np.ndarray, arms: np.ndarray, width: np.ndarray, elapsed: np.ndarray) -> np.ndarray:
        before = there.physics.commanded_widths()
        rows.extend((q.copy(), (width if i >= there.physics.delay[0] else before)[0]) for i, q in enumerate(arms[0]))
        return follow(which, arms, width, elapsed)

    monkeypatch.setattr(there.physics, "follow", recorded)
    expert = make_expert(task, there.interface, 1, "expert", seed=0)
    names = there.interface.observation["proprio"].names
    joints = [names.index(joint) for joint in PAIRS["panda_pair"].joints]
    observation, _ = there.reset(seed=3)
    expert.reset(np.ones(1, dtype=bool))

    def measured() -> np.ndarray:
        return np.concatenate([here.joint_state(arm)[1][:7] for arm in (0, 1)]).astype(np.float32)

    np.testing.assert_array_equal(observation["proprio"][0, joints], measured())
    while True:
        rows.clear()
        observation, _, terminated, truncated, infos = there.step(expert.command(observation))
        assert here.outcome is None
        for q, width in rows:
            for arm in (1, 0):
                here.command(q[7 * arm : 7 * arm + 7], width[arm], arm)
            here.advance(here.task.timestep)
        if terminated or truncated:
            break
    assert infos["success"][0] and here.outcome == {"success": True, "truncated": False, "steps": here.steps}
    np.testing.assert_array_equal(infos["final_obs"]["proprio"][0, joints], measured())
    np.testing.assert_array_equal(infos["final_obs"]["objects"][0], here.objects()[1].astype(np.float32))
    widths = [names.index(f"{side}_gripper_width") for side in ("left", "right")]
    fingers = [here.joint_state(arm)[1][7:].sum() for arm in (0, 1)]
    np.testing.assert_allclose(infos["final_obs"]["proprio"][0, widths], fingers, atol=1e-6)


def test_tcps_are_in_the_station_and_proprioception_is_of_each_arm() -> None:
    env = worlds("handover", 3)
    observation, _ = env.reset(seed=0)
    names = env.interface.observation["proprio"].names
    for w in range(3):
        model, data = env.batch.get_model(w), env.batch.get_data(w)
        mujoco.mj_kinematics(model, data)
        for k, (arm, y) in enumerate((("left", 0.35), ("right", -0.35))):
            site = data.site(f"{arm}_tcp").xpos
            np.testing.assert_allclose(env.truth.tcp_pos[w, k], site, atol=1e-9)
            seen = [observation["proprio"][w, names.index(f"{arm}_tcp_{axis}")] for axis in "xyz"]
            np.testing.assert_allclose(seen, site - [0.0, y, 0.0], atol=1e-6)
            assert 0.2 < abs(site[1]) < 0.55 and np.sign(site[1]) == np.sign(y)
            joint = observation["proprio"][w, names.index(f"{arm}_panda_joint1")]
            assert joint == pytest.approx(data.joint(f"{arm}_panda_joint1").qpos[0], abs=1e-6)


def test_each_arm_starts_where_its_own_offset_puts_it() -> None:
    env = worlds("handover", 1)
    offsets = np.array([[0.04, 0.0, 0.02], [-0.03, 0.05, 0.0]])
    model, data = env.batch.get_model(0), env.batch.get_data(0)
    sites = []
    for offset in (np.zeros((2, 3)), offsets):
        q, *_ = env.physics.posture([Start(tcp_offset=offset, tcp_yaw=np.zeros(2))])
        for name, position in zip(PAIRS["panda_pair"].joints, q[0], strict=True):
            data.joint(name).qpos[0] = position
        mujoco.mj_kinematics(model, data)
        sites.append([data.site(f"{arm}_tcp").xpos.copy() for arm in ("left", "right")])
    np.testing.assert_allclose(np.subtract(*sites[::-1]), offsets, atol=1e-4)


def test_an_action_moves_the_arm_that_it_is_of() -> None:
    env = worlds("lift_two", 1)
    names = env.interface.action.names
    for arm, other in (("left", 1), ("right", 0)):
        env.reset(seed=0)
        before = env.truth.tcp_pos[0].copy()
        width = env.truth.width[0].copy()
        action = np.zeros((1, 14), np.float32)
        action[0, [names.index("left_gripper"), names.index("right_gripper")]] = 1.0
        action[0, names.index(f"{arm}_dz")] = -1.0  # z of the tcp points down
        action[0, names.index(f"{arm}_gripper")] = -1.0
        for _ in range(6):
            env.step(action)
        moved = env.truth.tcp_pos[0] - before
        assert moved[1 - other, 2] > 0.05 and np.abs(moved[other]).max() < 0.005
        assert env.truth.width[0, 1 - other] < 0.03 and env.truth.width[0, other] == pytest.approx(
            width[other], abs=2e-3
        )


def test_the_arms_meet_each_other_and_not_themselves() -> None:
    """Driven at each other they touch; at home nothing of an arm touches itself."""
    env = worlds("handover", 1)
    env.reset(seed=0)
    assert not any({name.split("_")[0] for name in pair} & {"left", "right"} for pair in touching(env, 0))
    names, action = env.interface.action.names, np.zeros((1, 14), np.float32)
    met: set[frozenset[str]] = set()
    for _ in range(40):
        rot = env.truth.tcp_rot[0]
        for k, (arm, way) in enumerate((("left", -1.0), ("right", 1.0))):
            at = names.index(f"{arm}_dx")
            action[0, at : at + 3] = rot[k].T @ np.array([0.0, way, 0.0])
        env.step(action)
        met |= touching(env, 0)
    sides = [sorted(name.split("_")[0] for name in pair) for pair in met]
    assert ["left", "right"] in sides and ["left", "left"] not in sides and ["right", "right"] not in sides


def state(z: float, tilt: float = 0.0, y: float = 0.0, tcps: object = ((0.5, 0.2, 0.1), (0.5, -0.2, 0.1)),
          width: object = (0.03, 0.03)) -> State:  # fmt: skip
    """One world with the bar at (0.5, y, z) along y, tilted about x."""
    rot, zero = rotvec_to_matrix(np.array([[tilt, 0.0, 0.0]])), np.zeros((1, 3))
    bar = BodyPose(np.array([[0.5, y, z]]), rot, zero, zero)
    eye = np.broadcast_to(np.eye(3), (1, 2, 3, 3))
    q = np.zeros((1, 14))
    return State(q, q, np.array([width], float), np.array([tcps], float), eye, {"bar": bar})


@pytest.mark.parametrize(
    ("z", "tilt", "done"),
    [(0.12, 0.0, True), (0.11, 0.0, False), (0.20, 0.05, True), (0.20, -0.05, True), (0.20, 0.07, False)],
)
def test_a_bar_is_lifted_where_it_is_high_and_level(z: float, tilt: float, done: bool) -> None:
    """10 cm above the 1.5 cm where it lay; ends 50 cm apart differ by 50 sin(tilt), 3 cm at 0.06 rad."""
    task = TASKS["lift_two"]()
    assert task.success(state(z, tilt)).tolist() == [done]
    assert task.failure(state(-0.02)).tolist() == [True] and task.failure(state(HALF)).tolist() == [False]
    low, high = (float(task.progress(state(height))[0]) for height in (HALF, 0.12))
    assert high > low and float(task.progress(state(0.2, 0.9))[0]) < high, "the lower end counts"


RIGHT_HOLDS = ((0.5, 0.1, 0.3), (0.5, -0.32, 0.15))


@pytest.mark.parametrize(
    ("changes", "done"),
    [
        ({}, True),
        ({"width": (0.03, 0.03)}, False),  # the left hand is closed
        ({"tcps": ((0.5, -0.1, 0.18), RIGHT_HOLDS[1])}, False),  # and still at the stick
        ({"tcps": (RIGHT_HOLDS[0], (0.5, -0.5, 0.15))}, False),  # the right hand is not
        ({"y": -0.05}, False),
        ({"z": HALF}, False),
        ({"tilt": 0.8}, False),  # one end is on the table
    ],
)
def test_a_stick_is_handed_over_where_the_right_hand_alone_has_it(changes: dict, done: bool) -> None:
    given = {"z": 0.15, "y": -0.2, "tcps": RIGHT_HOLDS, "width": (0.08, 0.03)} | changes
    if "z" in changes:
        given["tcps"] = (RIGHT_HOLDS[0], (0.5, -0.32, changes["z"]))
    assert TASKS["handover"]().success(state(**given)).tolist() == [done]


def test_each_arm_sees_its_own_end_in_its_own_frame() -> None:
    task = TASKS["lift_two"]()
    seen = dict(
        zip(task.observation_names, task.observe(state(0.1, tcps=((0.5, 0.3, 0.2), (0.4, -0.2, 0.2))))[0], strict=True)
    )
    assert [seen[f"left_grasp_{axis}"] for axis in "xyz"] == pytest.approx([0.0, -0.1, -0.1])
    assert [seen[f"right_grasp_{axis}"] for axis in "xyz"] == pytest.approx([0.1, 0.0, -0.1])
    assert [seen[f"bar_axis_{axis}"] for axis in "xyz"] == pytest.approx([0.0, 1.0, 0.0])


def test_one_arm_and_two_are_not_confused(capsys: pytest.CaptureFixture) -> None:
    assert WorldConfig("lift_two").arm == "panda_pair" and WorldConfig("lift").arm == "panda"
    with pytest.raises(
        BadInput, match=r"robot of lift_two: got panda, expected 2 arms that can do it; available: panda_pair"
    ):
        make_env("lift_two", 1, robot="panda")
    with pytest.raises(
        BadInput, match=r"robot of lift: got panda_pair, expected an arm that can do it; available: panda, fr3"
    ):
        make_env("lift", 1, robot="panda_pair")
    with pytest.raises(BadInput, match=r"--dynamics: got drawn dynamics, expected none"):
        make_env("lift_two", 1, dynamics="mild")
    with pytest.raises(BadInput, match=r"--station: got one with panda, expected one with panda_pair"):
        make_env("lift_two", 1, station="sim")
    env = worlds("lift_two", 1)
    with pytest.raises(BadInput, match=r"scripted operator for task: got lift_two, expected a task of one arm"):
        make_operator("lift_two", env.interface, 1, 0)
    with pytest.raises(BadInput, match=r"quality: got dropped, expected another one"):
        make_expert("lift_two", env.interface, 1, "dropped", 0)
    assert main(["tasks"]) == 0
    assert "panda_pair" in capsys.readouterr().out
