"""Preferences: pairs that are new, the verdict of outcomes, a page with two films, and a file that fits."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.rewards.labels import (
    PREFERENCES_PATH,
    EpisodeClip,
    Preference,
    better_by_outcome,
    draw_pairs,
    read_preferences,
    write_preferences,
)

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "hardware" / "teleop"))
from browser_driver import Chromium
from controls import write

VECTORS = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 20.0)
# Steps, success, reward of each step, task
EPISODES = ((6, True, 0.0, "a"), (9, True, 0.0, "a"), (5, False, 0.1, "a"), (7, False, 0.5, "a"), (6, True, 0.0, "a"),
            (8, True, 0.0, "b"))  # fmt: skip


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    with EpisodeWriter(tmp_path / "data", VECTORS) as writer:
        for steps, success, reward, task in EPISODES:
            for _ in range(steps):
                writer.add({"proprio": np.zeros(1, np.float32)}, np.zeros(1, np.float32), reward=reward)
            writer.end(success=success, terminated=success, task=task)
    return Dataset.open(tmp_path / "data")


def test_outcomes_say_which_is_better(dataset: Dataset) -> None:
    def verdict(left: int, right: int) -> str:
        return better_by_outcome(dataset, *(EpisodeClip(e, 0, int(dataset.lengths[e])) for e in (left, right)))

    assert verdict(0, 3) == "left" and verdict(3, 1) == "right", "a success over a failure"
    assert verdict(0, 1) == "left" and verdict(1, 4) == "right", "the shorter success"
    assert verdict(2, 3) == "right", "the failure with more reward"
    assert verdict(0, 4) == "same"


def test_pairs_are_of_one_task_and_new(dataset: Dataset) -> None:
    pairs = draw_pairs(dataset, 100, 0, seed=0)
    met = {frozenset((a.episode, b.episode)) for a, b in pairs}
    assert len(pairs) == len(met) == 10, "five episodes of task a in pairs; b has one alone"
    assert all(clip.begin == 0 and clip.end == EPISODES[clip.episode][0] for pair in pairs for clip in pair)
    assert {e for pair in met for e in pair} == {0, 1, 2, 3, 4}
    known = [Preference(right, left, "same") for left, right in pairs[:9]]
    assert {frozenset((a.episode, b.episode)) for a, b in draw_pairs(dataset, 100, 0, 0, known)} == met - {
        frozenset((p.left.episode, p.right.episode)) for p in known
    }
    for left, right in draw_pairs(dataset, 100, 6, seed=1):
        assert len(left) == len(right) == min(6, EPISODES[left.episode][0], EPISODES[right.episode][0])
        assert left.begin >= 0 and left.end <= EPISODES[left.episode][0]


def test_they_are_read_as_they_were_written(dataset: Dataset) -> None:
    assert read_preferences(dataset) == []
    given = [Preference(EpisodeClip(0, 1, 4), EpisodeClip(1, 2, 5), "right")]
    file = write_preferences(dataset, given)
    assert read_preferences(dataset) == given
    (entry,) = json.loads(file.read_text())["preferences"]
    assert entry["left"] == {"episode": 0, "from": 1, "to": 4, "length": 6}, "as the docstring has it"
    for wrong in ({"better": "up"}, {"left": {**entry["left"], "to": 7}}, {"left": {**entry["left"], "length": 7}},
                  {"right": {**entry["right"], "episode": 6}}, {"right": None}):  # fmt: skip
        file.write_text(json.dumps({"preferences": [entry | wrong]}))
        with pytest.raises(BadInput, match=PREFERENCES_PATH):
            read_preferences(dataset)


def test_the_command_writes_what_the_outcomes_say(dataset: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reward", "prefer", "--data", str(dataset.path), "--by-outcome", "--json"]
    assert main([*words, "--pairs", "6"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["asked"] == 6 and result["preferences"]["in_all"] == 6
    decided = [p for p in read_preferences(dataset) if p.better != "same"]
    assert 0 < len(decided) == result["preferences"]["decided"]
    assert main([*words, "--pairs", "6"]) == 0
    stored = read_preferences(dataset)
    assert len(stored) == 10, "four were left; the first six stay"
    assert all(p.better == better_by_outcome(dataset, p.left, p.right) for p in stored)
    capsys.readouterr()
    assert main(words) == 2
    assert "a preference for every pair" in capsys.readouterr().err


def test_preferences_that_teach_nothing_are_no_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EpisodeWriter(tmp_path / "data", VECTORS) as writer:
        for _ in range(3):
            writer.add({"proprio": np.zeros(1, np.float32)}, np.zeros(1, np.float32), reward=0.0)
            writer.end(success=False, terminated=False, task="a")
    assert main(["reward", "prefer", "--data", str(tmp_path / "data"), "--by-outcome"]) == 0
    said = capsys.readouterr().out
    assert "0 left, 0 right, 3 same" in said and "nothing can be learned" in said and "reward train" not in said


def test_what_cannot_be_compared_is_refused(dataset: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reward", "prefer", "--data", str(dataset.path)]
    for more, said in (([], "no camera"), (["--pairs", "0"], "--pairs"), (["--clip", "-1"], "--clip"),
                       (["--port", "70000"], "--port")):  # fmt: skip
        assert main([*words, *more]) == 2
        line = capsys.readouterr().err
        assert said in line and line.count("\n") == 1


@pytest.mark.long
def test_a_browser_plays_both_and_keys_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root, codes = write(tmp_path / "data", 2, 2), list[int]()
    words = ["reward", "prefer", "--data", str(root), "--pairs", "4", "--clip", "8", "--json"]
    command = threading.Thread(target=lambda: codes.append(main(words)), daemon=True)
    command.start()
    told = ""
    while "open " not in told:
        told += capfd.readouterr().err
    asked = draw_pairs(Dataset.open(root), 4, 8, seed=0)
    with Chromium() as browser:
        tab = browser.open(told.partition("open ")[2].split()[0])
        tab.wait("document.querySelectorAll('canvas').length === 2")
        for number, key in enumerate(("ArrowRight", "s", "ArrowLeft", "ArrowDown")):
            left, right = asked[number]
            tab.wait(f"at('where').textContent.startsWith('{number + 1} of 4: episode {left.episode}, steps "
                     f"{left.begin} to {left.end - 1} and episode {right.episode}')")  # fmt: skip
            tab.wait("[...document.querySelectorAll('canvas')].map(c => c.dataset.frame).join() === '7,7'", 10)
            assert tab.js("[...document.querySelectorAll('canvas')].map(c => `${c.width}x${c.height}`).join()") == (
                "48x48,48x48"
            )
            if number == 0:  # the red square is where the clip's last step has it
                frame = Dataset.open(root).episode(right.episode).observation["images.front"][right.end - 1]
                column = int(np.argmax(frame[:, :, 0].max(0) > 128)) + 6
                row = int(np.argmax(frame[:, :, 0].max(1) > 128)) + 6
                shown = tab.js("[...document.querySelectorAll('canvas')[1].getContext('2d')"
                               f".getImageData({column}, {row}, 1, 1).data].join()")  # fmt: skip
                red, green, _, _ = (int(value) for value in shown.split(","))
                assert red > 150 and green < 100
            tab.js(f"document.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")
            if number == 0:
                tab.wait("at('where').textContent.startsWith('2 of 4')")
                assert [p.better for p in read_preferences(Dataset.open(root))] == ["right"], "kept at once"
        command.join(20)
    assert codes == [0]
    assert read_preferences(Dataset.open(root)) == [
        Preference(*asked[0], "right"), Preference(*asked[2], "left"), Preference(*asked[3], "same"),
    ]  # fmt: skip
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert result["preferences"] == {"left": 1, "right": 1, "same": 1, "in_all": 3, "decided": 2}
