"""Statistics against numpy and against numbers by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import ArraySpec, Interface
from robolearn.data import EpisodeWriter
from robolearn.data.lerobot import statistics
from robolearn.data.lerobot.statistics import (
    QUANTILES,
    aggregate,
    describe,
    describe_many,
    merge,
    split,
    weighted_quantiles,
)
from robolearn.data.validate import validate
from robolearn.data.writing import locked_dataset


def test_by_hand():
    stats = describe(np.array([[0.0], [1.0], [2.0], [3.0], [4.0]]))
    assert stats["mean"] == 2 and stats["std"] == np.sqrt(2) and stats["count"].tolist() == [5]
    assert (stats["min"], stats["max"], stats["q50"]) == (0, 4, 2)
    assert np.allclose([stats["q10"][0], stats["q99"][0]], [0.4, 3.96])


def test_one_frame():
    stats = describe(np.array([[3.0, -1.0]]))
    assert all(stats[name].tolist() == [3, -1] for name in ("min", "max", "mean", *QUANTILES))
    assert stats["std"].tolist() == [0, 0]


def test_against_numpy():
    frames = np.random.default_rng(0).normal(size=(57, 4)).astype(np.float32)
    stats = describe(frames)
    for name, q in QUANTILES.items():
        assert np.allclose(stats[name], np.quantile(frames.astype(float), q, axis=0))
    assert np.allclose(stats["std"], frames.astype(float).std(0))


def test_many_numbers_are_described_as_few_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Component by component, and a set's by pieces of its files."""
    frames = np.random.default_rng(0).normal(size=(57, 4)).astype(np.float32)
    together = describe(frames)
    monkeypatch.setattr(statistics, "AT_ONCE", 8)
    apart = describe(frames)
    assert all(np.allclose(apart[name], together[name], rtol=1e-12, atol=1e-15) for name in together)
    assert apart["count"].tolist() == [57]
    monkeypatch.setattr(locked_dataset, "STATS_BYTES", 2 * 8 * 57)
    monkeypatch.setattr(locked_dataset, "DATA_BYTES", 100)
    interface = Interface({"proprio": ArraySpec((4,)), "one": ArraySpec((1,))}, ArraySpec((1,)), 10, "so101", "native")
    with EpisodeWriter(tmp_path / "set", interface) as writer:
        for rows in np.array_split(frames, 5):
            for row in rows:
                writer.add({"proprio": row, "one": row[:1]}, np.clip(row[:1], -1, 1))
            writer.end(success=True, task="reach")
    stored = json.loads((tmp_path / "set/meta/stats.json").read_text())
    for name, wanted in (("observation.state", frames), ("observation.one", frames[:, :1])):
        for key, q in QUANTILES.items():
            assert np.allclose(stored[name][key], np.quantile(wanted.astype(float), q, axis=0))
        assert np.allclose(stored[name]["std"], wanted.astype(float).std(0)) and stored[name]["count"] == [57]


def test_aggregate_is_exact_but_for_quantiles():
    rng = np.random.default_rng(1)
    parts = [rng.normal(i, 1 + i, size=(10 * (i + 1), 3)) for i in range(4)]
    described = [describe(part) for part in parts]
    whole = describe(np.concatenate(parts))
    total = aggregate({name: np.stack([d[name] for d in described]) for name in whole})
    step = described[0]
    for part in described[1:]:
        step = merge(step, part)
    for name in ("min", "max", "mean", "std", "count"):
        assert np.allclose(total[name], whole[name]) and np.allclose(step[name], whole[name])
    for merged in (total, step):
        for q in (0.01, 0.1):
            assert (merged[f"q{round(100 * q):02d}"] <= np.quantile(np.concatenate(parts), q, axis=0)).all()
        for q in (0.9, 0.99):
            assert (merged[f"q{round(100 * q):02d}"] >= np.quantile(np.concatenate(parts), q, axis=0)).all()
    assert np.allclose(total["q99"], described[-1]["q99"]), "the widest part, which the mean of all would hide"


def test_frames_that_count_more_than_others():
    """0, 1, 2 of the weights 1, 1, 2 stand at 1/2, 3/2, 3: that is 0, 2/5, 1 of the way."""
    frames = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 2.0]])
    found = weighted_quantiles(frames, np.array([2.0, 1.0, 1.0]))
    assert np.allclose(found["q50"], [1 + 0.1 / 0.6, 0.5 / 0.6])  # the second stands at 1, 5/2, 7/2: 0, 3/5, 1
    alike = np.random.default_rng(3).normal(size=(57, 4))
    whole = describe(alike)
    assert all(np.allclose(values, whole[name]) for name, values in weighted_quantiles(alike, np.full(57, 0.3)).items())
    assert all(
        values.tolist() == [3, -1] for values in weighted_quantiles(np.array([[3.0, -1.0]]), np.ones(1)).values()
    )


def test_many_features_at_once():
    rng = np.random.default_rng(2)
    frames = {"a": rng.normal(size=(9, 2)), "done": rng.random(9) < 0.5, "index": np.arange(9)}
    together = describe_many(frames)
    assert np.allclose(together["a"]["q10"], describe(frames["a"])["q10"])
    assert together["index"]["max"].tolist() == [8] and together["done"]["count"].tolist() == [9]
    side_by_side = describe(np.concatenate([a.reshape(9, -1) for a in frames.values()], axis=1, dtype=float))
    assert split(side_by_side, {"a": 2, "done": 1, "index": 1})["a"]["mean"].shape == (2,)


def test_a_set_of_unlike_episodes_has_the_quantiles_of_its_frames(tmp_path: Path) -> None:
    """Half of the episodes rest, half reach far: the mean of their quantiles lies in neither."""
    rng, frames = np.random.default_rng(0), []
    interface = Interface({"proprio": ArraySpec((2,)), "count": ArraySpec((1,), "int64")}, ArraySpec((1,)), 10.0)
    for part in range(2):  # the second writer goes on with the set
        with EpisodeWriter(tmp_path / "set", interface, resume=part == 1) as writer:
            for e in range(3):
                values = (rng.normal(size=(40, 2)) * (1 if e else 40)).astype(np.float32)
                frames.append(values)
                for t, row in enumerate(values):
                    writer.add({"proprio": row, "count": [t]}, [0.0])
                writer.end(success=True, task="reach")
    stored = json.loads((tmp_path / "set/meta/stats.json").read_text())
    for name, q in QUANTILES.items():
        np.testing.assert_allclose(
            stored["observation.state"][name], np.quantile(np.concatenate(frames), q, axis=0), 1e-6
        )
        np.testing.assert_allclose(stored["index"][name], [np.quantile(np.arange(240), q)])
    assert list(validate(tmp_path / "set")) == []
