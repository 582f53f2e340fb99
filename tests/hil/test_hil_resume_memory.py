"""A learner that is resumed reads its log record by record: the pictures of a whole run never lie in memory."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, Interface
from robolearn.data.replay import End, RecordSchema, ReplayStep, TransitionLog
from robolearn.hil.learner import Learner
from robolearn.hil.learner_service import LearnerState
from robolearn.hil.settings import Budget, LearnerOptions
from robolearn.hil.transition_receiver import TransitionReceiver
from robolearn.io import json_files
from robolearn.runs import Run

sys.path.insert(0, str(Path(__file__).parent))
from classroom import make_lesson

pytestmark = pytest.mark.long

SIDE, EPISODES, STEPS = 64, 40, 10
SEEN = {"images.front": ArraySpec((SIDE, SIDE, 3), "uint8"), "proprio": ArraySpec((2,))}
INTERFACE = Interface(SEEN, ArraySpec((1,)), 20.0)
PICTURES = SIDE * SIDE * 3 * EPISODES * (STEPS + 1)  # bytes of all that the log holds


def write_log(folder: Path) -> None:
    rng, schema = np.random.default_rng(0), RecordSchema(INTERFACE)
    log = TransitionLog(folder, "a", schema)

    def seen() -> dict[str, np.ndarray]:
        return {
            "images.front": rng.integers(0, 255, (SIDE, SIDE, 3), np.uint8),
            "proprio": rng.random(2, np.float32),
        }

    for number in range(EPISODES):
        for t in range(STEPS):
            log.append(schema.encode(ReplayStep(number, t, seen(), np.zeros(1, np.float32), 0.0, t < 4)))
        log.append(schema.encode(End(number, STEPS, seen(), False, True, False)))
    log.close()


class Desk:
    """A learner of a visuomotor policy, on the log in `folder`."""

    receiver: TransitionReceiver | None = None

    def __init__(self, folder: Path) -> None:
        config = FlowConfig(horizon=3, execute=3, network=NetworkConfig(width=8, depth=1, image_features=4))
        self.folder = folder
        self.base = ChunkPolicy(config.build(INTERFACE), Normalizer(INTERFACE), INTERFACE)
        self.run = Run.create(folder / "run", {"test": True}, resume=(folder / "run").exists())

    def open(self) -> None:
        """Read the log and take what is in it."""
        self.receiver = TransitionReceiver(self.folder / "log", RecordSchema(INTERFACE), single=False)
        config, budget = make_lesson("realtime", warmup=10**6), Budget(env_steps=10**6)
        self.learner = Learner(self.run, self.base, config, budget, self.receiver, LearnerState(), (), LearnerOptions())
        while self.learner.step():
            pass

    def close(self) -> None:
        if self.receiver is not None:
            self.receiver.close()
        self.run.close()


@pytest.mark.parametrize("saved", [True, False], ids=["up to a checkpoint", "without one"])
def test_a_resumed_learner_holds_no_log_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: bool) -> None:
    monkeypatch.setattr(json_files, "LIMIT", 100_000)  # of a buffer that is asked for and never filled
    write_log(tmp_path / "log")
    first = Desk(tmp_path)
    if saved:
        first.open()
        first.learner.save()
    first.close()

    again = Desk(tmp_path)
    tracemalloc.start()  # of Python's and NumPy's memory: records and episodes, not torch's networks
    try:
        again.open()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert again.learner.experience.env_steps == EPISODES * STEPS
    assert again.learner.experience.taken == {"a": EPISODES * (STEPS + 1)}
    assert peak < PICTURES / 3, f"{peak / 1e6:.1f} MB of a log with {PICTURES / 1e6:.1f} MB of pictures"
    again.close()
