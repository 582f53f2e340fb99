"""The adversary: its quantal response and its curriculum by hand, what it counts, and a bandit that it must find."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.rl.adversary import Adversary, AdversaryConfig


class PushedStandIn:
    """Keeps what it is asked for."""

    def __init__(self, pushes: int) -> None:
        self.pushes, self.ended_push = pushes, np.zeros(0, np.int64)
        self.probabilities, self.force = np.zeros(pushes), math.nan
        self.strongest = 50.0

    def push(self, probabilities: np.ndarray, force: float) -> None:
        self.probabilities, self.force = probabilities, force


def made(pushes: int = 2, **settings: Any) -> tuple[Adversary, PushedStandIn]:
    env = PushedStandIn(pushes)
    return AdversaryConfig(**{"adversary": "quantal", **settings}).build(env), env


def ended(adversary: Adversary, env: PushedStandIn, push: list[int], solved: list[bool]) -> np.ndarray:
    env.ended_push = np.array(push)
    every = np.ones(len(push), bool)
    turn: Any = SimpleNamespace(worlds=every, ended=every, solved=np.array(solved))
    return adversary.own(turn)


def test_the_response_is_the_softmax_of_failure_at_the_temperature_of_the_strength() -> None:
    adversary, env = made(adversary_temperature=0.25)
    adversary.schedule(0.0)
    np.testing.assert_allclose(env.probabilities, [0.375, 0.375])
    assert env.force == 0.0, "it begins with nothing"
    adversary.strength = 0.5
    ended(adversary, env, [0] * 8 + [1] * 8, [True] * 6 + [False] * 2 + [True] * 2 + [False] * 6)
    adversary.schedule(0.1)  # 8 of 16 solved: between the two thresholds
    assert adversary.strength == 0.5 and env.force == 20.0
    v = [(6 + 2 * 0.5) / 10, (2 + 2 * 0.5) / 10]
    odds = math.exp(0.5 * (v[0] - v[1]) / 0.25)
    np.testing.assert_allclose(env.probabilities, 0.75 * np.array([1, odds]) / (1 + odds))


def test_earlier_iterations_count_nine_tenths() -> None:
    adversary, env = made(adversary_temperature=1.0)
    adversary.strength = 1.0
    ended(adversary, env, [0] * 10, [True] * 4 + [False] * 6)
    adversary.schedule(0.0)
    ended(adversary, env, [0] * 2 + [1] * 2, [True, False, False, True])
    adversary.schedule(0.0)
    whole = (0.9 * 4 + 2) / (0.9 * 10 + 4)
    v = np.array([(0.9 * 4 + 1 + 2 * whole) / (0.9 * 10 + 2 + 2), (1 + 2 * whole) / 4])
    np.testing.assert_allclose(env.probabilities, 0.75 * np.exp(-v) / np.exp(-v).sum())


@pytest.mark.parametrize(("solved", "strengths"), [(6, [0.05, 0.1]), (5, [0.0, 0.0]), (2, [0.0, 0.0])])
def test_strength_follows_success_under_pushes_alone(solved: int, strengths: list[float]) -> None:
    adversary, env = made()
    for expected in strengths:
        own = ended(adversary, env, [0] * 10 + [-1] * 90, [True] * solved + [False] * (10 - solved) + [True] * 90)
        assert own.tolist() == [False] * 10 + [True] * 90
        found = adversary.metrics(10)
        assert found["pushed_success"] == solved / 10 and found["pushed_episodes"] == 10.0
        adversary.schedule(0.0)
        assert adversary.strength == pytest.approx(expected)
    adversary.strength = 0.5
    ended(adversary, env, [1] * 10, [True] * 2 + [False] * 8)
    adversary.schedule(0.0)
    assert adversary.strength == pytest.approx(0.45)
    adversary.schedule(0.0)
    assert adversary.strength == pytest.approx(0.45), "nothing has ended since"


def test_a_force_that_the_worlds_do_not_take_is_refused_before_anything_learns() -> None:
    made(adversary_force=50.0)
    with pytest.raises(BadInput, match=r"--adversary-force: got 51, expected at most 50 N"):
        made(adversary_force=51.0)


def test_the_weak_side_of_a_policy_is_found_and_random_pushes_stay_random() -> None:
    weak, rng = 5, np.random.default_rng(0)
    for kind in ("quantal", "random"):
        adversary, env = made(8, adversary=kind, adversary_temperature=0.1)
        for _ in range(60):
            adversary.schedule(0.0)
            edges = np.cumsum(env.probabilities)
            push = np.searchsorted(edges, rng.random(64), side="right")
            push = np.where(push < 8, push, -1)
            force = adversary.strength
            ended(adversary, env, push.tolist(), [bool(k != weak or rng.random() > force) for k in push])
        assert env.probabilities.sum() == pytest.approx(0.75)
        if kind == "quantal":
            assert env.probabilities.argmax() == weak and env.probabilities[weak] > 0.3
            assert 0.3 < adversary.strength < 1.0, "it stays at what the policy bears"
        else:
            np.testing.assert_allclose(env.probabilities, 0.75 / 8)
            assert adversary.strength == 1.0


def test_it_goes_on_from_its_state() -> None:
    adversary, env = made()
    adversary.strength = 0.3
    ended(adversary, env, [0, 1, 1], [True, False, True])
    adversary.schedule(0.0)
    ended(adversary, env, [1], [False])
    other, theirs = made()
    other.load_state(adversary.state())
    for one in (adversary, other):
        one.schedule(0.5)
    np.testing.assert_array_equal(env.probabilities, theirs.probabilities)
    assert env.force == theirs.force and other.strength == adversary.strength


@pytest.mark.parametrize("name", ["adversary_force", "adversary_temperature"])
def test_numbers_that_make_no_sense_are_refused(name: str) -> None:
    for value in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(BadInput, match=f"--{name.replace('_', '-')}: got"):
            AdversaryConfig(**{name: value})
