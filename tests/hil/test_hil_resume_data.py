"""A learner that is resumed learns from the demonstrations that it began with."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from classroom import INTERFACE, make_base, make_lesson

from policies.storage.checkpoint import load_chunk_policy, save_policy
from robolearn.core import BadInput, Episode
from robolearn.data import Dataset, EpisodeWriter
from robolearn.hil.learner_process import ADDED, MAY_DIFFER, run_learner, stored_config
from robolearn.hil.settings import LearnerRun
from robolearn.runs import Run

ROWS = np.linspace(0, 1, 5, dtype=np.float32)[:, None]
SHOWN = Episode({"proprio": np.repeat(ROWS, 2, 1)}, ROWS, ROWS[:, 0], True, True, False, "go right")


def demonstrations(path: Path, episode: Episode) -> Path:
    with EpisodeWriter(path, INTERFACE) as writer:
        writer.write_all([SHOWN, episode])
    return path


@pytest.fixture
def own(tmp_path: Path) -> LearnerRun:
    """A run that has begun."""
    save_policy(make_base(), tmp_path / "policy")
    demos = demonstrations(tmp_path / "demos", SHOWN)
    lesson = vars(make_lesson())
    own = LearnerRun(policy=tmp_path / "policy", demos=demos, out=tmp_path / "run", env_steps=0, device="cpu", **lesson)
    Run.create(own.out, stored(own)).close()
    return own


def stored(own: LearnerRun) -> dict:
    assert own.demos is not None
    return stored_config(own, load_chunk_policy(own.policy, "cpu"), Dataset.open(own.demos))


@pytest.mark.parametrize(
    "change", [{"action": -ROWS}, {"reward": -ROWS[:, 0]}, {"success": False}, {"task": "go left"}]
)
def test_other_demonstrations_are_refused(own: LearnerRun, tmp_path: Path, change: dict) -> None:
    other = replace(own, demos=demonstrations(tmp_path / "other", replace(SHOWN, **change)), resume=True)
    with pytest.raises(
        BadInput, match=r"'demos\.content': got other data \([0-9a-f]{8}\), expected the data .*, as when the run began"
    ):
        run_learner(other, listen="127.0.0.1:0", token="", certs=None, go_on=False, nice=0, quiet=True)


def test_a_run_of_an_earlier_version_goes_on_with_its_frames(own: LearnerRun, tmp_path: Path) -> None:
    config = own.out / "config.json"
    earlier = json.loads(config.read_text())
    now = earlier["demos"].pop("content")
    config.write_text(json.dumps(earlier))
    Run.create(own.out, stored(own), resume=True, may_differ=MAY_DIFFER, added=ADDED).close()
    assert json.loads(config.read_text())["demos"]["content"] == now
    config.write_text(json.dumps(earlier))
    other = replace(own, demos=demonstrations(tmp_path / "other", replace(SHOWN, action=-ROWS)))
    with pytest.raises(BadInput, match=r"configuration 'demos\.sha256'"):
        Run.create(own.out, stored(other), resume=True, may_differ=MAY_DIFFER, added=ADDED)
