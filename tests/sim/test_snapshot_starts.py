"""Episodes that begin along demonstrations: judged by what was recorded of these, and by worlds without them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.core import Episode
from sim.embedded.snapshot_starts import SnapshotWorlds, retrace
from sim.experts import make_expert
from sim.registry import WorldConfig

SEED, N = 3, 3
KEYS = [(SEED, w, 0) for w in range(N)]


def worlds(n: int = N, **options: object) -> SnapshotWorlds:
    made = WorldConfig("lift", begin_along=True, threads=1, **options).build(n)  # type: ignore[arg-type]
    assert isinstance(made, SnapshotWorlds)
    return made


def recorded(dynamics: str = "none") -> list[Episode]:
    """The first episodes of N plain worlds by the expert."""
    env = WorldConfig("lift", threads=1, dynamics=dynamics).build(N)
    expert = make_expert("lift", env.interface, N, "expert", 0)
    observation, _ = env.reset(seed=SEED)
    expert.reset(np.ones(N, bool))
    going, steps = np.ones(N, bool), [[] for _ in range(N)]
    success = np.zeros(N, bool)
    while going.any():
        action = expert.command(observation)
        for w in np.flatnonzero(going):
            steps[w].append(({key: value[w].copy() for key, value in observation.items()}, action[w].copy()))
        observation, _, terminated, truncated, infos = env.step(action, going)
        success |= going & infos["success"]
        going &= ~(terminated | truncated)
    return [
        Episode({key: np.stack([o[key] for o, _ in one]) for key in one[0][0]}, np.stack([a for _, a in one]),
                np.zeros(len(one), np.float32), bool(success[w]), True, False, "lift")
        for w, one in enumerate(steps)
    ]  # fmt: skip


def along(dynamics: str = "none", low: float = 0.5, high: float = 0.5, share: float = 1.0) -> SnapshotWorlds:
    env = worlds(dynamics=dynamics)
    states, differences = retrace(env, KEYS, recorded(dynamics))
    assert len(states) == N and not differences
    env.demonstrations = states
    env.begin_along(share, low, high)
    return env


def masses(env: Any) -> NDArray:
    """(N, bodies) [kg]"""
    return np.stack([env.batch.get_model(w).body_mass for w in range(N)])


@pytest.mark.long
@pytest.mark.parametrize("drawn", [False, True])
def test_the_rest_of_a_demonstration_leads_from_its_middle_to_its_end_bit_for_bit(drawn: bool, tmp_path: Path) -> None:
    dynamics = "none"
    if drawn:  # all but noise and jitter, which go by the clock
        parameters = {"gain": {"uniform": [0.8, 1.2]}, "payload": {"uniform": [0.0, 0.3]}, "backlash": 0.004,
                      "command_delay": {"uniform": [0.01, 0.04]}, "observation_delay": 0.03}  # fmt: skip
        (tmp_path / "arm.json").write_text(json.dumps({"parameters": parameters}))
        dynamics = str(tmp_path / "arm.json")
    env, demonstrations = along(dynamics), recorded(dynamics)
    observation, _ = env.reset(seed=11)
    chosen, middles = [], []
    for w in range(N):
        found = [e for e in demonstrations
                 if (e.observation["objects"][int(0.5 * len(e))] == observation["objects"][w]).all()]  # fmt: skip
        assert len(found) == 1, "each world begins at the middle of a demonstration"
        chosen.append(found[0])
        middles.append(int(0.5 * len(found[0])))
    for t in range(64):
        going = np.array([m + t < len(e) for m, e in zip(middles, chosen, strict=True)])
        if not going.any():
            break
        for w in np.flatnonzero(going):
            for key in ("proprio", "objects"):
                np.testing.assert_array_equal(observation[key][w], chosen[w].observation[key][middles[w] + t])
        actions = np.stack([e.action[min(m + t, len(e) - 1)] for m, e in zip(middles, chosen, strict=True)])
        observation, _, terminated, _, infos = env.step(actions, going)
        last = going & np.array([m + t + 1 == len(e) for m, e in zip(middles, chosen, strict=True)])
        np.testing.assert_array_equal(terminated, last)
        assert infos["success"][last].all() and env.ended_along[last].all()


@pytest.mark.long
def test_frames_lie_within_the_window_and_starts_of_the_task_are_those_of_plain_worlds() -> None:
    env = along(low=0.4, high=0.8, share=0.5)
    plain = WorldConfig("lift", threads=1).build(N)
    plain.reset(seed=SEED)
    theirs, kinds, frames = masses(plain), [], []
    for seed in range(20):
        seen, own = env.reset(seed=seed)[0], plain.reset(seed=seed)[0]
        for w in range(N):
            key = tuple(env.snapshot()["along"][w])
            kinds.append(key != (-1, -1, -1))
            if not kinds[-1]:
                np.testing.assert_array_equal(seen["objects"][w], own["objects"][w])
                np.testing.assert_array_equal(seen["proprio"][w], own["proprio"][w])
                continue
            states = env.demonstrations[KEYS.index(key)]  # type: ignore[arg-type]
            frame = np.flatnonzero((states.state == env.batch.state[w]).all(1))
            frames.append(int(frame[0]) / len(states))
            np.testing.assert_array_equal(masses(env)[w], theirs[KEYS.index(key)])  # type: ignore[arg-type]
    assert 15 <= sum(kinds) <= 45  # of 60, a half
    assert 0.38 < min(frames) < 0.5 and 0.7 < max(frames) < 0.8
    assert not env.snapshot()["elapsed"].any(), "it has the whole time limit"


def test_without_a_share_every_episode_is_a_plain_world_s() -> None:
    env, plain = worlds(), WorldConfig("lift", threads=1).build(N)
    for one in (env, plain):
        one.reset(seed=5)
    for _ in range(70):
        action = np.full((N, env.interface.action.size), 0.3, np.float32)
        a, b = env.step(action), plain.step(action)
        np.testing.assert_array_equal(a[0]["objects"], b[0]["objects"])
    assert not env.ended_along.any()


@pytest.mark.long
def test_worlds_go_on_from_a_snapshot_along_a_demonstration_bit_for_bit() -> None:
    env, other = along(share=0.7, low=0.2, high=0.9), worlds()
    env.reset(seed=1)
    kept = env.snapshot()
    other.demonstrations = env.demonstrations
    other.begin_along(0.7, 0.2, 0.9)
    other.restore(kept)
    action = np.full((N, env.interface.action.size), -0.4, np.float32)
    for _ in range(66):  # into the next episodes
        a, b = env.step(action), other.step(action)
        np.testing.assert_array_equal(a[0]["proprio"], b[0]["proprio"])
        np.testing.assert_array_equal(env.ended_along, other.ended_along)
    np.testing.assert_array_equal(env.batch.state, other.batch.state)
    np.testing.assert_array_equal(masses(env), masses(other))


@pytest.mark.long
def test_what_does_not_come_out_as_recorded_is_left_out_with_its_difference() -> None:
    episodes = recorded()
    turned = episodes[0].action.copy()
    turned[5] *= -1.0
    late = {key: value.copy() for key, value in episodes[1].observation.items()}
    late["objects"][7, 0] += 0.002
    changed = [replace(episodes[0], action=turned), replace(episodes[1], observation=late), episodes[2]]
    states, differences = retrace(worlds(), KEYS, changed)
    assert [one.key for one in states] == [KEYS[2]] and len(states[0]) == len(episodes[2])
    assert len(differences) == 2 and "at frame" in differences[0] and "objects is 0.002 away at frame 7" in differences
    states, differences = retrace(worlds(2), [(SEED + 1, w, 0) for w in range(N)], episodes)
    assert not states and differences[0] == "demonstration 0 begins at no start of its seed"
    short = replace(episodes[0], action=episodes[0].action[:-1])
    assert retrace(worlds(1), KEYS, [short])[1] == ["it is not solved again"]
