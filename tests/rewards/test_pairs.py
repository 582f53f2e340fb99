"""The objective of the progress critic: labels worked out by hand, and shares of what is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from robolearn.core import BadInput
from robolearn.rewards.pairs import PairSampler, done_label, most_of_a_failure, progress_between
from robolearn.rewards.settings import CriticConfig, other_sentences, things_of
from robolearn.rewards.shaping import Shaping, shaped_rewards
from robolearn.rewards.training import critic_loss

CONFIG = CriticConfig(batch=200, reversed_share=0.2, still_share=0.1, wrong_share=0.1, failure_share=0.3)


def sampler(config: CriticConfig = CONFIG) -> PairSampler:
    """Two successes of 11 and 21 frames, a failure of 30; one task among four sentences."""
    return PairSampler(
        config,
        np.array([0, 11, 32]),
        np.array([11, 21, 30]),
        np.array([True, True, False]),
        np.zeros(3, bool),
        np.zeros(3, np.int64),
        4,
    )


def test_progress_is_the_share_of_what_was_left() -> None:
    i, t, n = (np.array(v) for v in ([0, 5, 0, 10, 4], [10, 10, 3, 5, 4], [11] * 5))
    assert progress_between(i, t, n).tolist() == pytest.approx([1.0, 1.0, 0.3, -1.0, 0.0])
    assert progress_between(np.array([2]), np.array([6]), np.array([11]))[0] == pytest.approx(4 / 8)
    assert progress_between(np.array([6]), np.array([2]), np.array([11]))[0] == pytest.approx(-4 / 8)


def test_done_is_asked_at_the_end_and_well_before() -> None:
    label = done_label(np.arange(20), np.full(20, 20), np.zeros(20, bool), 0.1)
    assert label[:16].tolist() == [0.0] * 16 and label[19] == 1.0 and np.isnan(label[16:19]).all()
    short = done_label(np.array([6]), np.array([7]), np.array([False]), 0.1)
    assert short.tolist() == [1.0], "short ones have a last frame, too"


def test_with_the_final_observation_only_that_is_done() -> None:
    label = done_label(np.arange(40), np.full(40, 40), np.ones(40, bool), 0.1)
    assert label[:36].tolist() == [0.0] * 36 and np.isnan(label[36:39]).all() and label[39] == 1.0
    sure = done_label(np.arange(40), np.full(40, 40), np.ones(40, bool), 0.0)
    assert sure.tolist() == [0.0] * 39 + [1.0], "nothing unsure, and the last is done all the same"


def test_a_failure_stays_below_the_cap_and_the_pace_of_successes() -> None:
    assert most_of_a_failure(np.array([0, 4, 8, 20]), 17.0, 0.4).tolist() == pytest.approx([0.0, 0.25, 0.4, 0.4])


def test_a_batch_has_each_sort_in_its_share() -> None:
    pairs = sampler().draw(np.random.default_rng(0))
    failed = pairs.second >= 32
    assert len(pairs.first) == 200 and pairs.bound.sum() == 60 and (pairs.bound <= failed).all()
    begun = pairs.first[pairs.bound]
    assert np.isin(begun, [0, 11, 32]).all() and (pairs.done[pairs.bound] == 0.0).all()
    assert 0.1 < np.isin(begun, [0, 11]).mean() < 0.5, "from the starts of successes"
    assert (pairs.target < 0).sum() == 40, "reversed clips"
    assert ((pairs.first == pairs.second) & np.isnan(pairs.done) & ~pairs.bound).sum() >= 15, "stills"
    wrong = pairs.words != 0
    assert wrong.sum() == 20 and (pairs.target[wrong] == 0).all() and (pairs.done[wrong] == 0).all()
    forwards = ~failed & ~wrong & (pairs.target > 0)
    assert forwards.sum() == 60
    assert 0.3 < np.isin(pairs.first[forwards], [0, 11]).mean() < 0.9, "scoring compares with the first frame"
    assert (pairs.done[forwards] == 1).any()


def tasks(config: CriticConfig = CONFIG) -> PairSampler:
    """Of task 0 a success of 11 frames and a failure, of task 1 a success of 41 and a failure, of task 2 a failure;
    in turn, among six sentences."""
    return PairSampler(
        config,
        np.array([0, 30, 41, 71, 112]),
        np.array([30, 11, 30, 41, 30]),
        np.array([False, True, False, True, False]),
        np.ones(5, bool),
        np.array([0, 0, 1, 1, 2]),
        6,
    )


def test_starts_are_those_of_the_task_that_the_words_name() -> None:
    """Those of another task would be pictures that scoring never compares with."""
    pairs = tasks(replace(CONFIG, batch=2000)).draw(np.random.default_rng(0))
    begun, shown = (
        np.searchsorted([0, 30, 41, 71, 112], rows, side="right") - 1 for rows in (pairs.first, pairs.second)
    )
    swapped = begun != shown
    task = np.where(pairs.words < 3, pairs.words, np.array([0, 0, 1, 1, 2])[shown])  # other words: what is shown
    assert set(pairs.first[swapped & (task == 0)]) == {30} and set(pairs.first[swapped & (task == 1)]) == {71}
    assert set(pairs.first[swapped & (task == 2)]) == {30, 71}, "without successes of its own, those of all"


def test_a_failure_is_bounded_by_the_pace_of_its_own_task() -> None:
    pairs = tasks(replace(CONFIG, cap=0.99, batch=2000)).draw(np.random.default_rng(0))
    for start, pace in ((0, 10.0), (41, 40.0), (112, 25.0)):  # the last: no success of its own, (11 + 41) / 2 - 1
        own = pairs.bound & (pairs.second >= start) & (pairs.second < start + 30)
        assert own.sum() > 50
        assert pairs.target[own].tolist() == pytest.approx(np.minimum((pairs.second[own] - start) / pace, 0.99))


def test_one_task_is_drawn_as_ever() -> None:
    """The draws of runs that are to be gone on with, or made anew."""
    pairs = sampler().draw(np.random.default_rng(0))
    assert pairs.first[:6].tolist() == [24, 18, 11, 7, 5, 3]
    assert (pairs.first.sum(), pairs.second.sum(), pairs.words.sum()) == (3510, 5230, 39)


def test_without_failures_there_is_no_critic_unless_it_is_asked_for() -> None:
    arrays = (np.array([0]), np.array([11]), np.array([True]), np.ones(1, bool), np.zeros(1, np.int64), 2)
    with pytest.raises(BadInput, match="praises failures"):
        PairSampler(CONFIG, *arrays)
    pairs = PairSampler(replace(CONFIG, failure_share=0.0), *arrays).draw(np.random.default_rng(0))
    assert not pairs.bound.any()
    with pytest.raises(BadInput, match="no success"):
        PairSampler(
            CONFIG, np.array([0]), np.array([11]), np.array([False]), np.ones(1, bool), np.zeros(1, np.int64), 2
        )


def test_the_loss_of_a_failure_is_only_what_is_above_its_bound() -> None:
    pairs = sampler().draw(np.random.default_rng(1))
    target, bound = torch.from_numpy(pairs.target), torch.from_numpy(pairs.bound)
    nothing = torch.zeros(len(target), 1)

    def loss(c: torch.Tensor) -> float:
        odds = torch.where(torch.from_numpy(pairs.done) > 0.5, 50.0, -50.0)
        return float(critic_loss(lambda *_: (c, odds), nothing, nothing, nothing, pairs, 0.5)[0])

    assert loss(target) == pytest.approx(0.0, abs=1e-6)
    assert loss(torch.where(bound, target - 0.3, target)) == pytest.approx(0.0, abs=1e-6), "less is right as well"
    above = torch.where(bound, target + 0.3, target)
    assert loss(above) == pytest.approx(0.09 * 60 / 200, rel=1e-4)
    assert loss(-target) > 0.1, "the sign counts"


def test_potentials_telescope() -> None:
    """Σ γ^t r_t = [done] γ^(T−1) − Φ_start, whatever the progress was on the way; differences alone do not."""
    rng, gamma = np.random.default_rng(0), 0.9
    discount = gamma ** np.arange(12)
    done = np.arange(12) == 11
    kinds: tuple[tuple[Shaping, bool], ...] = (("shaped", True), ("delta", False))
    for kind, telescopes in kinds:
        sums = []
        for _ in range(5):
            progress = rng.random(12).astype(np.float32)
            reward = shaped_rewards(progress, done, start=0.2, gamma=gamma, ended=True, kind=kind)
            sums.append(float((discount * reward).sum()))
        wanted = gamma**11 - 0.2
        assert np.allclose(sums, wanted, atol=1e-5) is telescopes, (kind, sums)
    assert shaped_rewards(np.ones(3, np.float32), np.array([False, True, True]), kind="none").tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("task", "things"),
    [
        ("lift the cube", ["the cube"]),
        ("Put the cube on the green disc.", ["the cube", "the green disc"]),
        ("insert a peg into the tight hole", ["the peg", "the tight hole"]),
        ("wipe", []),
        ("the", []),
    ],
)
def test_other_sentences_are_of_the_same_things_too(task: str, things: list[str]) -> None:
    assert things_of(task) == things
    others = other_sentences([task])
    assert all(f"touch {thing}" in others for thing in things) and len(others) == 12 + 6 * len(things)


def test_a_task_is_not_another_one() -> None:
    others = other_sentences(["Touch the cube.", "open the drawer"])
    assert "touch the cube" not in others and "open the drawer" not in others
    assert "touch the drawer" in others and "push the cube to the left" in others and len(set(others)) == len(others)
