"""Potentials leave the best policy the best, by value iteration in small decision processes; raw differences do not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.rewards.shaping import Shaping, shaped_rewards

GAMMA = 0.95


def shaped(reward: NDArray, potential: NDArray, ends: NDArray[np.bool_], kind: Shaping) -> NDArray:
    """(S, A, S') of the rewards of transitions, with what `shaped_rewards` adds to each."""
    added = np.zeros((len(potential), len(potential)))
    for s, before in enumerate(potential):
        for then, after in enumerate(potential):
            one = shaped_rewards(np.array([after]), np.array([False]), start=before, gamma=GAMMA,
                                 ended=bool(ends[then]), kind=kind)  # fmt: skip
            added[s, then] = one.item()
    return reward + added[:, None, :]


def best(p: NDArray, reward: NDArray, ends: NDArray[np.bool_]) -> NDArray:
    """(S, A) values of the best policy: Q = Σ_s' p (r + γ max Q'), nothing after an end."""
    q = np.zeros(p.shape[:2])
    for _ in range(800):
        q = (p * (reward + GAMMA * np.where(ends, 0.0, q.max(1)))).sum(2)
    return q


@pytest.mark.long
def test_a_potential_moves_every_value_of_a_state_alike() -> None:
    """Q′ = Q − Φ(s), so the order of the actions stays, in fifty random processes with any potential."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.dirichlet(np.ones(6) * 0.3, size=(6, 3))
        ends = np.arange(6) == 5
        reward = np.where(rng.random((6, 3, 6)) < 0.1, rng.random((6, 3, 6)), 0.0)
        potential = rng.random(6)
        plain = best(p, reward, ends)[:5]
        moved = best(p, shaped(reward, potential, ends, "shaped"), ends)[:5]
        assert np.allclose(moved, plain - potential[:5, None], atol=1e-5)
        assert (moved.argmax(1) == plain.argmax(1)).all()
        assert np.allclose(best(p, shaped(reward, potential, ends, "none"), ends)[:5], plain)


def test_raw_differences_pay_for_going_to_and_fro() -> None:
    """Far (Φ = 0) and near (Φ = 0.9); who is near may try, which solves the task once in ten times and ends it.

    To try is worth 0.1 and to go back less. By raw differences to try is worth 0.1 · 1.1 − 0.9 · 0.9 = −0.7, and to go
    to and fro for ever −0.9 + γ 0.9 − γ² 0.9 … = −0.9 / (1 + γ) = −0.46: the task is never tried again.
    """
    far, near, solved, failed = range(4)
    potential, ends = np.array([0.0, 0.9, 1.0, 0.0]), np.array([False, False, True, True])
    p, reward = np.zeros((4, 2, 4)), np.zeros((4, 2, 4))
    p[far, :, near] = 1.0
    p[near, 0, [solved, failed]] = 0.1, 0.9
    p[near, 1, far] = 1.0
    p[[solved, failed], :, failed] = 1.0
    reward[near, 0, solved] = 1.0
    plain = best(p, reward, ends)
    assert np.allclose(plain[near], [0.1, GAMMA**2 * 0.1])
    potentials = best(p, shaped(reward, potential, ends, "shaped"), ends)
    assert np.allclose(potentials[near], plain[near] - 0.9, atol=1e-6)
    raw = best(p, shaped(reward, potential, ends, "delta"), ends)
    assert np.allclose(raw[near], [-0.7, -0.9 / (1 + GAMMA)], atol=1e-6)
    assert potentials[near].argmax() == plain[near].argmax() == 0 != raw[near].argmax()


def test_shares_are_of_what_was_left_or_of_what_was_there() -> None:
    """By hand: half of what was left, half of that, a third of it lost, all of it, nothing to lose, all at once."""
    progress = np.array([0.5, 0.75, 0.5, 0.0, 0.0, 1.0, 1.0], np.float32)
    done = np.array([False] * 5 + [True] * 2)
    made = shaped_rewards(progress, done, kind="share")
    assert made == pytest.approx([0.5, 0.5, -1 / 3, -1.0, 0.0, 1.0 + 1.0, 0.0], abs=1e-6)
    assert shaped_rewards(progress[1:2], done[:1], start=0.5, kind="share") == pytest.approx([0.5])


def test_shares_accumulate_to_the_progress() -> None:
    """VLAC's accumulation, step by step, of random progress."""
    progress = np.random.default_rng(0).random(200).astype(np.float32)
    v, back = 0.3, []
    for c in shaped_rewards(progress, np.zeros(200, bool), start=v, kind="share"):
        assert -1.0 <= c <= 1.0
        v = v + (1.0 - v) * c if c >= 0.0 else v * (1.0 + c)
        back.append(v)
    assert back == pytest.approx(progress, abs=1e-5)
