"""Windows of several sets: how many come from each, that none is left out, and the statistics of what is drawn."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robolearn.core import ArraySpec, BadInput
from robolearn.data import Dataset, EpisodeWriter, Windows
from robolearn.data.mixture import Mixture, check_alike, drawn_statistics, shares_of


@pytest.fixture
def sets(tmp_path: Path, interface, episode) -> list[Dataset]:
    """Episodes 0, 1 (of 5 and 7 frames) and 10, 11, 12 (of 3, 4 and 6): the first number of `proprio` names them."""
    opened = []
    for name, lengths in (("a", {0: 5, 1: 7}), ("b", {10: 3, 11: 4, 12: 6})):
        with EpisodeWriter(tmp_path / name, interface) as writer:
            for number, length in lengths.items():
                own = episode(number, length)
                for t in range(length):
                    writer.add({key: values[t] for key, values in own.observation.items()}, own.action[t])
                writer.end(success=True, terminated=True, task="lift")
        opened.append(Dataset.open(tmp_path / name))
    return opened


def drawn(mixture: Mixture, seed: int, epochs: int) -> list[list[tuple[int, int]]]:
    """Of each epoch, (episode, step) of every window, by what is in it."""
    found = []
    for epoch in range(epochs):
        batch = mixture.gather(mixture.order(seed, epoch))
        assert torch.equal(
            batch.action[:, 0], batch.observation["proprio"][:, -1, :2] / 1000
        )  # one and the same window
        found.append([(int(e), int(t)) for e, t, _ in batch.observation["proprio"][:, -1].tolist()])
    return found


def test_shares_are_exact_and_no_window_is_left_out(sets):
    mixture = Mixture([Windows(dataset, 2, 3) for dataset in sets], [0.8, 0.2])
    epochs = drawn(mixture, 3, 13)
    for windows in epochs:
        assert len(windows) == 25 and sum(e < 10 for e, _ in windows) == 20  # 0.8 · (12 + 13)
        assert [e < 10 for e, _ in windows] != sorted((e < 10 for e, _ in windows), reverse=True)  # mixed
    counts = Counter(window for windows in epochs for window in windows)
    # 260 draws of 12 windows, 65 of 13: every window as often as any other of its set, give or take one.
    assert {n for (e, _), n in counts.items() if e < 10} == {21, 22} and len(counts) == 25
    assert {n for (e, _), n in counts.items() if e >= 10} == {5}
    assert drawn(mixture, 3, 2) == epochs[:2] != drawn(mixture, 4, 2)


def test_without_a_mix_an_epoch_is_every_window_once(sets):
    shares = shares_of(None, sets)
    assert shares == [12 / 25, 13 / 25]
    (windows,) = drawn(Mixture([Windows(dataset, 1, 1) for dataset in sets], shares), 0, 1)
    assert len(set(windows)) == len(windows) == 25


def test_weights_of_episodes_hold_within_a_set(sets):
    parts = [Windows(sets[0], 1, 1, weights=[0.0, 1.0]), Windows(sets[1], 1, 1, weights=[1.0, 0.0, 3.0])]
    counts = Counter(e for windows in drawn(Mixture(parts, [0.4, 0.6]), 0, 400) for e, _ in windows)
    assert set(counts) == {1, 10, 12} and counts[1] == 4000  # 0.4 · 25 · 400
    assert counts[12] / counts[10] == pytest.approx(3 * 6 / 3, rel=0.1)


def test_a_share_of_nothing(sets):
    (windows,) = drawn(Mixture([Windows(dataset, 1, 1) for dataset in sets], shares_of([0, 2], sets)), 0, 1)
    assert len(windows) == 25 and {e for e, _ in windows} == {10, 11, 12}


def test_windows_keep_their_padding(sets):
    mixture = Mixture([Windows(dataset, 2, 4) for dataset in sets], [0.5, 0.5])
    batch = mixture.gather(torch.tensor([12, 0, 11, 24]))  # first of b, first and last of a, last of b
    assert batch.observation["proprio"][:, -1, 0].tolist() == [10, 0, 1, 12]
    assert batch.observation_is_pad.tolist() == [[True, False], [True, False], [False, False], [False, False]]
    assert batch.action_is_pad.sum(1).tolist() == [1, 0, 3, 3] and len(batch) == 4


@pytest.mark.parametrize("weights", [None, ([2.0, 1.0], [1.0, 0.0, 5.0])])
def test_statistics_are_those_of_what_is_drawn(sets, weights):
    chosen, shares = [[0, 1], [0, 1, 2]], [0.3, 0.7]
    own = [None, None] if weights is None else list(weights)
    stats = drawn_statistics(sets, chosen, shares, own)
    # By another way: every frame with its probability.
    probability, frames = [], {"proprio": [], "objects": [], "action": []}
    for dataset, share, weight in zip(sets, shares, own, strict=True):
        each = np.repeat([1.0] * dataset.episodes if weight is None else weight, dataset.lengths)
        probability.append(share * each / each.sum())
        for key in frames:
            frames[key].append({**dataset.observation, "action": dataset.action}[key].astype(np.float64))
    p = np.concatenate(probability)[:, None]
    for key, arrays in frames.items():
        all_frames = np.concatenate(arrays)
        mean = (p * all_frames).sum(0)
        np.testing.assert_allclose(stats[key]["mean"], mean)
        np.testing.assert_allclose(stats[key]["std"], np.sqrt((p * (all_frames - mean) ** 2).sum(0)))
        np.testing.assert_array_equal(stats[key]["max"], all_frames[p[:, 0] > 0].max(0))
        np.testing.assert_array_equal(stats[key]["min"], all_frames[p[:, 0] > 0].min(0))


def test_statistics_of_vectors_with_more_axes(tmp_path, interface):
    matrix = replace(interface, observation={"proprio": ArraySpec((2, 2)), "force": ArraySpec(())})
    with EpisodeWriter(tmp_path / "a", matrix) as writer:
        for e in range(2):
            for t in range(3):
                writer.add({"proprio": np.full((2, 2), 3 * e + t), "force": np.float32(e)}, np.zeros(2))
            writer.end(success=True, terminated=True, task="lift")
    dataset = Dataset.open(tmp_path / "a")
    stats = drawn_statistics([dataset, dataset], [[0], [1]], [0.25, 0.75], [None, None])
    assert stats["proprio"]["mean"].tolist() == [[3.25, 3.25], [3.25, 3.25]]  # 0.25 · 1 + 0.75 · 4
    assert stats["force"]["mean"].shape == () and float(stats["force"]["mean"]) == 0.75


@pytest.mark.long
@pytest.mark.parametrize("mix", [[1.0], [1.0, 2.0, 3.0], [1.0, -1.0], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_mixes_that_are_none(sets, mix):
    with pytest.raises(BadInput, match=r"--mix: got .*, expected"):
        shares_of(mix, sets)


def test_sets_that_do_not_fit_are_refused(sets):
    a, b = sets
    check_alike([a, b])
    more = {**b.interface.observation, "touch": ArraySpec((1,))}
    check_alike([a, replace(b, interface=replace(b.interface, observation=more))])
    for change, says in (
        ({"control_hz": 50.0}, "control rate: got 50.0 Hz, expected 20.0 Hz"),
        ({"embodiment": "ur5e"}, "the other one was made for panda, this is ur5e"),
        ({"action_kind": "joint_position"}, "for actions of kind tcp_delta, this has joint_position"),
        ({"observation": {"proprio": ArraySpec((3,))}}, "no 'objects', expected objects; available: proprio"),
        ({"observation": {**more, "proprio": ArraySpec((4,))}}, "observation 'proprio'"),
    ):
        with pytest.raises(BadInput, match=says):
            check_alike([a, replace(b, interface=replace(b.interface, **change))])


def test_quantiles_are_those_of_all_frames_and_not_of_the_episode_with_a_wild_one(sets, tmp_path, interface, episode):
    wild = episode(20, 9)
    with EpisodeWriter(tmp_path / "wild", interface) as writer:
        for t in range(9):
            seen = {key: values[t] for key, values in wild.observation.items()}
            writer.add({**seen, "proprio": np.full(3, -9999.0 if t == 4 else t)}, wild.action[t])
        writer.end(success=True, terminated=True, task="lift")
    datasets = [*sets, Dataset.open(tmp_path / "wild")]
    every = [range(dataset.episodes) for dataset in datasets]
    stats = drawn_statistics(datasets, every, shares_of(None, datasets), [None] * 3)  # each frame as often as any other
    for key in ("proprio", "objects", "action"):
        frames = [dataset.action if key == "action" else dataset.observation[key] for dataset in datasets]
        for name, q in (("q01", 0.01), ("q10", 0.1), ("q50", 0.5), ("q99", 0.99)):
            expected = np.quantile(np.concatenate(frames).astype(np.float64), q, axis=0)
            np.testing.assert_allclose(stats[key][name], expected, atol=1e-9)
    assert stats["proprio"]["q10"][0] >= 0.0 > stats["proprio"]["min"][0]
