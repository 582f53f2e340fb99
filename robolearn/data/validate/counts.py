"""Episodes and frames: as many as every file has it, in order, none empty, none twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.reading.weights import read_weights
from robolearn.data.validate.finding import Finding, Limits, runs
from robolearn.data.validate.opened import Opened
from robolearn.data.writing.steps import unfinished_steps
from robolearn.io.hashes import sha256

INFO = "meta/info.json"


def counts(data: Opened, limits: Limits) -> Iterator[Finding]:
    """Totals of info.json against meta/episodes against the tables."""
    total, frames = int(data.info["total_episodes"]), int(data.info["total_frames"])
    indices = [row["episode_index"] for row in data.rows]
    if not total:
        yield Finding("counts", "no episodes", INFO)
    if data.uncommitted:
        hint = "; robolearn dataset repair counts those that are whole" if data.ours else ""
        yield Finding("counts", f"{data.uncommitted} rows beyond total_episodes, which is {total}{hint}", INFO)
    lacking = np.ones(total, bool)
    lacking[[index for index in indices if 0 <= index < total]] = False
    hint = "; robolearn dataset repair makes it again from the frames and the videos" if data.ours else ""
    for first, last in runs(lacking):
        if not data.lost_rows:  # a finding of its own
            until = "" if first == last else f" (until episode {last})"
            yield Finding("counts", f"no row in meta/episodes{until}{hint}", "", first)
    for index in sorted({i for i in indices if indices.count(i) > 1} if len(set(indices)) < len(indices) else ()):
        yield Finding("counts", "two rows in meta/episodes", "", index)
    sums = sum(row["length"] for row in data.rows)
    if len(data.rows) == total and sums != frames:
        yield Finding("counts", f"the episodes of meta/episodes have {sums} frames, total_frames is {frames}", INFO)
    if data.tasks is not None and len(data.tasks) < int(data.info["total_tasks"]):
        what = f"{len(data.tasks)} tasks, total_tasks is {data.info['total_tasks']}"
        yield Finding("counts", what, "meta/tasks.parquet")
    known = int(data.info["total_tasks"])
    start = 0
    for row in data.rows:
        index, length = row["episode_index"], row["length"]
        if length < 1:
            yield Finding("empty episode", f"length {length}", row["file"], index)
        if lacking.any():
            start = row.get("dataset_from_index", start)
        for key, expected in (("dataset_from_index", start), ("dataset_to_index", start + length)):
            if row.get(key) != expected:
                yield Finding("counts", f"{key} is {row.get(key)}, expected {expected}", row["file"], index)
        start += length
        rows = data.episodes.get(index)
        if rows is not None and rows.length != length:
            yield Finding("counts", f"{rows.length} frames, meta/episodes says {length}", rows.file, index)
        spoken = None if rows is None else rows.columns.get("task_index")
        if spoken is not None and len(spoken) and known <= spoken.max() < len(data.tasks or ()):
            yield Finding("counts", f"task_index is {spoken.max()}, total_tasks is {known}", INFO, index)


def order(data: Opened, limits: Limits) -> Iterator[Finding]:
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
                    yield Finding("order", what, rows.file, rows.index, at)
        start += row["length"]


def tasks(data: Opened, limits: Limits) -> Iterator[Finding]:
    """Every frame has a task that exists, in words."""
    if data.tasks is None:
        return
    for rows in data.episodes.values():
        values = rows.columns.get("task_index")
        if values is None or not len(values):
            continue
        wrong = np.flatnonzero(~((values >= 0) & (values < len(data.tasks)) & (values % 1 == 0)))  # NaN is a null
        if len(wrong):
            what = f"task_index is {values[wrong[0]]}, there are {len(data.tasks)} tasks"
            yield Finding("tasks", what, rows.file, rows.index, int(wrong[0]))
        elif not all(data.tasks[int(task)].strip() for task in np.unique(values)):
            yield Finding("tasks", "the task has no words", rows.file, rows.index)


def unfinished(data: Opened, limits: Limits) -> Iterator[Finding]:
    """No episode that a killed recording left half done."""
    if data.live:
        return
    running = data.root / layout.RUNNING_PATH
    aside = sorted(path for path in (data.root / layout.UNFINISHED_PATH).glob("*") if path.name.isdigit())
    # The number of a folder shows that its episode was finished only in .running: the set grows past one set aside.
    for folder, episodes in ((running, int(data.info["total_episodes"])), *((folder, 0) for folder in aside)):
        if steps := unfinished_steps(folder, episodes):
            what = f"an episode of {steps} steps was being recorded; robolearn dataset repair can save it"
            yield Finding("unfinished episode", what, str(folder.relative_to(data.root)))


def weights(data: Opened, limits: Limits) -> Iterator[Finding]:
    """Sampling weights, where there are any, are one per episode."""
    try:
        read_weights(data.root, int(data.info["total_episodes"]))
    except BadInput as error:
        yield Finding("weights", str(error).split(f"{layout.WEIGHTS_PATH}: ")[-1], layout.WEIGHTS_PATH)


def duplicates(data: Opened, limits: Limits) -> Iterator[Finding]:
    """No two episodes with the same actions and observations, to the bit."""
    seen: dict[str, int] = {}
    for rows in data.episodes.values():
        if not rows.length:
            continue
        compared = (key for key in sorted(rows.columns) if key == "action" or key.startswith("observation."))
        first = seen.setdefault(sha256(*(rows.columns[key] for key in compared)), rows.index)
        if first != rows.index:
            what = f"the same observations and actions as episode {first}"
            yield Finding("duplicate episode", what, rows.file, rows.index)
