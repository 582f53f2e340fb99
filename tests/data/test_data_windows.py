"""Training windows: padding by hand, order by seed."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from robolearn.core import BadInput
from robolearn.data import Dataset, EpisodeWriter, Windows


@pytest.fixture
def dataset(tmp_path, interface, episode):
    """Lengths 4, 2, 6; proprio[t] = (e, t, -t); action[t] = (e, t) / 1000."""
    with EpisodeWriter(tmp_path / "set", interface) as w:
        w.write_all([episode(0, 4), episode(1, 2), episode(2, 6)])
    return Dataset.open(tmp_path / "set")


def steps(batch):
    """(observed steps, their pad, action steps, their pad) of the first window."""
    action = (batch.action[0, :, 1] * 1000).round().int().tolist()
    seen = batch.observation["proprio"][0, :, 1].int().tolist()
    return seen, batch.observation_is_pad[0].tolist(), action, batch.action_is_pad[0].tolist()


def test_padding_by_hand(dataset):
    windows = Windows(dataset, To=3, Tp=4)
    assert len(windows) == 12
    t, f = True, False

    def at(i):
        return steps(windows.gather(torch.tensor([i])))

    assert at(0) == ([0, 0, 0], [t, t, f], [0, 1, 2, 3], [f, f, f, f])
    assert at(1) == ([0, 0, 1], [t, f, f], [1, 2, 3, 3], [f, f, f, t])
    assert at(3) == ([1, 2, 3], [f, f, f], [3, 3, 3, 3], [f, t, t, t])
    assert at(4) == ([0, 0, 0], [t, t, f], [0, 1, 1, 1], [f, f, t, t])
    assert at(11) == ([3, 4, 5], [f, f, f], [5, 5, 5, 5], [f, t, t, t])


def test_a_window_stays_in_its_episode(dataset):
    batch = Windows(dataset, To=5, Tp=9).gather(torch.arange(12))
    own = torch.tensor([0] * 4 + [1] * 2 + [2] * 6)
    assert (batch.observation["proprio"][:, :, 0] == own[:, None]).all()
    assert ((batch.action[:, :, 0] * 1000).round() == own[:, None]).all()
    assert batch.observation["objects"].shape == (12, 5, 2) and batch.action.shape == (12, 9, 2)
    assert batch.action.dtype == torch.float32 and batch.action_is_pad.dtype == torch.bool
    assert not batch.action_is_pad[:, 0].any() and not batch.observation_is_pad[:, -1].any()


def test_chosen_episodes(dataset):
    windows = Windows(dataset, 1, 2, episodes=[2, 0])
    assert len(windows) == 10
    seen = windows.gather(torch.arange(10)).observation["proprio"][:, 0]
    assert seen[:, 0].tolist() == [2.0] * 6 + [0.0] * 4 and seen[:, 1].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    with pytest.raises(BadInput, match="got 3, expected 0 to 2"):
        Windows(dataset, 1, 1, episodes=[3])
    with pytest.raises(BadInput, match="no episodes"):
        Windows(dataset, 1, 1, episodes=[])
    with pytest.raises(BadInput, match="To=0"):
        Windows(dataset, 0, 1)


def frames(batch):
    """Which (episode, step) each window stands at."""
    return [tuple(row) for row in batch.observation["proprio"][:, -1, :2].int().tolist()]


def test_every_window_once_per_epoch(dataset):
    windows = Windows(dataset, 1, 2)
    epochs = [[frames(b) for b in windows.batches(5, seed=3, epoch=e)] for e in (0, 1)]
    everything = sorted((e, t) for e, n in enumerate((4, 2, 6)) for t in range(n))
    for epoch in epochs:
        assert [len(batch) for batch in epoch] == [5, 5, 2]
        assert sorted(frame for batch in epoch for frame in batch) == everything
    assert epochs[0] != epochs[1]
    again = Windows(dataset, 1, 2)
    assert [frames(b) for b in again.batches(5, seed=3, epoch=1)] == epochs[1]
    assert [frames(b) for b in again.batches(5, seed=4, epoch=1)] != epochs[1]
    assert [frames(b) for b in again.batches(5, seed=3, epoch=1, start=2)] == epochs[1][2:]


def test_a_stream_resumes_anywhere(dataset):
    windows = Windows(dataset, 2, 2)
    straight = [frames(b) for b in islice(windows.stream(5, seed=1), 10)]
    for start in (1, 3, 7):
        assert [frames(b) for b in islice(windows.stream(5, seed=1, start=start), 10 - start)] == straight[start:]


def test_weights(dataset):
    windows = Windows(dataset, 1, 1, weights=[1.0, 0.0, 3.0])
    drawn = [f for epoch in range(500) for b in windows.batches(12, 0, epoch) for f in frames(b)]
    share = np.bincount([e for e, _ in drawn], minlength=3) / len(drawn)
    # Frame shares 4·1 : 2·0 : 6·3; the standard error of 6000 draws is below 0.005.
    assert share[1] == 0 and abs(share[0] - 4 / 22) < 0.02
    for weights in ([1.0], [0.0, 0.0, 0.0], [1.0, -1.0, 1.0], [1.0, np.nan, 1.0]):
        with pytest.raises(BadInput, match="weights"):
            Windows(dataset, 1, 1, weights=weights)
