"""Cousins of a scene: what is drawn, what the physics makes of it, who still solves it."""

import re
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from robolearn.core import BadInput
from robots import PANDA
from sim.embedded.cousin_scenes import APART, TYPES, about_names, size_of
from sim.embedded.cousins import BOUNDS, COUSINS, SHAPES, CousinRange, half_sizes, inertia, load_cousins
from sim.embedded.world import MujocoWorlds
from sim.experts import make_expert
from sim.registry import WorldConfig, make_env
from sim.tasks import TASKS

WIDE = CousinRange("wide", SHAPES, (0.03, 0.05), (1.1, 1.5), (0.03, 0.06), (0.1, 0.3), (2, 3), (-0.03, 0.03))


def worlds(num_envs: int, found: CousinRange | None = WIDE, task: str = "lift", **options: object) -> MujocoWorlds:
    return MujocoWorlds(replace(TASKS[task](), cousins=found), num_envs, threads=1, **options)  # type: ignore[arg-type]


def scenes(found: CousinRange, count: int = 300) -> list:
    return [found.draw((0, w, 0)) for w in range(count)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_inertia_is_that_of_even_density(shape: str) -> None:
    half = half_sizes(shape, 0.04, 1.6, 0.07)
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body(name="thing")
    body.add_freejoint()
    quat = [np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0] if shape == "capsule" else [1.0, 0.0, 0.0, 0.0]
    body.add_geom(type=TYPES[shape], size=size_of(shape, half), mass=0.3, quat=quat)
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, full, data.qM) if hasattr(data, "qM") else mujoco.mj_fullM(model, data, full)
    np.testing.assert_allclose(np.diag(full)[3:], inertia(shape, half, 0.3), rtol=1e-6)


def test_things_lie_where_they_are_said_to() -> None:
    """Nobody moves for a second: all shapes rest on their tables, at the height that success is judged by."""
    env = worlds(24)
    observation, _ = env.reset(seed=3)
    begun = observation["objects"][:, :3]
    still = np.zeros((24, env.interface.action.size), np.float32)
    still[:, -1] = 1.0
    for _ in range(20):
        observation, _, terminated, _, _ = env.step(still)
        assert not terminated.any()
    half, table = observation["cousin"][:, :3], observation["cousin"][:, 3]
    assert {WIDE.draw((3, w, 0)).shape for w in range(24)} == set(SHAPES)
    np.testing.assert_allclose(observation["objects"][:, 2], table + half[:, 2], atol=6e-4)
    np.testing.assert_allclose(observation["objects"][:, :2], begun[:, :2], atol=2e-3)
    assert np.ptp(table) > 0.03 and np.ptp(half[:, 2]) > 0.005


def test_things_weigh_what_was_drawn() -> None:
    """Beside 10% that differs in the twin, too."""
    env = worlds(30)
    env.reset(seed=4)
    drawn = np.array([WIDE.draw((4, w, 0)).mass for w in range(30)])
    weight = env.batch.expand("body_mass")[:, env.model.body("cube").id]
    assert np.all(np.abs(weight / drawn - 1.0) < 0.1 + 1e-9) and np.ptp(drawn) > 0.15


def test_height_above_its_own_table_counts() -> None:
    env = worlds(12)
    env.reset(seed=0)
    state = env.physics.state()
    rest = state.lying.rest
    for raised, solved in ((0.0599, False), (0.0601, True)):
        state.bodies["cube"].pos[:, 2] = rest + raised
        assert (env.world_task.success(state) == solved).all()
    state.bodies["cube"].pos[:, 2] = rest - 2 * state.lying.half[:, 2] - 1e-4
    assert env.world_task.failure(state).all()


def test_a_thing_is_placed_and_let_go_by_its_own_size() -> None:
    env = worlds(12, task="pick_place")
    env.reset(seed=0)
    state = env.physics.state()
    cube, lying = state.bodies["cube"], state.lying
    cube.pos[:, :2], cube.linear[:] = state.bodies["target"].pos[:, :2], 0.0
    cube.pos[:, 2] = lying.rest + 0.004
    wide = 2 * np.minimum(lying.half.max(1, where=[True, True, False], initial=0.0), 0.03)  # it holds no wider one
    assert not env.world_task.success(replace(state, width=wide + 0.014)).any()
    assert env.world_task.success(replace(state, width=wide + 0.016)).all()
    cube.pos[:, 2] = lying.rest + 0.006
    assert not env.world_task.success(replace(state, width=wide + 0.016)).any()


def test_seed_start_and_episode_alone_decide() -> None:
    few, many, other = (worlds(n) for n in (3, 7, 3))
    seen = [env.reset(seed=seed)[0] for env, seed in ((few, 5), (many, 5), (other, 6))]
    for key in ("cousin", "objects", "proprio"):
        np.testing.assert_array_equal(seen[0][key], seen[1][key][:3])
    assert not np.array_equal(seen[0]["cousin"], seen[2]["cousin"])
    again = few.reset()[0]["cousin"]
    assert not np.array_equal(again, seen[0]["cousin"])  # the next episode is another scene
    fixed = worlds(3, replace(WIDE, when="world"))
    np.testing.assert_array_equal(fixed.reset(seed=5)[0]["cousin"], fixed.reset()[0]["cousin"])


def test_starts_are_those_of_the_twin() -> None:
    twin, cousins = worlds(6, None, "pick_place"), worlds(6, WIDE, "pick_place")
    a, b = (env.reset(seed=1)[0] for env in (twin, cousins))
    np.testing.assert_array_equal(a["proprio"], b["proprio"])
    np.testing.assert_array_equal(a["objects"][:, :2], b["objects"][:, :2])
    target = twin.interface.observation["objects"].names.index("target_z")
    np.testing.assert_allclose(b["objects"][:, target] - a["objects"][:, target], b["cousin"][:, 3], atol=1e-6)
    np.testing.assert_allclose(
        b["objects"][:, 2], b["cousin"][:, 2] + b["cousin"][:, 3], atol=1e-6
    )  # each on its table


def test_they_go_on_from_a_snapshot() -> None:
    env, other = worlds(4), worlds(4)
    env.reset(seed=2)
    move = np.tile(np.array([0.2, 0.1, 0.8, 0.0, 0.0, 0.0, 1.0], np.float32), (4, 1))
    seen = [env.step(move)[0] for _ in range(10)][-1]
    resumed = other.restore(env.snapshot())
    np.testing.assert_array_equal(resumed["cousin"], seen["cousin"])
    for _ in range(10):
        a, b = env.step(move)[0], other.step(move)[0]
        np.testing.assert_array_equal(a["objects"], b["objects"])


def test_what_stands_about_leaves_room_for_a_hand() -> None:
    env = worlds(20, COUSINS["held-out"], "pick_place")
    env.reset(seed=0)
    bodies, count = env.physics.state().bodies, 0
    for w in range(20):
        about = [bodies[name].pos[w] for name in about_names(COUSINS["held-out"]) if bodies[name].pos[w, 2] > -0.5]
        things = [bodies[name].pos[w] for name in ("cube", "target")]
        for k, place in enumerate(about):
            assert min(np.linalg.norm((place - other)[:2]) for other in (*things, *about[:k])) > APART
        count += len(about)
    assert count >= 55  # of 60 to 80


def test_what_stands_about_is_felt() -> None:
    env = worlds(1, replace(WIDE, clutter=(1, 1), table=(0.0, 0.0)))
    env.reset(seed=0)
    about = env.physics.state().bodies["about0"].pos[0]
    half = env.physics.state().lying.half[0, 2]
    cube = np.array([*about[:2], 2 * about[2] + half + 0.005, 1.0, 0.0, 0.0, 0.0])
    env.physics.put("cube", 0, cube)  # it falls onto it
    still = np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]], np.float32)
    heights = [env.step(still)[0]["objects"][0, 2] for _ in range(10)]
    np.testing.assert_allclose(heights[-1], 2 * about[2] + half, atol=1e-3)


def test_held_out_scenes_lie_outside_those_of_training() -> None:
    train, held_out = COUSINS["train"], COUSINS["held-out"]
    for name in ("width", "mass", "clutter", "table"):
        assert getattr(train, name)[1] < getattr(held_out, name)[0]
    for name in BOUNDS:  # the twin is among those of training
        low, high = getattr(train, name)
        assert low <= getattr(CousinRange("twin"), name)[0] <= high
    assert set(scene.shape for scene in scenes(held_out)) == set(SHAPES)
    assert set(scene.shape for scene in scenes(train)) == {"box", "cylinder"}
    for found in (train, held_out):
        drawn = scenes(found)
        for value, ends in (
            ([2 * c.half[1] for c in drawn], found.width), ([c.mass for c in drawn], found.mass),
            ([c.table for c in drawn], found.table), ([len(c.about) for c in drawn], found.clutter),
        ):  # fmt: skip
            assert ends[0] <= min(value) and max(value) <= ends[1]
            assert max(value) - min(value) > 0.9 * (ends[1] - ends[0])


def test_a_range_of_the_twin_alone_is_the_twin() -> None:
    plain, twin = worlds(3, None), worlds(3, COUSINS["twin"])
    expert = make_expert("lift", plain.interface, 3, "expert", 0)
    seen, same = plain.reset(seed=4)[0], twin.reset(seed=4)[0]
    for _ in range(25):  # it is grasped and raised
        move = expert.command(seen)
        seen, same = plain.step(move)[0], twin.step(move)[0]
        np.testing.assert_allclose(same["objects"], seen["objects"], atol=1e-3)
    np.testing.assert_array_equal(same["cousin"], np.tile(np.float32([0.02, 0.02, 0.02, 0.0]), (3, 1)))


def test_policies_observe_the_same_as_in_the_twin() -> None:
    twin, cousins = worlds(1, None).interface, worlds(1).interface
    assert cousins.seeing((), what="it").observation == twin.observation
    assert "cousin" in cousins.seeing(("proprio", "objects", "cousin"), what="it").observation
    assert "cousin" in cousins.privileged
    assert cousins.extra["cousins"]["shapes"] == list(SHAPES) and not twin.extra


@pytest.mark.long
@pytest.mark.parametrize("task", ["lift", "lift_to", "pick_place"])
@pytest.mark.parametrize("found", ["train", "held-out"])
def test_the_expert_solves_them(task: str, found: str) -> None:
    """By both of its strategies, 60 scenes."""
    env = make_env(task, 60, cousins=found, threads=1)
    expert = make_expert(task, env.interface, 60, "narrow", 0)
    observation, _ = env.reset(seed=11)
    expert.reset(np.ones(60, bool))
    running, solved = np.ones(60, bool), np.zeros(60, bool)
    while running.any():
        observation, _, terminated, truncated, infos = env.step(expert.command(observation), running)
        solved |= running & infos["success"]
        running &= ~(terminated | truncated)
    assert solved.mean() >= 0.95


@pytest.mark.long
def test_pictures_show_them_whoever_draws() -> None:
    near = replace(WIDE, width=(0.05, 0.05), clutter=(3, 3))
    pictures = []
    for found, processes in ((near, 0), (near, 1), (None, 0)):
        env = worlds(2, found, cameras=("front",), render_processes=processes)
        pictures.append(env.reset(seed=1)[0]["images.front"])
        env.close()
    np.testing.assert_array_equal(pictures[0], pictures[1])
    assert (pictures[0] != pictures[2]).any(axis=(1, 2, 3)).all()


def test_a_page_shows_their_shapes() -> None:
    env = worlds(8)
    env.reset(seed=0)
    drawn = [WIDE.draw((0, w, 0)) for w in range(8)]
    for w, cousin in enumerate(drawn):
        shape = next(one for one in env.scene(w).shapes if one.name == "cube/0")
        assert shape.kind == {"sphere": "ellipsoid"}.get(cousin.shape, cousin.shape)
        np.testing.assert_allclose(shape.size[0], size_of(cousin.shape, cousin.half)[0])


MISTAKES = {
    "mass: -0.1": "f.yaml: mass: got -0.1, expected 0.01 to 2 kg",
    "shapes: [cone]": "f.yaml: shapes.0: got cone; available: box, cylinder, sphere, capsule",
    "shapes: []": "f.yaml: shapes: missing; available: box, cylinder, sphere, capsule",
    "width: [0.05, 0.03]": "f.yaml: width: got [0.05, 0.03], expected the lower value first",
    "width: [0.05]": "f.yaml: width",
    "clutter: 1.5": "f.yaml: clutter: got [1.5, 1.5], expected whole numbers",
    "table: high": "f.yaml: table",
    "colour: red": "f.yaml: unknown key: got colour; available: shapes, width",
    "when: run": "f.yaml: when: got run; available: episode, world",
    "[1, 2]": "f.yaml",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_in_a_file_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(BadInput, match=re.escape(MISTAKES[text])) as caught:
        load_cousins(str(tmp_path / "f.yaml"))
    assert "\n" not in str(caught.value)


def test_a_file_states_a_range(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("shapes: [capsule]\nwidth: 0.03\nmass: [0.1, 0.2]\nclutter: [0, 1]\nwhen: world\n")
    found = load_cousins(str(tmp_path / "f.yaml"))
    assert found == CousinRange(
        str(tmp_path / "f.yaml"), ("capsule",), (0.03, 0.03), mass=(0.1, 0.2), clutter=(0, 1), when="world"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cousins": "others"}, "cousins: got others; available: none, twin, train, held-out"),
        ({"cousins": "no.yaml"}, "cousins: got no.yaml, which is not there"),
        ({"task": "peg_insert", "cousins": "train"}, "task with cousins: got peg_insert; available: lift, lift_to"),
        ({"task": "gym:a:B-v0", "cousins": "train"}, "got option cousins, expected an embedded task"),
        ({"cousins": "train", "robot": "so101"}, "robot of cousins: got so101, expected two fingers"),
        ({"cousins": "train", "two_way": True}, "--cousins: got them with --back-policy"),
    ],
)  # fmt: skip
def test_what_has_none_is_refused(options: dict, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        WorldConfig(**options).build(1)


def test_a_thing_that_no_gripper_takes_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"cousins wide: width: got 0\.07, expected at most 0\.06 m: the gripper of panda"
    ):
        replace(WIDE, width=(0.03, 0.07)).check(PANDA)
    replace(WIDE, width=(0.03, 0.06)).check(PANDA)


def test_a_run_has_the_content_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("width: 0.03\n")
    first = WorldConfig(cousins=str(path)).drawn()
    path.write_text("width: 0.04\n")
    second = WorldConfig(cousins=str(path)).drawn()
    assert first["cousins"] == second["cousins"] == str(path) and first["cousins_sha256"] != second["cousins_sha256"]
    assert WorldConfig().drawn() == {}
