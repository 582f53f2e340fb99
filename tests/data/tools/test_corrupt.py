"""Wrong steps of a data set, judged by the parquet files that were written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.cli.main import main
from robolearn.core import Episode, Interface
from robolearn.data import EpisodeWriter


@pytest.fixture
def clean(tmp_path: Path, interface: Interface, episode: Callable[..., Episode]) -> Path:
    """Ten episodes of 40 steps, every other one a success."""
    with EpisodeWriter(tmp_path / "clean", interface) as writer:
        for e in range(10):
            one = episode(e, 40, success=e % 2 == 0)
            for t in range(len(one)):
                seen = {key: values[t] for key, values in one.observation.items()}
                writer.add(seen, one.action[t] * 25, reward=float(one.reward[t]))
            writer.end(success=one.success, terminated=one.terminated, truncated=one.truncated, task=one.task)
    return tmp_path / "clean"


def table(path: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(file) for file in sorted(path.glob("data/*/*.parquet")))


def rows(values: pa.ChunkedArray) -> np.ndarray:
    return np.array(values.to_pylist(), np.float64).reshape(len(values), -1)


def corrupted(clean: Path, out: Path, *words: object) -> tuple[pa.Table, pa.Table]:
    asked = ["dataset", "edit", "corrupt", clean, "--out", out, *words, "--json"]
    assert main([str(word) for word in asked]) == 0
    return table(clean), table(out)


def test_a_share_of_the_steps_is_wrong_in_what_was_asked_for_and_nothing_else(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    before, after = corrupted(clean, tmp_path / "wrong", "--share", 0.33, "--seed", 3)
    changed = {name for name in before.column_names if before[name] != after[name]}
    assert "action" in changed and "next.reward" not in changed and "next.success" not in changed
    assert {name for name in changed if name != "action"} <= {n for n in before.column_names if n.startswith("obs")}
    differs = {name: (rows(before[name]) != rows(after[name])).any(1) for name in changed}
    assert all(int(own.sum()) == 132 for own in differs.values()), "0.33 of 400"
    assert len({own.tobytes() for own in differs.values()}) == 1, "the same steps in all"
    for name in changed - {"action"}:
        error = np.abs(rows(after[name]) - rows(before[name]))
        spread = rows(before[name]).std(0)
        assert (error <= spread + 1e-4).all(), "at most a standard deviation of the whole set"
        assert (error[differs[name]].max(0) > 0.9 * spread).all() and (error[differs[name]].min(0) < 0.1 * spread).all()
    assert np.abs(rows(after["action"])).max() <= 1.0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])["changed"]
    assert said[0].startswith("actions of 132 of 400 steps are wrong")
    extra = json.loads((tmp_path / "wrong" / "meta" / "info.json").read_text())
    assert '"corrupted": {"scale": 1.0, "share": 0.33, "what": ["actions", "observations"]}' in json.dumps(
        extra, sort_keys=True
    )


def test_rewards_are_drawn_within_the_scale_and_two_seeds_draw_others(clean: Path, tmp_path: Path) -> None:
    words = ("--share", 0.5, "--what", "rewards", "--scale", 2)
    before, after = corrupted(clean, tmp_path / "one", *words)
    assert {name for name in before.column_names if before[name] != after[name]} == {"next.reward"}
    wrong = rows(after["next.reward"])[(rows(before["next.reward"]) != rows(after["next.reward"]))[:, 0]]
    assert len(wrong) == 200 and wrong.min() < -1.8 and wrong.max() > 1.8 and np.abs(wrong).max() <= 2.0
    again = corrupted(clean, tmp_path / "again", *words)[1]
    assert again == after
    other = corrupted(clean, tmp_path / "other", *words, "--seed", 1)[1]
    assert other["next.reward"] != after["next.reward"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--share", "0"), "--share: got 0.0, expected a share in (0, 1]"),
        (("--share", "0.001"), "--share: got 0.001 of 400 steps, expected a step at least"),
        (("--share", "0.5", "--what"), "--what"),
        (("--share", "0.5", "--what", "actions", "actions"), "--what: got actions actions, expected different ones"),
        (("--share", "0.5", "--scale", "0"), "--scale: got 0.0"),
    ],
)
def test_a_corruption_that_is_none_is_refused(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture, words: tuple[str, ...], says: str
) -> None:
    assert main(["dataset", "edit", "corrupt", str(clean), "--out", str(tmp_path / "x"), *words]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1 and not (tmp_path / "x").exists()
