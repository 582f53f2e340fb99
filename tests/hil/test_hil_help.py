"""Help by a reward model's progress: where it has not gained for so long, the operator steers, by no other clock."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.cli.hil.commands import HilRun
from robolearn.core import BadInput, Score, Window
from robolearn.data.replay import ReplayStep
from robolearn.hil.actor import ActorLoop
from robolearn.hil.agent import DoubleBufferedPolicy, SteeredAgent
from robolearn.hil.curriculum import Curriculum
from robolearn.hil.outbox import Outbox
from robolearn.hil.settings import CurriculumConfig
from robolearn.rewards.done import patience
from robolearn.rewards.online import OnlineDone

sys.path.insert(0, str(Path(__file__).parent))
from classroom import INTERFACE, SCHEMA, Helper, LineWorld, make_base, make_lesson
from test_hil_online import Alone


class Says:
    """Never done; its progress after step t is the t-th of `progress`, the last one from there on."""

    frame_by_frame = False

    def __init__(self, *progress: float) -> None:
        self.progress = progress

    def score(self, windows: Any, prompts: Any) -> list[Score]:
        return [self.score_one(window) for window in windows]

    def score_one(self, window: Window) -> Score:
        last = np.minimum(np.arange(len(window)), len(self.progress) - 1)
        found = np.array(self.progress, np.float32)[last]
        return Score(found, found, np.zeros(len(window), bool), np.ones(len(window), np.float32))


def reasons(*progress: float, frames: int = 3, **help: float) -> list[str]:
    """After each step at 10 Hz, a verdict each."""
    done = OnlineDone([Says(*progress)], 10.0, 10.0, frames=frames, waits=True, **help)
    done.begin("go", {"x": np.zeros(1, np.float32)})
    found = []
    for _ in progress:
        done.add(np.zeros(1, np.float32), {"x": np.zeros(1, np.float32)})
        found.append(done.help_reason)
    done.begin("go", {"x": np.zeros(1, np.float32)})
    assert not done.help_reason, "another episode"
    return found


def stalls(*progress: float, help_after_s: float = 0.2) -> list[bool]:
    """True where it stands still."""
    found = reasons(*progress, help_after_s=help_after_s)
    assert set(found) <= {"", "the progress stands still"}
    return [bool(reason) for reason in found]


def test_an_episode_stalls_after_so_many_seconds_without_a_gain() -> None:
    """Two steps are 0.2 s; a gain is 0.02 above the best so far."""
    assert stalls(0.1, 0.2, 0.3, 0.3, 0.3, 0.4) == [False, False, False, False, True, False]
    assert stalls(0.0, 0.0, 0.0) == [False, True, True], "from the beginning on"
    assert stalls(0.3, 0.31, 0.311, 0.33) == [False, False, True, False], "less than 0.02 is no gain"
    assert stalls(0.5, 0.1, 0.2, 0.3) == [False, False, True, True], "what was lost is no gain when it comes back"
    assert stalls(0.0, 0.0, 0.0, help_after_s=0.0) == [False] * 3


def test_an_episode_falls_by_so_much_from_its_best_in_so_many_verdicts() -> None:
    """The best is 0.75; a loss of 0.25 is one of 0.5 and less, and 0.625 in between begins the count anew."""
    fallen = "the progress has fallen"
    said = reasons(0.75, 0.5, 0.625, 0.5, 0.25, 0.75, 0.25, 0.5, frames=2, help_at_loss=0.25)
    assert said == ["", "", "", "", fallen, "", "", fallen]
    assert reasons(0.1, 0.1, 0.1, frames=1, help_at_loss=0.25) == [""] * 3, "it has had nothing to lose"
    assert reasons(0.75, 0.5, 0.5, frames=1, help_at_loss=0.0) == [""] * 3
    both = reasons(0.75, 0.25, 0.25, 0.25, frames=1, help_at_loss=0.25, help_after_s=0.3)
    assert both == ["", fallen, fallen, "the progress stands still"]


def test_a_model_that_fails_needs_no_help() -> None:
    assert stalls(0.3, np.nan, np.nan, np.nan) == [False] * 4
    assert reasons(0.75, 0.25, np.nan, 0.25, frames=2, help_at_loss=0.25) == [""] * 4


@pytest.mark.parametrize(
    ("help", "progress", "steered", "said"),
    [
        ({"help_after_s": 0.25}, (0.0,), 5, "episode 0: the progress stands still, the operator steers from step 5"),
        ({"help_after_s": 0.5}, (0.0,), 10, "episode 0: the progress stands still, the operator steers from step 10"),
        (
            {"help_at_loss": 0.5},
            (0.2, 0.4, 0.6, 0.8, 0.2),
            7,
            "episode 0: the progress has fallen, the operator steers",
        ),
        ({}, (0.0,), 12, ""),
    ],
)
def test_the_operator_steers_where_the_progress_stands_still_or_has_fallen(
    tmp_path: Path, caplog: Any, help: dict[str, float], progress: tuple[float, ...], steered: int, said: str
) -> None:
    """Of 0.2 in the fifth to seventh step, three verdicts at 20 Hz: from step 7 on."""
    caplog.set_level("INFO")
    shown = CurriculumConfig(free=1.0 if help else 0.0, free_steps=10**6, revisit=0.0, **help)
    config = replace(make_lesson(reward="mine:Model"), curriculum=shown)
    buffered = DoubleBufferedPolicy(lambda: config.settings.build(make_base(), seed=0))
    buffered.load(0, buffered.like)
    outbox, env, link = Outbox(tmp_path, "a", SCHEMA), LineWorld(limit=12), Alone(1)
    done = OnlineDone([Says(*progress)], INTERFACE.control_hz, 20.0, waits=True, **help)
    loop: Any = ActorLoop
    loop(env, buffered, link, outbox, config, "a", ("proprio",), lambda _: Helper(1), done=done).run(lambda: False)
    steps = [record for record in outbox.read() if isinstance(record, ReplayStep)]
    assert [step.intervention for step in steps] == [t >= steered for t in range(len(steps))]
    assert len(steps) > min(steered, 11)
    assert [line[: len(said)] for line in caplog.messages if "operator steers" in line] == [said] * bool(said)
    outbox.close()


def test_no_clock_says_when_the_operator_steers() -> None:
    for help, freely in (({}, True), ({"help_after_s": 3.0}, False), ({"help_at_loss": 0.3}, False)):
        config = CurriculumConfig(free=1.0, free_steps=100, revisit=0.0, **help)
        assert Curriculum(config, 0, "a").begin(0)[1] is freely


def test_the_operator_is_told_once_an_episode() -> None:
    told: list[int] = []

    class Person(Helper):
        def steer(self) -> None:
            told.append(1)

    agent = SteeredAgent(INTERFACE, lambda *_: np.zeros((1, 1), np.float32), lambda: None, lambda *_: ())
    agent.start(None)
    assert not agent.steer()
    agent.start(Person(1))
    assert agent.steer() and not agent.steer() and len(told) == 1
    agent.start(Person(1), freely=True)
    assert not agent.steer() and len(told) == 2


def test_what_has_no_progress_is_refused(tmp_path: Path) -> None:
    at: dict[str, Any] = {"policy": tmp_path, "out": tmp_path, "curriculum": CurriculumConfig(help_after_s=2.0)}
    for wrong in ({}, {"reward": "key"}, {"reward": "mine:Model", "done_hz": 0.0}):
        with pytest.raises(BadInput, match=r"--help-after-s: got 2 without a model .* expected a reward model"):
            HilRun(**at, **wrong).check_learner()
    HilRun(**at, reward="mine:Model").check_learner()
    for seconds in (-1.0, math.nan, math.inf):
        with pytest.raises(BadInput, match=f"--help-after-s: got {seconds}, expected a number of seconds"):
            CurriculumConfig(help_after_s=seconds)
    at["curriculum"] = CurriculumConfig(help_at_loss=0.3)
    with pytest.raises(BadInput, match=r"--help-at-loss: got 0\.3 without a model .* expected a reward model"):
        HilRun(**at).check_learner()
    with pytest.raises(BadInput, match=r"--help-at-loss: got 1\.5, expected 0 to 1"):
        CurriculumConfig(help_at_loss=1.5)


def test_a_time_that_rounds_to_no_control_step_is_refused() -> None:
    """At 20 Hz a step is 0.05 s; half of one rounds to none."""
    for seconds in (0.01, 0.025):
        with pytest.raises(
            BadInput, match=rf"--help-after-s: got {seconds}, expected 0, or more than half .*, 0\.025 s"
        ):
            OnlineDone([Says(0.0)], 20.0, 20.0, waits=True, help_after_s=seconds)
    for seconds, steps in ((0.0, 0), (0.026, 1), (0.3, 6)):
        assert patience(seconds, 20.0) == steps
