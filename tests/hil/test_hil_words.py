"""A policy to begin with that takes the task in words: one sentence at the learner and at its actors."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policies.settings import LeRobotConfig
from policies.storage.loading import words_of
from robolearn.cli.hil.commands import HilActor, HilRun
from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.hil.learner_process import stored_config
from robolearn.hil.settings import LearnerRun
from robolearn.hil.task_words import check_words_taken, task_words
from robolearn.rl.off_policy_settings import DsrlConfig
from sim.registry import make_env

sys.path.insert(0, str(Path(__file__).parent))
from classroom import Classroom, desk, make_base, make_lesson

MADE = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 20.0)


def shown(folder: Path, *tasks: str) -> Dataset:
    """Demonstrations of one step each."""
    one = np.zeros((1, 1), np.float32)
    with EpisodeWriter(folder, MADE) as writer:
        for task in tasks:
            writer.write(Episode({"proprio": one}, one, np.ones(1, np.float32), True, True, False, task))
    return Dataset.open(folder)


def test_words_come_before_those_of_demonstrations_and_those_before_the_world_s(tmp_path: Path) -> None:
    lift = shown(tmp_path / "one", "lift it", "lift it")
    assert task_words("put it down", lift, lambda: "lift") == "put it down"
    assert task_words("", lift, lambda: "lift") == "lift it"
    assert task_words("", None, lambda: "lift") == "lift"


def test_without_one_sentence_there_is_none(tmp_path: Path) -> None:
    both = shown(tmp_path / "two", "lift it", "put it down")
    with pytest.raises(BadInput, match=r"--words: got nothing, and 2 tasks in --demos.*available: lift it, put"):
        task_words("", both, lambda: "lift")
    assert task_words("lift it", both) == "lift it"
    with pytest.raises(BadInput, match="--words: missing; expected the task in a sentence, which the policy takes"):
        task_words("", None)
    check_words_taken("", "")
    check_words_taken("lift it", "lift it")
    with pytest.raises(BadInput, match="--words: got lift it, expected none: the policy takes no words"):
        check_words_taken("lift it", "")


def test_an_actor_with_other_words_is_refused_by_the_wire(tmp_path: Path) -> None:
    room = Classroom(tmp_path, make_lesson("realtime"), words="go right", env_steps=10**6)
    for words, got in (("", "nothing"), ("go left", "go left"), ("go right", "")):
        with desk(tmp_path / "outbox", room.port) as ours:
            ours.link.task = words
            if got:
                with pytest.raises(BadInput, match=f"another task in words: got {got}, expected go right"):
                    ours.link.open(lambda: False)
            else:
                assert ours.link.open(lambda: False) is not None
    room.stop()


def worded(words: str) -> Any:
    """A base that is one of LeRobot's by its configuration alone."""
    base = make_base()
    return SimpleNamespace(interface=base.interface, config=LeRobotConfig(sha256="f", words=words), state_dict=dict)


def test_a_run_is_of_its_words(tmp_path: Path) -> None:
    own = LearnerRun(algo="dsrl", settings=DsrlConfig(), policy=Path("lerobot:p"), out=tmp_path)
    assert stored_config(own, worded("lift it"), None)["words"] == "lift it"
    assert "words" not in stored_config(own, worded(""), None), "runs without words are as before"
    assert words_of(worded("lift it")) == "lift it" and words_of(make_base()) == ""


class Started(Exception):
    """What was about to be started."""


def stop(*given: Any) -> None:
    raise Started(*given)


@pytest.fixture
def lift(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`lift`, and a base for it whose words are those that it is opened with."""
    made = make_env("lift", 1, threads=1)

    def opened(name: Any, device: Any, *, sampled: bool, words: Any) -> Any:
        mine = {"interface": made.interface, "bind": lambda offered: None}
        return SimpleNamespace(**vars(worded(words())) | mine)

    monkeypatch.setattr("policies.storage.loading.load_base", opened)
    yield made
    made.close()


@pytest.mark.parametrize("words", ["", "raise it"])
def test_learner_and_actor_are_started_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lift: Any, words: str
) -> None:
    monkeypatch.setattr("robolearn.cli.hil.commands.check_policy_fits", lambda *_: None)
    monkeypatch.setattr("robolearn.hil.processes.run_processes", lambda programs, *_: stop(*programs))
    base = Path("lerobot:p")
    command = HilRun(algo="dsrl", settings=DsrlConfig(), policy=base, task="lift", out=tmp_path / "o", words=words)
    with pytest.raises(Started) as caught:
        command.run()
    for program in caught.value.args:
        flags = list(program.command)
        assert flags[flags.index("--words") + 1] == (words or lift.prompt), program.name


@pytest.mark.parametrize("words", ["", "raise it"])
def test_an_actor_sends_the_words_that_its_policy_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lift: Any, words: str
) -> None:
    """What it says to the learner is `act_in_world`'s `task`."""
    monkeypatch.setattr("robolearn.hil.actor.act_in_world", lambda env, base, *rest: stop(base, rest[5]))
    monkeypatch.setattr("robolearn.hil.link.make_link", lambda *_: (SimpleNamespace(close=lambda: None), None))
    with pytest.raises(Started) as caught:
        HilActor(policy=Path("lerobot:p"), task="lift", out=tmp_path, words=words).run()
    base, sent = caught.value.args
    assert base.config.words == sent == (words or lift.prompt)
