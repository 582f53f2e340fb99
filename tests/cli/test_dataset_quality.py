"""`robolearn dataset quality` on real demonstrations: good, noisy and failed ones in one set."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import Episode
from robolearn.data import Dataset, EpisodeWriter
from robolearn.rollout.collect import collect
from sim.experts import make_expert
from sim.registry import make_env


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Eight episodes each of an expert, a fair and a poor demonstrator, in a random order; and who made which."""
    folder = tmp_path_factory.mktemp("quality")
    env, found = make_env("lift", 8), []
    episodes: list[tuple[str, Episode]] = []
    for quality in ("expert", "fair", "poor"):
        with EpisodeWriter(folder / quality, env.interface) as writer:
            collect(env, make_expert("lift", env.interface, 8, quality, 0), writer, 8, 1)
        recorded = Dataset.open(folder / quality)
        episodes += [(quality, recorded.episode(e)) for e in range(recorded.episodes)]
    env.close()
    order = np.random.default_rng(0).permutation(len(episodes))
    with EpisodeWriter(folder / "mixed", env.interface) as writer:
        for i in order:
            found.append(episodes[i][0])
        writer.write_all(episodes[i][1] for i in order)
    return folder / "mixed", found


@pytest.mark.long
def test_failed_and_noisy_episodes_rank_lower(
    mixed: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path, maker = mixed
    data = tmp_path / "set"
    shutil.copytree(path, data)
    assert run("dataset", "quality", data, "--weights", "--out", tmp_path / "report.html", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    ranking = [row["episode"] for row in result["ranking"]]
    assert sorted(ranking) == list(range(24)) and [row["rank"] for row in result["ranking"]] == list(range(1, 25))
    place = {e: i for i, e in enumerate(ranking)}
    mean = {q: np.mean([place[e] for e in range(24) if maker[e] == q]) for q in ("expert", "fair", "poor")}
    assert mean["expert"] + 4 < mean["fair"] < mean["poor"] - 2
    dataset = Dataset.open(data)
    assert not dataset.success[ranking[-int((~dataset.success).sum()) :]].any()
    assert set(result["drop"]) >= set(np.flatnonzero(~dataset.success).tolist())
    worst = result["ranking"][-1]
    assert worst["verdict"] == "drop" and "failed" in worst["reasons"] and worst["weight"] == 0.0
    count = len(result["drop"])
    assert result["summary"].startswith(f"Drop {count} episodes of 24, failed, copies or with wild frames: ")
    assert result["drop"] == np.flatnonzero(~dataset.success).tolist(), "what succeeded is not dropped"
    # The command can be pasted.
    assert main(result["drop_command"].split()[1:]) == 0
    clean = Dataset.open(Path(f"{data}-clean"))
    assert clean.success.all() and clean.episodes == 24 - len(result["drop"])
    capsys.readouterr()
    assert dataset.weights == [w["weight"] for w in sorted(result["ranking"], key=lambda row: row["episode"])]
    assert 0 < result["saco"] <= 1 and 0 < result["tq"] < 1

    # Training draws by them, and not without them.
    train = ("train", "--data", data, "--weights", "--steps", 50, "--batch", 32, "--json")
    assert run(*train, "--out", tmp_path / "bc") == 0
    assert json.loads((tmp_path / "bc" / "config.json").read_text())["weights"] == dataset.weights
    (data / "meta" / "robolearn_weights.json").unlink()
    assert run(*train, "--out", tmp_path / "bc2") == 2
    assert "dataset quality" in capsys.readouterr().err

    html = (tmp_path / "report.html").read_text()
    assert html.count("<svg") == 5 and "What points were lost to" in html and "Drop" in html
    assert not re.search(r'(src|href)="(?!#)', html.replace('xlink:href="#', ""))


def test_noise_is_found_without_outcomes(mixed: tuple[Path, list[str]]) -> None:
    from robolearn.data.quality import Demonstrations, assess

    path, maker = mixed
    dataset = Dataset.open(path)
    for name in ("next.success", "next.reward"):
        dataset.info["features"].pop(name)  # type: ignore[index]
    quality = assess(Demonstrations.of(dataset))
    best = [maker[j.episode] for j in quality.episodes[:8]]
    assert best.count("expert") >= 6 and "poor" not in best
    assert [maker[j.episode] for j in quality.episodes[-8:]].count("poor") >= 6


def test_it_is_said_in_words(mixed: tuple[Path, list[str]], capsys: pytest.CaptureFixture) -> None:
    assert run("dataset", "quality", mixed[0]) == 0
    said = capsys.readouterr().out
    assert "failed" in said and "shaky commands" in said and "Drop" in said and "twice the value" in said


@pytest.mark.long
def test_the_advice_is_proved_in_simulation(mixed: tuple[Path, list[str]], capsys: pytest.CaptureFixture) -> None:
    arguments = ("--prove", "lift", "--prove-steps", 100, "--prove-episodes", 16, "--json")
    assert run("dataset", "quality", mixed[0], *arguments) == 0
    proof = json.loads(capsys.readouterr().out)["proof"]
    assert [found["name"] for found in proof["policies"]] == ["alike", "weighted", "dropped"]
    assert all(found["success"]["episodes"] == 16 for found in proof["policies"])
    assert [(verdict["a"], verdict["b"]) for verdict in proof["verdicts"]] == [
        ("all alike", "weighted"),
        ("all alike", "dropped"),
    ]
    assert all(verdict["paired"] for verdict in proof["verdicts"])
    assert run("dataset", "quality", mixed[0], "--prove", "peg_insert") == 2
    assert "objects" in capsys.readouterr().err


def test_bad_input(mixed: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run("dataset", "quality", mixed[0], "--out", tmp_path) == 2
    assert ".html" in capsys.readouterr().err
    assert run("dataset", "quality", tmp_path / "none") == 2
    assert "no such folder" in capsys.readouterr().err
