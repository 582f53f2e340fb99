"""Statistics against numpy and against numbers by hand."""

from __future__ import annotations

import numpy as np

from robolearn.data.lerobot.statistics import QUANTILES, aggregate, describe, describe_many, merge, split


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
    weights = np.array([10, 20, 30, 40]) / 100
    by_hand = sum(w * d["q90"] for w, d in zip(weights, described, strict=True))
    assert np.allclose(total["q90"], by_hand) and np.allclose(step["q90"], by_hand)


def test_many_features_at_once():
    rng = np.random.default_rng(2)
    frames = {"a": rng.normal(size=(9, 2)), "done": rng.random(9) < 0.5, "index": np.arange(9)}
    together = describe_many(frames)
    assert np.allclose(together["a"]["q10"], describe(frames["a"])["q10"])
    assert together["index"]["max"].tolist() == [8] and together["done"]["count"].tolist() == [9]
    side_by_side = describe(np.concatenate([a.reshape(9, -1) for a in frames.values()], axis=1, dtype=float))
    assert split(side_by_side, {"a": 2, "done": 1, "index": 1})["a"]["mean"].shape == (2,)
