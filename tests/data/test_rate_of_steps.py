"""The rate of steps that a user's own loop adds: stored, named, refused, by the judge of `record` and `validate`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.validate import validate
from robolearn.data.writing import writer as module

INTERFACE = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 20.0)
NOON = 1_700_000_000.0


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Adds that many steps of so many seconds each, on a clock of its own."""
    now = [NOON]
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: now[0]))

    def added(writer: EpisodeWriter, count: int, each: float, **more: dict[str, float]) -> None:
        for t in range(count):
            now[0] += each
            writer.add({"proprio": [t]}, [0.1], **more)

    return added


def measured(capsys: pytest.CaptureFixture[str], root: Path) -> dict[str, float] | None:
    assert main(["dataset", "info", str(root), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["measured_hz"]


@pytest.mark.long
def test_a_loop_that_is_slower_than_asked_is_refused(tmp_path, steps, capsys):
    root = tmp_path / "set"
    with EpisodeWriter(root, INTERFACE, real_time=True, task="push") as writer:
        steps(writer, 61, 0.05)
        writer.end(success=True)
        steps(writer, 61, 0.075)  # 13.3 of 20 a second: played, all would go one and a half times as fast
        with pytest.raises(BadInput, match=r"episode 1: 13\.3 control steps a second are stored as 20.*discard\(\)"):
            writer.end(success=True)
        writer.discard()
        steps(writer, 61, 0.03)  # and here more slowly than it was
        with pytest.raises(BadInput, match=r"episode 1: 33\.3 control steps"):
            writer.end(success=True)
        writer.discard()
        steps(writer, 81, 0.052)
        writer.end(success=True)
    dataset = Dataset.open(root)
    assert dataset.lengths.tolist() == [61, 81] and not list(validate(root))
    np.testing.assert_allclose(dataset.stamps["action"][:61], NOON + 0.05 * np.arange(1, 62), atol=1e-6)
    found = measured(capsys, root)
    assert found is not None
    assert found == pytest.approx({"min": 1 / 0.052, "median": (20 + 1 / 0.052) / 2, "max": 20.0}, abs=1e-3)
    assert main(["dataset", "info", str(root)]) == 0
    assert "19.62 Hz, by episode 19.23 to 20" in capsys.readouterr().out


def test_a_loop_that_is_a_little_slower_is_named_once(tmp_path, steps, caplog):
    with caplog.at_level(logging.WARNING), EpisodeWriter(tmp_path / "set", INTERFACE, real_time=True) as writer:
        steps(writer, 61, 0.052)  # 4% more slowly
        writer.end(success=True)
        assert not caplog.messages
        for _ in range(3):
            steps(writer, 61, 0.055)
            writer.end(success=True)
    assert [line.split(": ", 1)[1] for line in caplog.messages] == [
        "episode 1: 18.2 control steps a second are stored as 20"
    ]


def test_stamps_of_the_callers_are_judged_alike(tmp_path, steps):
    """The clock of the callers counts, wherever the time went between two calls."""

    def at(writer: EpisodeWriter, each: float) -> None:
        for t in range(61):
            steps(writer, 1, 9.0, stamps={"action": each * t})

    with EpisodeWriter(tmp_path / "set", INTERFACE, stamps=("action",)) as writer:
        at(writer, 0.05)
        writer.end(success=True)
        at(writer, 0.1)
        with pytest.raises(BadInput, match="10 control steps a second are stored as 20"):
            writer.end(success=True)
    with EpisodeWriter(tmp_path / "judged", INTERFACE, stamps=("action",), real_time=False) as writer:
        at(writer, 0.1)
        writer.end(success=True)


def test_simulated_time_is_not_judged(tmp_path, steps, capsys):
    with EpisodeWriter(tmp_path / "set", INTERFACE) as writer:
        steps(writer, 61, 3.0)
        writer.end(success=True)
    assert not Dataset.open(tmp_path / "set").stamps and measured(capsys, tmp_path / "set") is None


def test_a_short_episode_says_little(tmp_path, steps):
    with EpisodeWriter(tmp_path / "set", INTERFACE, real_time=True) as writer:
        for count in (1, 10):
            steps(writer, count, 0.1)
            writer.end(success=True)
        assert writer.episodes == 2
