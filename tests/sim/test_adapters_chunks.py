"""Chunk semantics, guards and names on single worlds."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from robolearn.core import BadInput, NonFinite, RobolearnError
from sim.adapters import make_gym
from sim.bridge.far.facts import AdapterEnv, Facts, Spec
from sim.bridge.far.features import FeatureMap
from sim.bridge.far.gym_env import build, parse, square
from sim.bridge.far.world import ChunkWrapper, World, reported_success, start_seed
from sim.bridge.pools import EnvFactory

sys.path.insert(0, str(Path(__file__).parent))
Counter = importlib.import_module("counter_env").Counter
TASK = "gym:counter_env:Counter-v0"


def test_a_chunk_stops_where_the_episode_ends():
    env = ChunkWrapper(Counter(), execute_steps=4)
    assert env.action_space.shape == (4, 1)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(np.zeros((3, 1)))
    assert (reward, terminated, len(info["step_rewards"]), info["success"]) == (pytest.approx(0.3), False, 3, None)
    observation, reward, terminated, _, info = env.step(np.full((4, 1), 2.0))
    assert (reward, terminated, len(info["step_rewards"]), info["success"]) == (pytest.approx(1.1), True, 2, None)
    assert observation[1] == 5
    assert env.unwrapped.executed == [0, 0, 0, 2, 2]
    with pytest.raises(BadInput, match="Ta, Da"):
        env.step(np.zeros(1))


@pytest.mark.parametrize(
    ("tells", "end", "success"),
    [("", 1.0, None), ("", -1.0, None), ("success", 1.0, True), ("is_success", 0.5, False), ("late", 1.0, True)],
)
def test_success_is_what_the_env_reports_and_never_a_rewarded_termination(tells, end, success):
    env = ChunkWrapper(Counter(tells=tells, reward_at_end=end))
    env.reset(seed=0)
    assert env.step(np.zeros((9, 1)))[4]["success"] is success


def test_a_success_that_is_no_answer_is_named():
    nan = float("nan")
    assert [reported_success({"success": value}) for value in (True, 0, np.float32(1), np.array([0, 1]))] == [
        1,
        0,
        1,
        1,
    ]
    assert reported_success({"success": False, "is_success": np.False_}) is False
    assert reported_success({"reward": 1.0}) is None
    for info, line in (
        ({"success": nan}, "its info's success is nan, neither true nor false"),
        ({"is_success": np.array([1.0, nan])}, "its info's is_success is array"),
        ({"success": "False"}, "its info's success is 'False'"),
        ({"success": None}, "its info's success is None"),
        ({"success": True, "is_success": False}, "its info says success True and is_success False"),
    ):
        with pytest.raises(RobolearnError, match=line):
            reported_success(info)
    env = make_gym(TASK, 1, workers=0, kwargs={"tells": "contrary"})
    env.reset(seed=0)
    with pytest.raises(
        RobolearnError, match="world 0 of gym:counter_env:Counter-v0 failed: its info says success True"
    ):
        env.step_chunk(np.zeros((1, 5, 1), np.float32))


def test_a_world_resets_within_the_step_and_keeps_the_final_observation():
    world = World(build(TASK), index=0)
    start = world.reset(seed=7, start_id=0)["proprio"]
    outcome = world.chunk(np.zeros((8, 1), np.float32))
    assert len(outcome.rewards) == 5 and outcome.terminated and not outcome.truncated and outcome.success is None
    assert outcome.final is not None
    # zero is the middle of the env's bounds [-2, 6]
    np.testing.assert_allclose(outcome.final["proprio"], [start[0], 5, 2.0])
    assert outcome.observation["proprio"][1] == 0 and outcome.observation["proprio"][0] != start[0]


def test_the_starts_do_not_depend_on_how_long_the_episodes_last():
    def starts(first_chunk: int) -> list[float]:
        world = World(build(TASK), index=3)
        found = [world.reset(seed=1, start_id=3)["proprio"][0]]
        world.chunk(np.zeros((first_chunk, 1), np.float32))
        for _ in range(3):
            found.append(world.next_episode()["proprio"][0])
        return found

    assert starts(1) == starts(4)
    assert len({start_seed(s, w, k) for s in range(3) for w in range(3) for k in range(3)}) == 27


def test_a_non_finite_observation_truncates_at_the_last_finite_one():
    world = World(build(TASK, kwargs={"nan_at": 3}), index=0)
    world.reset(seed=0, start_id=0)
    outcome = world.chunk(np.zeros((5, 1), np.float32))
    assert outcome.truncated and not outcome.terminated and not outcome.success
    assert len(outcome.rewards) == 3 and sum(outcome.rewards) == pytest.approx(0.2)
    assert outcome.final is not None and outcome.final["proprio"][1] == 2
    assert outcome.observation["proprio"][1] == 0
    assert "non-finite proprio" in outcome.warning


class Showing(AdapterEnv):
    """Shows `values` from its first step on."""

    def __init__(self, values: list[float]) -> None:
        super().__init__(Facts({"proprio": Spec((len(values),))}, 1, 10.0, "showing", "nothing", 0))
        self.values = np.array(values, np.float32)

    def reset(self, *, seed=None, options=None):
        return {"proprio": np.zeros_like(self.values)}, {}

    def step(self, action):
        return {"proprio": self.values}, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("values", "sound"),
    [
        ([3e38, -3e38, 1.0], True),  # finite numbers whose squares are not
        ([np.inf, 0.0, 0.0], False),
        ([0.0, np.inf, -np.inf], False),
        ([1.0, 2.0, np.nan], False),
    ],
)
def test_what_is_finite_is_no_matter_of_its_size(values: list[float], sound: bool):
    world = World(Showing(values), index=0)
    world.reset(seed=0, start_id=0)
    outcome = world.chunk(np.zeros((1, 1), np.float32))
    assert outcome.truncated is not sound
    assert outcome.observation["proprio"].tolist() == (np.float32(values).tolist() if sound else [0.0, 0.0, 0.0])


def test_a_start_that_is_not_finite_is_an_error():
    world = World(build(TASK, kwargs={"nan_at": 0}), index=0)
    with pytest.raises(NonFinite, match="first observation"):
        world.reset(seed=0, start_id=0)


def test_facts_of_an_env():
    facts = build(TASK).facts
    assert facts.control_hz == 10 and facts.max_episode_steps == 20
    assert facts.observation["proprio"].shape == (3,) and facts.action == 1
    assert facts.notes == ("observations of float64 are kept as float32",)
    assert Facts.from_json(facts.to_json()) == facts
    assert build(TASK, max_episode_steps=3).facts.max_episode_steps == 3
    with pytest.raises(BadInput, match="env arguments"):
        EnvFactory("a:b", {"x": object()}).to_json()


def test_a_picture_is_resized_as_opencv_does_by_area():
    import cv2

    rng = np.random.default_rng(0)
    for shape, edge in (((48, 64, 3), 16), ((90, 60, 3), 17), ((100, 100, 4), 84), ((20, 20, 3), 20)):
        picture = rng.integers(0, 256, shape, np.uint8)
        cut = min(shape[:2])
        top, left = (shape[0] - cut) // 2, (shape[1] - cut) // 2
        middle = np.ascontiguousarray(picture[top : top + cut, left : left + cut, :3])
        theirs = cv2.resize(middle, (edge, edge), interpolation=cv2.INTER_AREA)
        assert np.abs(square(picture, edge).astype(int) - theirs).max() <= 1  # they round in between
    np.testing.assert_array_equal(
        square(np.arange(12, dtype=np.uint8).reshape(2, 2, 3), 4)[::2, ::2].ravel(), np.arange(12)
    )


def test_observations_get_names():
    box = gymnasium.spaces.Box
    space = gymnasium.spaces.Dict(
        {
            "observation": box(-1, 1, (2,), np.float64),
            "achieved_goal": box(-1, 1, (3,), np.float64),
            "desired_goal": box(-1, 1, (3,), np.float64),
            "pixels": gymnasium.spaces.Dict({"front": box(0, 255, (4, 5, 3), np.uint8)}),
        }
    )
    features = FeatureMap(space, "t")
    assert {key: spec.shape for key, spec in features.specs.items()} == {
        "images.front": (4, 5, 3),
        "proprio": (2,),
        "objects": (6,),
    }
    assert features.specs["objects"].names[0] == "achieved_goal.0"
    sample = space.sample()
    named = features(sample)
    expected = np.concatenate([sample["achieved_goal"], sample["desired_goal"]])
    np.testing.assert_allclose(named["objects"], expected, rtol=1e-6)
    np.testing.assert_array_equal(named["images.front"], sample["pixels"]["front"])
    with pytest.raises(RobolearnError, match=r"'observation' has the shape \(3,\), its space says \(2,\)"):
        features(sample | {"observation": np.zeros(3)})
    left_and_right = {side: gymnasium.spaces.Dict({"rgb": box(0, 255, (4, 5, 3), np.uint8)}) for side in "lr"}
    with pytest.raises(BadInput, match="two images 'rgb'"):
        FeatureMap(gymnasium.spaces.Dict(left_and_right), "t")
    with pytest.raises(BadInput, match="'mode' of t: got Discrete"):
        FeatureMap(gymnasium.spaces.Dict({"mode": gymnasium.spaces.Discrete(3)}), "t")


def test_an_observation_that_is_not_as_declared_is_named():
    """Each of these would be read as other numbers than the env means."""
    box, dictionary = gymnasium.spaces.Box, gymnasium.spaces.Dict
    parts = dictionary({"a": box(-1, 1, (2,)), "b": dictionary({"c": box(-1, 1, (3,))})})
    picture = box(0, 255, (4, 4, 3), np.uint8)
    cases = [
        (box(-1, 1, (2, 3)), np.zeros((3, 2)), "its observation has the shape (3, 2), its space says (2, 3)"),
        (parts, {"a": np.zeros(3), "b": {"c": np.zeros(2)}}, "'a' has the shape (3,), its space says (2,)"),
        (parts, {"a": np.zeros(2), "b": {}}, "observation 'b.c' is missing"),
        (parts, np.zeros(5), "observation 'a' is missing"),
        (dictionary({"seen": picture}), {"seen": np.full((4, 4, 3), 0.9)}, "'seen' is a picture of float64, its space"),
        (picture, np.full((4, 4, 3), np.nan, np.float32), "its observation is a picture of float32, its space says u"),
        (picture, np.full((4, 4, 3), 300), "its observation is a picture of int64, its space says uint8"),
    ]
    for space, observation, line in cases:
        with pytest.raises(RobolearnError, match=re.escape(line)):
            FeatureMap(space, "t")(observation)
    assert FeatureMap(parts, "t")({"b": {"c": [1, 2, 3]}, "a": [4, 5]})["proprio"].tolist() == [4, 5, 1, 2, 3]


def test_bad_tasks_name_what_there_is(tmp_path, monkeypatch):
    for name in ("gym:Reach-v0", "gym::Reach-v0", "lift"):
        with pytest.raises(BadInput, match="gym:<module>:<Id-v0>"):
            parse(name)
    with pytest.raises(BadInput, match="did you mean Pendulum-v1"):
        make_gym("gym:gymnasium:Pendulam-v1", 1)
    with pytest.raises(BadInput, match="continuous actions"):
        make_gym("gym:gymnasium:CartPole-v1", 1)
    with pytest.raises(BadInput, match="at least 1"):
        make_gym("gym:gymnasium:Pendulum-v1", 0)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_file.py").write_text("import a_library_nobody_has\n")
    (tmp_path / "broken_file.py").write_text("1 / 0\n")
    with pytest.raises(BadInput, match="Did you mean my_file"):
        make_gym("gym:my_fale:X-v0", 1)
    with pytest.raises(BadInput, match="needs 'a_library_nobody_has'"):
        make_gym("gym:my_file:X-v0", 1)
    with pytest.raises(BadInput, match="ZeroDivisionError while importing"):
        make_gym("gym:broken_file:X-v0", 1)


def test_unbounded_actions_are_refused():
    class Unbounded(Counter):
        def __init__(self):
            super().__init__()
            self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)

    gymnasium.register("Unbounded-v0", entry_point=Unbounded, max_episode_steps=9)
    try:
        with pytest.raises(BadInput, match="finite bounds"):
            make_gym("gym:gymnasium:Unbounded-v0", 1)
    finally:
        del gymnasium.registry["Unbounded-v0"]
