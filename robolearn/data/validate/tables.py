"""Checks of the tables: counts and order, finite and bounded values, clocks, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.core.types import RATE_REFUSED
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.columns import clock_faults, extremes, judged, outliers, runs, stamped_rate_fault, still
from robolearn.data.lerobot.features import (
    FRAME,
    IMAGES,
    INTERFACE_KEY,
    NUMBERS,
    STAMP,
    key_of,
    stamp_column,
    stamp_name,
)
from robolearn.data.lerobot.statistics import describe
from robolearn.data.reading.loading import read_weights
from robolearn.data.validate.opened import Defect, Opened, Rows, Tolerances, frames_text
from robolearn.data.writing.steps import ACTION_TOLERANCE, unfinished_steps
from robolearn.io.hashes import sha256

INFO = "meta/info.json"


def _column(data: Opened, name: str) -> Iterator[tuple[Rows, NDArray]]:
    """Each episode that has rows of column `name`, with their values."""
    for rows in data.episodes.values():
        if name in rows.columns and len(rows.columns[name]):
            yield rows, rows.columns[name]


def counts(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """Totals of info.json against meta/episodes against the tables."""
    total, frames = int(data.info["total_episodes"]), int(data.info["total_frames"])
    indices = [row["episode_index"] for row in data.rows]
    if not total:
        yield Defect("counts", "no episodes", INFO)
    if data.uncommitted:
        hint = "; robolearn dataset repair counts those that are whole" if data.ours else ""
        yield Defect("counts", f"{data.uncommitted} rows beyond total_episodes, which is {total}{hint}", INFO)
    lacking = np.ones(total, bool)
    lacking[[index for index in indices if 0 <= index < total]] = False
    hint = "; robolearn dataset repair makes it again from the frames and the videos" if data.ours else ""
    for first, last in runs(lacking):
        if not data.lost_rows:  # a finding of its own
            until = "" if first == last else f" (until episode {last})"
            yield Defect("counts", f"no row in meta/episodes{until}{hint}", "", first)
    for index in sorted({i for i in indices if indices.count(i) > 1} if len(set(indices)) < len(indices) else ()):
        yield Defect("counts", "two rows in meta/episodes", "", index)
    sums = sum(row["length"] for row in data.rows)
    if len(data.rows) == total and sums != frames:
        yield Defect("counts", f"the episodes of meta/episodes have {sums} frames, total_frames is {frames}", INFO)
    known = int(data.info["total_tasks"])
    spoken = any(data.tasks or ())
    named = sum(bool(task) or not spoken for task in data.tasks or ())  # their numbers may have holes
    if data.tasks is not None and named < known:
        yield Defect("counts", f"{named} tasks, total_tasks is {known}", "meta/tasks.parquet")
    start = 0
    for row in data.rows:
        index, length = row["episode_index"], row["length"]
        if length < 1:
            yield Defect("empty episode", f"length {length}", row["file"], index)
        if lacking.any():
            start = row.get("dataset_from_index", start)
        for key, expected in (("dataset_from_index", start), ("dataset_to_index", start + length)):
            if row.get(key) != expected:
                yield Defect("counts", f"{key} is {row.get(key)}, expected {expected}", row["file"], index)
        start += length
        rows = data.episodes.get(index)
        if rows is not None and rows.length != length:
            yield Defect("counts", f"{rows.length} frames, meta/episodes says {length}", rows.file, index)
        used = None if rows is None else rows.columns.get("task_index")
        if named > known and used is not None and len(used) and known <= used.max() < len(data.tasks or ()):
            yield Defect("counts", f"task_index is {used.max()}, total_tasks is {known}", INFO, index)


def order(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """frame_index counts from 0 in every episode, index through the set."""
    start = 0
    lost = len(data.rows) < int(data.info["total_episodes"])
    for row in data.rows:
        rows = data.episodes.get(row["episode_index"])
        start = row.get("dataset_from_index", start) if lost else start
        if rows is not None:
            for key, first in (("frame_index", 0), ("index", start)):
                values = rows.columns.get(key)
                if values is None:
                    continue
                wrong = np.flatnonzero(values != first + np.arange(len(values)))
                if len(wrong):
                    at = int(wrong[0])
                    what = f"{key} is {values[at]}, expected {first + at} ({len(wrong)} frames are wrong)"
                    yield Defect("order", what, rows.file, rows.index, at)
        start += row["length"]


def tasks(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """Every frame has a task that exists, in words where any has some."""
    if data.tasks is None:
        return
    for rows, values in _column(data, "task_index"):
        wrong = np.flatnonzero(~((values >= 0) & (values < len(data.tasks)) & (values % 1 == 0)))  # NaN is a null
        if len(wrong):
            what = f"task_index is {values[wrong[0]]}, there are {len(data.tasks)} tasks"
            yield Defect("tasks", what, rows.file, rows.index, int(wrong[0]))
        elif any(data.tasks) and not all(data.tasks[int(task)].strip() for task in np.unique(values)):
            yield Defect("tasks", "the task has no words", rows.file, rows.index)


def unfinished(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """No episode that a killed recording left half done."""
    if data.live:
        return
    running = data.root / layout.RUNNING_PATH
    aside = sorted(path for path in (data.root / layout.UNFINISHED_PATH).glob("*") if path.name.isdigit())
    # The number of a folder shows that its episode was finished only in .running: the set grows past one set aside.
    for folder, episodes in ((running, int(data.info["total_episodes"])), *((folder, 0) for folder in aside)):
        if steps := unfinished_steps(folder, episodes):
            what = f"an episode of {steps} steps was being recorded; robolearn dataset repair can save it"
            yield Defect("unfinished episode", what, str(folder.relative_to(data.root)))


def weights(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """Sampling weights, where there are any, are one per episode."""
    try:
        read_weights(data.root, int(data.info["total_episodes"]))
    except BadInput as error:
        yield Defect("weights", str(error).split(f"{layout.WEIGHTS_PATH}: ")[-1], layout.WEIGHTS_PATH)


def duplicates(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """No two episodes with the same actions and observations, to the bit."""
    seen: dict[str, int] = {}
    for rows in data.episodes.values():
        if not rows.length:
            continue
        compared = (key for key in sorted(rows.columns) if key == "action" or key.startswith("observation."))
        first = seen.setdefault(sha256(*(rows.columns[key] for key in compared)), rows.index)
        if first != rows.index:
            what = f"the same observations and actions as episode {first}"
            yield Defect("duplicate episode", what, rows.file, rows.index)


def finite(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """No NaN and no infinity, anywhere."""
    for rows in data.episodes.values():
        for key, values in rows.columns.items():
            if values.dtype.kind != "f" or not len(values):
                continue  # `counts` names an episode without rows
            matrix = values.reshape(len(values), -1)
            for first, last in runs(np.isfinite(matrix).min(axis=1, initial=True) == 0):
                component = int(np.flatnonzero(~np.isfinite(matrix[first]))[0])
                name = f"component {component} " if matrix.shape[1] > 1 else ""
                what = f"{key}: {name}is {matrix[first, component]}{frames_text(first, last)}"
                yield Defect("not finite", what, rows.file, rows.index, first)


def bounded(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """Actions of sets that robolearn wrote lie in [-1, 1]; what others' mean is theirs."""
    if INTERFACE_KEY not in data.info:
        return
    for rows, values in _column(data, "action"):
        size = np.abs(np.nan_to_num(values.reshape(len(values), -1), nan=0.0, posinf=0.0, neginf=0.0))
        for first, last in runs(size.max(axis=1, initial=0.0) > 1.0 + ACTION_TOLERANCE):
            component = int(size[first].argmax())
            value = values.reshape(len(values), -1)[first, component]
            what = f"component {component} is {value:.6g}, expected [-1, 1]{frames_text(first, last)}"
            yield Defect("action range", what, rows.file, rows.index, first)


def _vectors(data: Opened) -> Iterator[tuple[str, list[Rows], list[NDArray]]]:
    """(feature, the episodes that have it, its values there) of the vectors that can be judged."""
    for name in data.info["features"]:
        if name == "action" or name.startswith("observation."):
            found = list(_column(data, name))
            values = [values for _, values in found]
            if judged(values):
                yield name, [rows for rows, _ in found], values


def outlying(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """No frame that alone sets the scale of what policies are normalised by."""
    for name, episodes, values in _vectors(data):
        for one in outliers(values):
            rows = episodes[one.episode]
            yield Defect("outlier", f"{name}: {one}", rows.file, rows.index, one.frame)


def wordless(data: Opened) -> Iterator[str]:
    """A set without any task in words: no fault, but a policy cannot be told what to do by it."""
    if data.tasks and not any(data.tasks):
        yield "no task has words; robolearn dataset edit rename-task gives it some"


def unchanging(data: Opened) -> Iterator[str]:
    """Components that never or hardly change: no fault, but nothing that a policy learns from either."""
    for name, _, values in _vectors(data):
        names = data.info["features"][name].get("names")
        named = isinstance(names, list) and len(names) == values[0].reshape(len(values[0]), -1).shape[1]
        for line in still(*extremes(values), [str(one) for one in names] if named else ()):
            yield f"these components of {name} {line}"


def unscaled(data: Opened) -> Iterator[str]:
    """Actions of another maker's set in units of their own: no fault, but training refuses them."""
    values = [values for _, values in _column(data, "action")]
    if INTERFACE_KEY in data.info or not values or not judged(values):
        return
    low, high = min(float(one.min()) for one in values), max(float(one.max()) for one in values)
    if not -1 - ACTION_TOLERANCE <= low <= high <= 1 + ACTION_TOLERANCE:
        way = f"`robolearn dataset import {data.root} --out …` writes such a set"
        yield f"the actions span {low:.4g} … {high:.4g}, and training takes [-1, 1]: {way}"


PERIODS = 3  # a stamp may stand still or jump by this many control periods, if that is more than `gap_s`


def grid(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """timestamp = frame_index / fps, always forwards."""
    for rows, stamps in _column(data, "timestamp"):
        for fault in clock_faults(stamps, data.fps, limits.grid_s):
            what = fault.what + frames_text(fault.first, fault.last)
            yield Defect(fault.check, what, rows.file, rows.index, fault.first)


def sources(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """Raw timestamps go forwards, but for what two clocks may differ by that were read one after the other; those of
    what is observed neither stand still nor jump.

    A device or a gripper need not have a new message in every frame.
    """
    usual = max(limits.gap_s, PERIODS / data.fps)
    pictured = max(usual, limits.picture_age_s + PERIODS / data.fps)
    steady = {FRAME, *(key_of(name) for name in data.info["features"] if name.startswith("observation."))}
    for rows in data.episodes.values():
        for key, values in rows.columns.items():
            if key.startswith(STAMP) and values.ndim == 1 and np.isfinite(values).all():
                for first, last in runs(np.diff(values) < -limits.back_s):
                    then, now = values[first], values[first + 1]
                    what = f"{key} {now:.4f} s after {then:.4f} s, {then - now:.3g} s less"
                    what += frames_text(first + 1, last + 1)
                    yield Defect("time goes back", what, rows.file, rows.index, first + 1)
                if (name := stamp_name(key)) in steady:
                    allowed = pictured if name.startswith(IMAGES) else usual
                    # 0 stands for no message yet; but a clock may begin at 0, too.
                    since = int((values != 0).argmax()) if len(values) else 0
                    begin = since if since and values[since] > allowed else 0
                    yield from _source(rows, key, values, begin, allowed)


def rates(data: Opened, limits: Tolerances) -> Iterator[Defect]:
    """Steps were made as often as they are played: ``stamp.action`` against the frame rate, over each episode."""
    for rows, stamps in _column(data, stamp_column("action")):
        what = stamped_rate_fault(stamps, data.fps, RATE_REFUSED)
        if np.isfinite(stamps).all() and what:
            yield Defect("rate", what, rows.file, rows.index)


def _source(rows: Rows, key: str, values: np.ndarray, begin: int, allowed: float) -> Iterator[Defect]:
    """One source from frame `begin` on, whose own steps give its usual rate."""
    stamps = values[begin:]
    step = np.diff(stamps)
    if not len(step):
        return
    usual = float(np.median(step[step > 0])) if (step > 0).any() else 0.0
    still = np.zeros(len(stamps), bool)
    for first, last in runs(step == 0):
        # How long it stood still is what the clock shows when it goes on, or as many steps as others take.
        count = last - first + 1
        jump = stamps[last + 2] - stamps[first] if last + 2 < len(stamps) else usual * (count + 1)
        stood = max(jump, usual * count)
        if stood > allowed or (usual == 0.0 and count >= PERIODS):
            what = f"{key} stays at {stamps[first]:.4f} s until frame {begin + last + 1}"
            yield Defect("frozen clock", what, rows.file, rows.index, begin + first + 1)
            still[first : last + 2] = True
    for first, _ in runs((step > allowed) & ~still[:-1]):
        what = f"{key} jumps by {step[first]:.3f} s, expected at most {allowed:.3f} s"
        yield Defect("gap", what, rows.file, rows.index, begin + first + 1)


FILE = "meta/stats.json"
EXACT = ("min", "max", "mean", "std")  # quantiles are bounds until a set is closed, and others' are averages


def whole(data: Opened, limits: Tolerances) -> Iterator[Defect]:
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
                yield Defect("stats", f"nothing about {name}", FILE)
            continue
        if feature.get("dtype") in ("video", "image"):
            yield from _pixels(name, part)
            continue
        frames = [rows.columns[name] for rows in data.episodes.values() if name in rows.columns and rows.length]
        if not frames or len({values.shape[1:] for values in frames}) > 1:
            continue
        # Where info.json is behind, that is the fault.
        cure = "repair brings it up to date" if data.ours else "import makes a set with statistics of its own"
        hint = "" if data.uncommitted else f"; robolearn dataset {cure}"
        yield from _compare(name, part, np.concatenate(frames), FILE, None, hint)


def by_episode(data: Opened, limits: Tolerances) -> Iterator[Defect]:
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
) -> Iterator[Defect]:
    matrix = values.reshape(len(values), -1).astype(np.float64)
    if not np.isfinite(matrix).all():
        return  # a finding of its own
    count = part.get("count", ())
    with suppress(ValueError):  # lists of different lengths
        count = np.ravel(count).tolist()
    if count != [len(matrix)]:
        yield Defect("stats", f"{name}: of {count} frames, there are {len(matrix)}{hint}", file, episode)
        return
    exact = describe(matrix)
    scale = np.maximum(exact["max"] - exact["min"], np.abs(exact["mean"])) + 1e-6
    for key in EXACT:
        try:
            stored = np.asarray(part[key], np.float64).reshape(-1)
        except (KeyError, TypeError, ValueError, OverflowError):
            yield Defect("stats", f"{name}: no {key}", file, episode)
            continue
        if stored.shape != exact[key].shape:
            what = f"{name}: {key} has {len(stored)} components, expected {len(exact[key])}"
            yield Defect("stats", what, file, episode)
        elif (np.abs(stored - exact[key]) > 1e-3 * scale).any() or not np.isfinite(stored).all():
            at = int((np.abs(stored - exact[key]) / scale).argmax())
            what = f"{name}: {key} of component {at} is {stored[at]:.6g}, of the frames it is {exact[key][at]:.6g}"
            yield Defect("stats", what, file, episode)


def _pixels(name: str, part: Mapping[str, Any]) -> Iterator[Defect]:
    """Of images: the shape (3, 1, 1), and values in [0, 1]."""
    for key in EXACT:
        try:
            stored = np.asarray(part[key], np.float64)
        except (KeyError, TypeError, ValueError):
            yield Defect("stats", f"{name}: no {key}", FILE)
            continue
        if stored.ndim != 3 or stored.shape[1:] != (1, 1):
            yield Defect("stats", f"{name}: {key} has the shape {stored.shape}, expected (3, 1, 1)", FILE)
        elif not (np.isfinite(stored).all() and stored.min() >= 0 and stored.max() <= 1 + 1e-6):
            yield Defect("stats", f"{name}: {key} is not in [0, 1]", FILE)


CHECKS = (
    counts,
    order,
    tasks,
    duplicates,
    unfinished,
    weights,
    finite,
    bounded,
    outlying,
    grid,
    sources,
    rates,
    whole,
    by_episode,
)
