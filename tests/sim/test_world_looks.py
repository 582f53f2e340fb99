"""Looks change pictures alone, within their bounds, and are those of (seed, start id, episode)."""

from __future__ import annotations

import colorsys
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from robolearn.core import BadInput
from sim.embedded.painter import RenderContext
from sim.embedded.visual_randomisation import (
    EDGE,
    PATTERNS,
    RANDOMISATIONS,
    Appearance,
    VisualRandomiser,
    draw_appearance,
)
from sim.embedded.world import MujocoWorlds
from sim.registry import make_env
from sim.tasks import TASKS


def worlds(looks: str, threads: int = 1, n: int = 3) -> MujocoWorlds:
    return MujocoWorlds(TASKS["lift"](), n, cameras=("front", "wrist"), image_size=40, looks=looks, threads=threads)


def played(env: MujocoWorlds, seed: int = 3) -> list[dict[str, np.ndarray]]:
    """Observations of a start, of a chunk, and of the next start."""
    actions = np.random.default_rng(0).uniform(-1, 1, (env.num_envs, 4, 7)).astype(np.float32)
    seen = [env.reset(seed=seed)[0], env.step_chunk(actions)[0], env.reset()[0]]
    return [{key: value.copy() for key, value in observation.items()} for observation in seen]


def shown(looks: str, threads: int = 1) -> list[dict[str, np.ndarray]]:
    """`played` in worlds of their own."""
    env = worlds(looks, threads)
    try:
        return played(env)
    finally:
        env.close()


@pytest.fixture
def env(request: pytest.FixtureRequest) -> Iterator[MujocoWorlds]:
    made = worlds(request.param)
    yield made
    made.close()


@pytest.mark.long
def test_numbers_and_physics_are_those_without_looks() -> None:
    for plain, dressed in zip(shown("none"), shown("wild"), strict=True):
        for key in ("proprio", "objects"):
            np.testing.assert_array_equal(plain[key], dressed[key])
        for key in ("images.front", "images.wrist"):
            assert (np.abs(plain[key].astype(int) - dressed[key]).mean(axis=(1, 2, 3)) > 5).all()


@pytest.mark.long
@pytest.mark.parametrize("env", ["wild"], indirect=True)
def test_a_look_is_that_of_its_episode_on_any_number_of_threads_and_after_a_restore(env: MujocoWorlds) -> None:
    first = played(env)
    for again in (shown("wild", threads=3), played(env)):
        for one, other in zip(first, again, strict=True):
            for key, value in one.items():
                np.testing.assert_array_equal(value, other[key])
    # A look lasts for an episode: the table behind a start is that behind the chunk, and another in the next.
    background = [observation["images.front"][:, -1, 20].astype(int) for observation in first]
    assert np.abs(background[0] - background[1]).max() <= 12
    assert np.abs(background[0] - background[2]).max() > 12
    env.reset(seed=3)
    kept, before = env.snapshot(), env._observation["images.front"].copy()
    env.reset(seed=9)
    assert np.any(env._observation["images.front"] != before)
    np.testing.assert_array_equal(env.restore(kept)["images.front"], before)


@pytest.mark.long
@pytest.mark.parametrize(("env", "name"), [("none", "mild"), ("none", "wild")], indirect=["env"])
def test_cameras_and_colours_stay_within_their_bounds(env: MujocoWorlds, name: str) -> None:
    config = RANDOMISATIONS[name]
    own, cube = Appearance.of(env.model), int(env.model.body("cube").id)
    moved, turned, hues = [], [], []
    fixed = [i for i in range(env.model.ncam) if env.model.cam_bodyid[i] == 0]
    for seed in range(200):
        look = draw_appearance(config, own, env.model, {cube}, np.random.default_rng(seed))
        moved.append(np.abs(look.cam_pos - own.cam_pos))
        for i in range(env.model.ncam):
            a, b = (Rotation.from_quat(np.roll(quat[i], -1)) for quat in (own.cam_quat, look.cam_quat))
            turned.append(np.degrees((a.inv() * b).magnitude()))
        geom = int(env.model.body_geomadr[cube])
        hue = colorsys.rgb_to_hsv(*look.geom_rgba[geom, :3])[0] - colorsys.rgb_to_hsv(*own.geom_rgba[geom, :3])[0]
        hues.append((hue + 0.5) % 1.0 - 0.5)
        assert look.geom_rgba.min() >= 0.0 and look.geom_rgba.max() <= 1.0 and 0.0 <= look.blur <= config.blur_px
        assert len(look.distractors) <= config.distractors
        for thing in look.distractors:
            assert abs(thing.position[1]) >= 0.3  # nowhere where a task puts things
    assert 0.9 * config.camera_m < np.max(moved) <= config.camera_m
    arm = [i for i in range(env.model.ncam) if i not in fixed]
    assert 0 < np.max(np.array(moved)[:, arm]) <= 0.2 * config.camera_m
    assert 0.9 * config.camera_deg < np.max(turned) <= config.camera_deg + 1e-6
    assert 0.8 * config.objects < np.max(np.abs(hues)) <= config.objects + 1e-3


@pytest.mark.parametrize("env", ["none"], indirect=True)
def test_a_picture_is_exposed_by_hand(env: MujocoWorlds) -> None:
    own = Appearance.of(env.model)
    picture = np.array([[[100, 100, 100], [200, 200, 200]]], np.uint8)
    Appearance(**{**vars(own), "gain": np.array([0.5, 1.0, 2.0])}).expose_and_blur(picture)
    assert picture.tolist() == [[[50, 100, 200], [100, 200, 255]]]


@pytest.mark.long
@pytest.mark.parametrize("env", ["none"], indirect=True)
def test_distractors_are_seen(env: MujocoWorlds) -> None:
    env.reset(seed=0)
    data, context = env.batch.get_data(0), RenderContext(env.model, (48, 48), fine=False)
    context.place(data)
    plain = context.draw(data, "front").astype(int)
    wild = draw_appearance(RANDOMISATIONS["wild"], Appearance.of(env.model), env.model, set(), np.random.default_rng(2))
    assert wild.distractors
    own = Appearance.of(env.model)
    seen = []
    for thing in wild.distractors:
        thing.position[:2] = 0.5, 0.3  # where the camera looks
        context.place(data, Appearance(**{**vars(own), "distractors": (thing,)}))
        picture = context.draw(data, "front")
        seen.append(int((np.abs(picture - plain).max(-1) > 20).sum()))
    context.close()
    assert min(seen) >= 1 and max(seen) < 100


def test_unknown_looks_are_refused() -> None:
    with pytest.raises(BadInput, match=r"looks: got wilder; available: none, mild, wild \(did you mean wild\?\)"):
        worlds("wilder")
    with pytest.raises(BadInput, match="task robosuite:Lift: got option looks, expected an embedded task"):
        make_env("robosuite:Lift", 1, looks="wild")


@pytest.mark.parametrize("env", ["none"], indirect=True)
def test_nothing_is_drawn_where_looks_do_not_differ(env: MujocoWorlds) -> None:
    randomiser = VisualRandomiser(env.model, RANDOMISATIONS["none"], 2, ("cube",))
    assert randomiser.appearance(0, (0, 0, 0)) is None


@pytest.mark.long
def test_table_and_floor_alone_have_patterns_as_often_as_asked() -> None:
    plain, dressed = worlds("mild", n=1), worlds("wild", n=1)
    try:
        assert plain.model.nmat == 0
        own, names = Appearance.of(dressed.model), [dressed.model.geom(i).name for i in range(dressed.model.ngeom)]
        assert (own.geom_matid == -1).all()
        wild = RANDOMISATIONS["wild"]
        seeds = [np.random.default_rng(seed) for seed in range(300)]
        drawn = np.stack([draw_appearance(wild, own, dressed.model, (), rng).geom_matid for rng in seeds])
        for i, name in enumerate(names):
            share = (drawn[:, i] >= 0).mean()
            assert abs(share - 0.7) < 0.1 if name in ("table", "floor") else share == 0.0, name
        table = names.index("table")
        assert set(drawn[:, table]) == {-1, *range(len(PATTERNS))}
    finally:
        plain.close()
        dressed.close()


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_joins_at_its_edges_and_varies(name: str) -> None:
    made = PATTERNS[name](np.random.default_rng(0))
    assert made.shape == (EDGE, EDGE) and made.std() > 0.08
    inside = max(np.abs(np.diff(made, axis=axis)).mean(axis=1 - axis).max() for axis in (0, 1))
    for one, other in ((made[0], made[-1]), (made[:, 0], made[:, -1])):
        assert np.abs(one - other).mean() <= inside + 0.05
