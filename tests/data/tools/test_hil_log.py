"""The log of a run with a human in the loop becomes a data set: both actors, who acted, what was seen last."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, Interface
from robolearn.data import Dataset
from robolearn.data.convert.formats import guess
from robolearn.data.replay.records import End, RecordSchema, ReplayStep, TransitionLog

SEEN = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((32, 32, 3), "uint8")}, ArraySpec((1,)), 10.0,
    embodiment="panda", action_kind="tcp_delta",
)  # fmt: skip
LENGTHS = {"actor": (5, 7), "second": (4,)}


def observation(actor: str, episode: int, step: int) -> dict[str, np.ndarray]:
    number = 10 * list(LENGTHS).index(actor) + episode
    return {"proprio": np.array([number, step], np.float32), "images.front": np.full((32, 32, 3), 20 * step, np.uint8)}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two actors; the first has begun an episode that nobody ended."""
    folder, schema = tmp_path / "run", RecordSchema(SEEN)
    for actor, lengths in LENGTHS.items():
        log = TransitionLog(folder / "log", actor, schema)
        for e, steps in enumerate(lengths):
            for t in range(steps):
                action = np.array([t / 10], np.float32)
                task = "insert" if t == 0 and actor == "actor" else ""
                step = ReplayStep(e, t, observation(actor, e, t), action, float(t == steps - 1), t < 2, task)
                log.append(schema.encode(step))
            solved = e == 0
            log.append(schema.encode(End(e, steps, observation(actor, e, steps), solved, not solved, solved)))
        if actor == "actor":
            for t in range(3):
                step = ReplayStep(9, t, observation(actor, 3, t), np.zeros(1, np.float32), 0.0, False)
                log.append(schema.encode(step))
        log.close()
    (folder / "config.json").write_text(json.dumps({"command": "hil", "interface": SEEN.to_json()}))
    return folder


def test_a_run_is_a_set_of_its_episodes(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert guess(run) == "hil"
    assert main(["dataset", "import", str(run), "--out", str(tmp_path / "set"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["episodes"] == 3
    assert "actor: 3 steps of an episode that was never ended" in told["left_out"]
    dataset = Dataset.open(tmp_path / "set")
    assert dataset.interface.embodiment == "panda" and dataset.interface.control_hz == 10.0
    assert dataset.lengths.tolist() == [5, 7, 4] and dataset.success.tolist() == [True, False, True]
    assert dataset.terminated.tolist() == [True, False, True]
    for e, (actor, index) in enumerate((("actor", 0), ("actor", 1), ("second", 0))):
        episode = dataset.episode(e)
        steps = len(episode)
        expected = np.stack([observation(actor, index, t)["proprio"] for t in range(steps)])
        np.testing.assert_array_equal(episode.observation["proprio"], expected)
        np.testing.assert_allclose(episode.action[:, 0], np.arange(steps) / 10, atol=1e-6)
        assert episode.intervention is not None and episode.intervention.tolist() == [t < 2 for t in range(steps)]
        assert episode.reward.tolist() == [0.0] * (steps - 1) + [1.0]
        assert dataset.has_final(e) and episode.final["proprio"][1] == steps
        assert episode.task == ("insert" if actor == "actor" else "run")
        shade = np.asarray(episode.observation["images.front"])[:, 16, 16, 0].astype(int)
        assert np.abs(shade - 20 * np.arange(steps)).max() < 12
    assert main(["dataset", "validate", str(tmp_path / "set")]) == 0


def test_some_episodes_and_one_outcome(run: Path, tmp_path: Path) -> None:
    words = ["dataset", "import", str(run), "--out", str(tmp_path / "set"), "--episodes", "1-2", "--task", "push"]
    assert main(words) == 0
    dataset = Dataset.open(tmp_path / "set")
    assert dataset.lengths.tolist() == [7, 4] and dataset.tasks == ["push"]


def test_what_is_no_run_is_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["dataset", "import", "--format", "hil", "--out", str(tmp_path / "set")]
    assert main([*words, str(tmp_path)]) == 2
    assert "expected a run of robolearn hil" in " ".join(capsys.readouterr().err.split())
    (run / "config.json").write_text("{}")
    assert main([*words, str(run)]) == 2
    assert "no valid interface" in " ".join(capsys.readouterr().err.split())
    assert main([*words, str(run), "--hz", "10"]) == 2


def test_episodes_that_were_never_ended_cost_no_other(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An actor that was killed in mid-episode begins the next one when it is back: that one is whole."""
    schema = RecordSchema(SEEN)
    log = TransitionLog(run / "log", "actor", schema)
    for e, steps, ended in ((10, 1, False), (11, 6, True), (12, 4, False)):
        for t in range(steps):
            log.append(schema.encode(ReplayStep(e, t, observation("actor", e, t), np.zeros(1, np.float32), 0.0, False)))
        if ended:
            log.append(schema.encode(End(e, steps, observation("actor", e, steps), True, False, True)))
    log.close()
    assert main(["dataset", "import", str(run), "--out", str(tmp_path / "set"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "actor: 8 steps of 3 episodes that were never ended" in told["left_out"]
    dataset = Dataset.open(tmp_path / "set")
    assert dataset.lengths.tolist() == [5, 7, 6, 4] and dataset.success.tolist() == [True, False, True, True]
    assert dataset.episode(2).observation["proprio"][:, 0].tolist() == [11.0] * 6


def test_what_a_flipped_bit_hides_is_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "log" / "actor.transitions"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    def left_out(out: str) -> str:
        assert main(["dataset", "import", str(run), "--out", str(tmp_path / out), "--json"]) == 0
        return " ".join(json.loads(capsys.readouterr().out.splitlines()[-1])["left_out"])

    assert f"{path}: damaged at byte" in left_out("set") and path.stat().st_size == len(content)
    TransitionLog(run / "log", "actor", RecordSchema(SEEN)).close()  # as a learner that resumes opens it
    said = left_out("after")
    assert "actor.transitions.damaged-0: set aside because the log was damaged" in said and "at byte" not in said


def test_a_run_that_is_taken_for_a_data_set_names_the_import(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["dataset", "info", str(run)], ["train", "--data", str(run), "--out", str(run / "new")]):
        assert main(words) == 2
        assert f"robolearn dataset import {run} --out" in " ".join(capsys.readouterr().err.split())
