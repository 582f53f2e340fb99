"""A learner of a finished log whose reward model writes down each call: python scored_learner.py FOLDER"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from classroom import FIRST, SCHEMA, make_base, make_lesson

from robolearn.core import Score, Window
from robolearn.data.replay import ScoreLog
from robolearn.hil.learner import Learner
from robolearn.hil.learner_service import LearnerState
from robolearn.hil.scoring import EpisodeScoring
from robolearn.hil.settings import Budget, LearnerOptions
from robolearn.hil.transition_receiver import TransitionReceiver
from robolearn.runs import Run


class Counted:
    """Rewards of −x a step; every call is a line of `path`: the episode's number, which its observation shows."""

    def __init__(self, path: Path, slow_s: float) -> None:
        self.path, self.slow_s = path, slow_s

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        out = []
        for window in windows:
            with self.path.open("a") as calls:
                calls.write(f"{int(window.observation['proprio'][0, 0])}\n")
            time.sleep(self.slow_s)
            t = window.observation["proprio"][1:, 1]
            if int(window.observation["proprio"][0, 0]) == 3:
                raise RuntimeError("the third one is not to be seen")
            out.append(Score(np.clip(t / 20, 0, 1), -t, t >= 8, np.ones(len(t), np.float32)))
        return out


def learn(folder: Path, slow_s: float) -> None:
    torch.set_num_threads(1)
    run = Run.create(folder / "run", {"test": True}, resume=(folder / "run").exists())
    receiver = TransitionReceiver(folder / "log", SCHEMA, single=True)
    model, scores = Counted(folder / "calls", slow_s), ScoreLog(folder / "log")
    scoring = EpisodeScoring(model, "counted", scores, 60.0, arrived=receiver.wake)
    options, budget = LearnerOptions(checkpoint_s=0.05), Budget(episodes=12)
    lesson = replace(make_lesson(utd=1.0), **FIRST)
    learner = Learner(run, make_base(), lesson, budget, receiver, LearnerState(), (), options, scoring)
    learner.learn(lambda: False, lambda *_: None)
    scoring.close()
    receiver.close()
    run.close()


if __name__ == "__main__":
    learn(Path(sys.argv[1]), 0.08)
