"""Episodes of an evaluation as a data set: what happened, step by step, and a replay of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import BadInput
from robolearn.data import Dataset
from robolearn.data.writing.writer import EpisodeWriter
from robolearn.eval import evaluate
from robolearn.rollout.collect import RolloutRecorder


def length(difficulty: float, solved: bool) -> int:
    """Of an episode [steps]; no multiple of a chunk."""
    return 3 + int(10 * difficulty) + (2 if solved else 0)


def recorded(fake: Any, path: Path, episodes: int = 7) -> tuple[Any, Dataset]:
    env = fake.Env(3, length)
    policy = fake.Policy(0.5, execute_steps=4, noise=0.05)
    with EpisodeWriter(path, env.interface) as writer, RolloutRecorder(env, writer) as record:
        found = evaluate(env, policy, episodes, 5, record=record)
    return found, Dataset.open(path)


def test_each_step_is_stored_with_what_was_seen_before_it(fake: Any, tmp_path: Path) -> None:
    found, dataset = recorded(fake, tmp_path / "data")
    alone = evaluate(fake.Env(3, length), fake.Policy(0.5, execute_steps=4, noise=0.05), 7, 5)
    np.testing.assert_array_equal(found.succeeded, alone.succeeded)
    assert dataset.episodes == 7 and sorted(dataset.lengths.tolist()) == sorted(found.steps.tolist())
    # Episodes lie in the order of their ends: known again by (world's start, number in its world).
    starts = {
        (round(fake.start(5, w, i), 5), i): row for row, (w, i) in enumerate(zip(found.world, found.index, strict=True))
    }
    for e in range(7):
        episode = dataset.episode(e)
        seen = episode.observation["objects"]
        row = starts[round(float(seen[0, 0]), 5), int(seen[0, 1])]
        assert episode.success == found.succeeded[row] == (episode.action[0, 0] >= seen[0, 0])
        assert len(episode) == found.steps[row] == length(float(seen[0, 0]), episode.success)
        np.testing.assert_array_equal(seen[:, 2], np.arange(len(episode)))
        assert episode.final["objects"][2] == len(episode)
        assert episode.reward.tolist() == [0.0] * (len(episode) - 1) + [float(episode.success)]
        assert episode.terminated and not episode.truncated and episode.task == fake.Env.prompt
        if len(episode) > 4:  # each step has a draw of its own
            assert len(np.unique(episode.action[:5])) == 5


def test_worlds_that_move_together_are_refused(fake: Any, tmp_path: Path) -> None:
    env = fake.Env(2, length)
    env.steps_together = True
    refused = pytest.raises(BadInput, match="move together")
    with refused, EpisodeWriter(tmp_path / "data", env.interface) as writer, RolloutRecorder(env, writer) as record:
        evaluate(env, fake.Policy(0.5), 2, 0, record=record)


@pytest.mark.long
def test_a_recorded_evaluation_is_a_set_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Collected, imitated, recorded in an evaluation, and valid."""

    def run(*words: str) -> dict[str, Any]:
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    demos, bc, data = (str(tmp_path / name) for name in ("demos", "bc", "played"))
    run("collect", "--task", "lift", "--episodes", "6", "--quality", "narrow", "--out", demos)
    run("train", "--data", demos, "--steps", "150", "--out", bc)
    found = run("evaluate", "--policy", bc, "--task", "lift", "--episodes", "6", "--worlds", "3", "--record", data)
    assert found["recorded"] == data
    dataset = Dataset.open(data)
    assert dataset.episodes == 6 and dataset.success.mean() == pytest.approx(found["success"]["rate"])
    assert dataset.frames == found["env_steps"]
    assert run("dataset", "validate", data)["ok"]
    assert main(["evaluate", "--policy", bc, "--task", "lift", "--episodes", "2", "--record", data]) == 2
