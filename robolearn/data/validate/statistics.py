"""Statistics: ``meta/stats.json`` and the rows of ``meta/episodes`` agree with the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.lerobot.features import NUMBERS
from robolearn.data.lerobot.statistics import describe
from robolearn.data.validate.finding import Finding, Limits
from robolearn.data.validate.opened import Opened

FILE = "meta/stats.json"
EXACT = ("min", "max", "mean", "std")  # quantiles of a whole set are an approximation by convention


def whole(data: Opened, limits: Limits) -> Iterator[Finding]:
    """``meta/stats.json``, when all tables can be read."""
    known = int(data.info["total_episodes"])
    if data.stats is None or not data.episodes or len(data.episodes) < max(known, len(data.rows)) or data.live:
        return  # a writer at work lets it lag
    for name, feature in data.info["features"].items():
        if feature.get("dtype") not in (*NUMBERS, "video", "image"):
            continue
        part = data.stats.get(name)
        if not isinstance(part, Mapping):
            if name == "action" or name.startswith("observation."):
                yield Finding("stats", f"nothing about {name}", FILE)
            continue
        if feature.get("dtype") in ("video", "image"):
            yield from _pixels(name, part)
            continue
        frames = [rows.columns[name] for rows in data.episodes.values() if name in rows.columns and rows.length]
        if not frames or len({values.shape[1:] for values in frames}) > 1:
            continue
        # Where info.json is behind, that is the fault.
        hint = "" if data.uncommitted else "; robolearn dataset repair brings it up to date"
        yield from _compare(name, part, np.concatenate(frames), FILE, None, hint)


def by_episode(data: Opened, limits: Limits) -> Iterator[Finding]:
    """``stats/…`` in the rows of ``meta/episodes``: the features that policies are normalised by."""
    for row in data.rows:
        rows = data.episodes.get(row["episode_index"])
        if rows is None or not rows.length:
            continue
        for name, values in rows.columns.items():
            if name != "action" and not name.startswith("observation."):
                continue
            part = {key: row.get(f"stats/{name}/{key}") for key in (*EXACT, "count")}
            if None not in part.values():
                yield from _compare(name, part, values, row["file"], row["episode_index"])


def _compare(
    name: str, part: Mapping[str, Any], values: NDArray, file: str, episode: int | None, hint: str = ""
) -> Iterator[Finding]:
    matrix = values.reshape(len(values), -1).astype(np.float64)
    if not np.isfinite(matrix).all():
        return  # a finding of its own
    count = np.ravel(part.get("count", ())).tolist()
    if count != [len(matrix)]:
        yield Finding("stats", f"{name}: of {count} frames, there are {len(matrix)}{hint}", file, episode)
        return
    exact = describe(matrix)
    scale = np.maximum(exact["max"] - exact["min"], np.abs(exact["mean"])) + 1e-6
    for key in EXACT:
        try:
            stored = np.asarray(part[key], np.float64).reshape(-1)
        except (KeyError, TypeError, ValueError):
            yield Finding("stats", f"{name}: no {key}", file, episode)
            continue
        if stored.shape != exact[key].shape:
            what = f"{name}: {key} has {len(stored)} components, expected {len(exact[key])}"
            yield Finding("stats", what, file, episode)
        elif (np.abs(stored - exact[key]) > 1e-3 * scale).any() or not np.isfinite(stored).all():
            at = int((np.abs(stored - exact[key]) / scale).argmax())
            what = f"{name}: {key} of component {at} is {stored[at]:.6g}, of the frames it is {exact[key][at]:.6g}"
            yield Finding("stats", what, file, episode)


def _pixels(name: str, part: Mapping[str, Any]) -> Iterator[Finding]:
    """Of images: the shape (3, 1, 1), and values in [0, 1]."""
    for key in EXACT:
        try:
            stored = np.asarray(part[key], np.float64)
        except (KeyError, TypeError, ValueError):
            yield Finding("stats", f"{name}: no {key}", FILE)
            continue
        if stored.ndim != 3 or stored.shape[1:] != (1, 1):
            yield Finding("stats", f"{name}: {key} has the shape {stored.shape}, expected (3, 1, 1)", FILE)
        elif not (np.isfinite(stored).all() and stored.min() >= 0 and stored.max() <= 1 + 1e-6):
            yield Finding("stats", f"{name}: {key} is not in [0, 1]", FILE)
