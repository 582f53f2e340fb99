"""Episodes of a data set as they were recorded: rewards, ends and authors against what was written, by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robolearn.core import BadInput, Episode, Interface
from robolearn.data import Dataset
from robolearn.data.replay import PlayedEpisode, ReplayBuffer
from robolearn.data.replay.recorded import demonstrated, recorded
from robolearn.data.writing.writer import EpisodeWriter

Make = Callable[..., Episode]


def stored(path: Path, interface: Interface, episodes: list[Episode], **settings: bool) -> Dataset:
    with EpisodeWriter(path, interface, **settings) as writer:
        writer.write_all(episodes)
    return Dataset.open(path)


def windows(interface: Interface, played: PlayedEpisode) -> list[tuple[int, float, float]]:
    """(t, R, discount) of each window of two actions; γ = ½."""
    buffer = ReplayBuffer(interface, 2, 100)
    buffer.add(played)
    batch = buffer.gather(torch.arange(len(buffer)), 0.5, torch.Generator())
    found = zip(batch.observation["proprio"], batch.reward, batch.discount, strict=True)
    return [(int(o[1]), float(r), float(d)) for o, r, d in found]


def test_successes_and_failures_keep_their_ends(tmp_path: Path, interface: Interface, episode: Make, caplog) -> None:
    """A success of four steps ends the task; what followed a failure's last step is not known, so nothing reaches it;
    a failure that the task ended (a drop) has value 0 after it."""
    dropped = replace(episode(2, 4, success=False), terminated=True, truncated=False)
    found = stored(tmp_path / "a", interface, [episode(0, 4), episode(1, 4, success=False), dropped])
    with caplog.at_level(logging.INFO):
        solved, failed, lost = recorded([found])
    assert windows(interface, solved) == [(0, 0.0, 0.25), (1, 0.0, 0.25), (2, 0.5, 0.0), (3, 1.0, 0.0)]
    assert windows(interface, failed) == [(0, 0.0, 0.25), (1, 0.0, 0.25)]
    assert windows(interface, lost) == [(0, 0.0, 0.25), (1, 0.0, 0.25), (2, 0.0, 0.0), (3, 0.0, 0.0)]
    assert (solved.success, failed.success, lost.success) == (True, False, False)
    assert "3 episodes as they were recorded, 1 of them successes" in caplog.text
    assert "the last step of 1 episodes is left out" in caplog.text


def test_a_time_limit_is_bootstrapped_from_the_final_observation_that_is_stored(
    tmp_path: Path, interface: Interface, episode: Make, caplog
) -> None:
    """One window more, (2, 3), which leads to what was seen after action 3."""
    final = {"proprio": np.array([1, 4, -4], np.float32), "objects": np.zeros(2, np.float32)}
    with caplog.at_level(logging.INFO):
        (failed,) = recorded(
            [stored(tmp_path / "a", interface, [replace(episode(1, 4, success=False), final=final)])], scored=True
        )
    assert windows(interface, failed) == [(0, 0.0, 0.25), (1, 0.0, 0.25), (2, 0.0, 0.25)]
    np.testing.assert_array_equal(failed.observation["proprio"][-1], final["proprio"])
    assert "left out" not in caplog.text


def test_nobody_is_a_demonstrator_whom_the_set_does_not_call_one(
    tmp_path: Path, interface: Interface, episode: Make
) -> None:
    helped = replace(episode(1, 4), intervention=np.array([False, True, True, False]))
    plain, corrected = recorded([stored(tmp_path / "a", interface, [episode(0, 3), helped])])
    assert not plain.intervention.any()
    np.testing.assert_array_equal(corrected.intervention, [False, True, True, False])


def test_a_set_that_knows_success_alone_has_it_for_a_reward(
    tmp_path: Path, interface: Interface, episode: Make
) -> None:
    """Its successes ended at the clock, as those of a person do who presses a key; they end the task."""
    silent = [replace(episode(e, 3, success=e == 0), reward=np.zeros(3, np.float32), terminated=False, truncated=True)
              for e in range(2)]  # fmt: skip
    solved, failed = recorded([stored(tmp_path / "a", interface, silent)])
    np.testing.assert_array_equal(solved.reward, [0, 0, 1])
    assert solved.terminated and not failed.terminated and not failed.reward.any()


def test_rewards_do_without_success_and_a_long_task_goes_on_after_it(
    tmp_path: Path, interface: Interface, episode: Make
) -> None:
    """Where the set has rewards its own ends count: a success that the clock cut is bootstrapped from."""
    dense = replace(episode(0, 3), reward=np.full(3, 0.25, np.float32), terminated=False, truncated=True)
    for name, outcomes in (("a", True), ("b", False)):
        (played,) = recorded([stored(tmp_path / name, interface, [dense], outcomes=outcomes)])
        assert not played.terminated and played.success == outcomes
        np.testing.assert_array_equal(played.reward, [0.25] * 3)


def test_what_teaches_nothing_is_refused(tmp_path: Path, interface: Interface, episode: Make) -> None:
    failed = [episode(e, 3, success=False) for e in range(2)]
    unlabelled = stored(tmp_path / "a", interface, failed, outcomes=False)
    with pytest.raises(BadInput, match=r"neither rewards .* nor successes"):
        recorded([unlabelled])
    with pytest.raises(BadInput, match="2 episodes without reward or success"):
        recorded([stored(tmp_path / "b", interface, failed)])
    assert len(list(recorded([unlabelled], scored=True))) == 2  # a reward model will say


def test_demonstrations_are_what_was_recorded_but_for_failures(
    tmp_path: Path, interface: Interface, episode: Make, caplog
) -> None:
    """Of a set that `collect` made each success keeps its rewards and its end, and every step is a demonstrator's."""
    episodes = [episode(0, 4), episode(1, 4, success=False), episode(2, 3)]
    found, good = stored(tmp_path / "a", interface, episodes), stored(tmp_path / "b", interface, episodes[::2])
    shown = list(demonstrated([found, good], "--demos"))
    assert [number for number, _ in shown] == [0, 2, 0, 1]
    assert "--demos: 1 of 5 episodes are left out: failures are no demonstrations" in caplog.text
    for (_, one), asked in zip(shown, [*episodes[::2]] * 2, strict=True):
        np.testing.assert_array_equal(one.action, asked.action)
        np.testing.assert_array_equal(one.reward, asked.reward)
        assert (one.terminated, one.success) == (asked.terminated, True)
        assert one.intervention.all() and one.merits.all()


def test_a_demonstration_whose_success_alone_is_known_ends_with_a_reward(
    tmp_path: Path, interface: Interface, episode: Make
) -> None:
    silent = replace(episode(0, 3), reward=np.zeros(3, np.float32), terminated=False, truncated=True)
    ((_, shown),) = demonstrated([stored(tmp_path / "a", interface, [silent])], "--data")
    np.testing.assert_array_equal(shown.reward, [0, 0, 1])
    assert shown.terminated and shown.success


def test_a_demonstration_with_rewards_ends_where_it_was_recorded_to(
    tmp_path: Path, interface: Interface, episode: Make, caplog
) -> None:
    cut = replace(episode(0, 5), reward=np.full(5, 0.25, np.float32), terminated=False, truncated=True)
    ((_, shown),) = demonstrated([stored(tmp_path / "a", interface, [cut], outcomes=False)], "--data")
    assert [t for t, _, _ in windows(interface, shown)] == [0, 1, 2]
    assert not shown.success and shown.intervention.all() and shown.merits.all() and not caplog.text


def test_what_demonstrates_nothing_is_refused(tmp_path: Path, interface: Interface, episode: Make) -> None:
    failed = [episode(e, 3, success=False) for e in range(2)]
    unlabelled = stored(tmp_path / "a", interface, failed, outcomes=False)
    with pytest.raises(BadInput, match=r"--demos .*/a: got neither rewards .* nor successes .*--outcome success"):
        demonstrated([unlabelled], "--demos")
    assert len(list(demonstrated([unlabelled], "--demos", scored=True))) == 2  # a reward model will say
    for scored in (False, True):
        with pytest.raises(BadInput, match=r"--data: got 2 episodes, all failures.*--updates"):
            demonstrated([stored(tmp_path / f"b{scored}", interface, failed)], "--data", scored=scored)
    assert not list(demonstrated([], "--back-data"))
