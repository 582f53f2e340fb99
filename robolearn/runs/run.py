"""A run folder: ``runs/<name>/`` with configuration, metrics, TensorBoard events, state and policy.

config.json      the configuration; compared on --resume
metrics.jsonl    one line per logged step
tensorboard/     the same numbers for TensorBoard
state/           the exact training state (`robolearn.runs.checkpoint`)
policy/          the policy folder, whole at any moment at which it exists
result.json      written at the end; a run that has it is finished
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robolearn.core import BadInput
from robolearn.io.append_only import AppendOnlyFile
from robolearn.io.atomic import is_leftover, replace_folder, write_text
from robolearn.io.json_files import flatten, plain, read_json, write_json
from robolearn.io.locks import Lock, LockHeld, is_locked
from robolearn.io.paths import check_folder, no_such_folder
from robolearn.runs.trackers import Tracker, open_tracker

AXES = {"env_steps": "control steps", "gradient_steps": "gradient steps"}
"""Metrics that count what a run is paid for, and what they count: the x-axis of its curves, where it logs one."""

CONFIG, METRICS, RESULT = "config.json", "metrics.jsonl", "result.json"
CONTENT = "content"  # key of the hash of a data set's numbers and of the ends of its episodes
LOCK = ".lock"


class Run:
    """A run folder that this process works in. Use as a context manager, or `close` it.

    Attributes:
      path: the folder.
      config: the configuration as stored in ``config.json`` (plain JSON values).
      resumed: whether the folder was there before.
    """

    def __init__(self, path: Path, config: dict[str, Any], lock: Lock, *, resumed: bool) -> None:
        self.path = path
        self.config = config
        self.resumed = resumed
        self._lock = lock
        self._rows: AppendOnlyFile | None = None
        self.events: Any = None
        self._tracker: Tracker | None = None
        self._purge = 0

    @classmethod
    def create(
        cls,
        path: str | Path,
        config: Mapping[str, Any],
        *,
        resume: bool = False,
        may_differ: Iterable[str] = (),
        added: Iterable[str] = (),
        beside: Iterable[str] = (),
        longer: str = "",
    ) -> Run:
        """Start a run in `path`, or go on with the one that is there.

        Args:
          path: the run folder; made with its parents if need be.
          config: what identifies the run; anything `robolearn.io.json_files.plain` can turn into JSON.
          resume: go on with an existing run of the same configuration.
          may_differ: dotted names, e.g. ``"total"`` or ``"env"`` (with all below it), that a resumed run may
            change. Their new values are stored.
          added: dotted names that runs of earlier versions have not; a resumed one gets them.
          longer: dotted name of the setting that says how long the run is: a finished one may be resumed with more.
          beside: names in the folder that others write, and that do not count as content.

        Raises:
          BadInput: the folder has content and `resume` is false; it has no ``config.json`` and `resume` is true;
            a live process works in it; the configuration differs from the stored one.
        """
        path = Path(path)
        wanted = plain(dict(config))
        check_new(path, resume, beside)
        path.mkdir(parents=True, exist_ok=True)
        lock = _locked(path)
        try:
            # Again, now that no other process can write: another process may have begun a run in between.
            check_new(path, resume, beside)
            if resume:
                stored = read_json(path / CONFIG, what=f"run {path}")
                more = bool(longer) and _is_longer(path, stored, wanted, longer)
                may = (*may_differ, *([longer] if more else ()), *(set(added) - flatten(stored).keys()))
                check_same(stored, wanted, f"run {path}", may)
            if not resume or stored != wanted:
                write_json(path / CONFIG, wanted)
            if resume and more:
                (path / RESULT).unlink(missing_ok=True)  # it is not finished any more
        except BaseException:
            lock.release()
            raise
        return cls(path, wanted, lock, resumed=resume)

    @property
    def state_dir(self) -> Path:
        """Folder of the training state of `robolearn.runs.checkpoint`."""
        return self.path / "state"

    @property
    def policy_dir(self) -> Path:
        """The policy folder."""
        return self.path / "policy"

    def export(self, write: Callable[[Path], object]) -> None:
        """Write the policy folder with `write`, which fills a new one; a kill leaves the one before it, or none."""
        beside = self.path / ".policy.new"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        write(beside)
        replace_folder(beside, self.policy_dir)

    def track(self, name: str) -> None:
        """Send metrics to `name` too, one of `robolearn.runs.trackers.TRACKERS`; to nowhere else for ``none``."""
        self._tracker = open_tracker(name, self.path, self.config)

    def rewind(self, step: int) -> None:
        """Forget the metrics of `step` and later: a resumed run computes them again. Call before `log`."""
        path = self.path / METRICS
        if not path.exists():
            return
        kept = [row for row in read_metrics(path) if row["step"] < step]
        self._purge = axis(kept[-1])[0] + 1 if kept else 0
        write_text(path, "".join(json.dumps(row) + "\n" for row in kept))

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one row to ``metrics.jsonl`` and to the TensorBoard events. Steps are logged in rising order.

        TensorBoard's x-axis are control or gradient steps, where `metrics` has them (`AXES`), else `step`.
        """
        row = plain({"step": step, **metrics})
        if self._rows is None:
            self._rows = AppendOnlyFile(self.path / METRICS)
        self._rows.append((json.dumps(row, allow_nan=False) + "\n").encode())
        if self.events is None:
            # Late, because it brings torch along, which a mere look at a run does not need.
            from torch.utils.tensorboard import SummaryWriter

            purge = self._purge if self.resumed else None
            self.events = SummaryWriter(str(self.path / "tensorboard"), purge_step=purge, flush_secs=10)
        at = axis(row)[0]
        numbers = {key: value for key, value in row.items() if key != "step" and isinstance(value, int | float)}
        for key, value in numbers.items():
            self.events.add_scalar(key, value, at)
        if self._tracker is not None:
            self._tracker.log(at, numbers)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Store `result` as ``result.json``, which marks the run as finished."""
        write_json(self.path / RESULT, dict(result))

    def close(self) -> None:
        """Flush everything and let the folder go. Safe to call twice."""
        rows, events, tracker = self._rows, self.events, self._tracker
        self._rows = self.events = self._tracker = None
        try:
            if rows is not None:
                rows.close()
            if events is not None:
                events.close()
            if tracker is not None:
                tracker.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def axis(row: Mapping[str, Any]) -> tuple[int, str]:
    """Position of a row of the metrics, and its unit: control steps, gradient steps or iterations."""
    for name, unit in AXES.items():
        if isinstance(row.get(name), int | float):
            return int(row[name]), unit
    return row["step"], "iterations"


def read_metrics(path: str | Path) -> Iterator[dict[str, Any]]:
    """The rows of a run's ``metrics.jsonl`` (the file or the run folder), oldest first.

    A last line that a kill cut short is left out, and so is anything else that is no row.
    """
    path = Path(path)
    try:  # not tested first: a run that starts makes its folder at any moment
        file = (path / METRICS).open(encoding="utf-8", errors="replace")
    except NotADirectoryError:
        file = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and type(row.get("step")) is int:
                yield row


Status = Literal["in use", "finished", "resumable"]


@dataclass(frozen=True)
class RunInfo:
    """A run as seen from outside.

    Attributes:
      path: the run folder.
      status: a live process works in it, it has its result, or ``--resume`` would go on with it.
      step: the last logged iteration, or None.
      done: how far that is, in `unit`, or None.
      unit: what `done` counts: control steps, gradient steps or iterations.
      wall_s: seconds of work up to that step, or None where they were not logged.
      modified: when something last changed [s since the epoch].
    """

    path: Path
    status: Status
    step: int | None
    done: int | None
    unit: str
    wall_s: float | None
    modified: float


def is_run(path: Path) -> bool:
    """True where `path` is a run folder. (A policy folder has a ``config.json`` too, but neither of the others.)"""
    return (path / CONFIG).is_file() and ((path / LOCK).exists() or (path / METRICS).exists())


def inspect_run(path: str | Path) -> RunInfo:
    """Look at a run without touching it. Raises `BadInput`: `path` is not a run folder."""
    path = Path(path)
    if not is_run(path):
        said = "that is no run folder" if path.is_dir() else no_such_folder(path)
        raise BadInput(f"run {path}: {said}", hint="robolearn runs lists those that there are")
    status: Status = "in use" if is_locked(path / LOCK) else "finished" if (path / RESULT).exists() else "resumable"
    last: dict[str, Any] = {}
    for row in read_metrics(path):
        last = row
    done, unit = axis(last) if last else (None, "iterations")
    return RunInfo(path, status, last.get("step"), done, unit, last.get("wall_s"), _last_change(path))


def _last_change(path: Path) -> float:
    changed = []
    for entry in path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a live run replaces its policy at any moment
            changed.append(entry.stat().st_mtime)
    return max(changed, default=time.time())


def find_runs(folder: str | Path, depth: int = 3) -> list[RunInfo]:
    """The runs in `folder` and up to `depth` levels below, by path: those of a sweep lie in its settings' folders."""
    found: list[RunInfo] = []
    for path in sorted(p for p in Path(folder).iterdir() if p.is_dir() and not p.name.startswith(".")):
        if is_run(path):
            found.append(inspect_run(path))
        if depth > 1:
            found.extend(find_runs(path, depth - 1))
    return found


def _locked(path: Path) -> Lock:
    try:
        return Lock(path / LOCK)
    except LockHeld as held:
        got, hint = f"in use by process {held.holder}", "Wait for it, stop it, or name another --out"
        raise BadInput(f"run {path}", got=got, expected="a run that no process works on", hint=hint) from None


def check_new(path: Path, resume: bool, beside: Iterable[str] = ()) -> None:
    """Raise `BadInput` unless a run can begin in `path`, or go on there; see `Run.create`."""
    check_folder(path, f"run {path}")
    # What a kill before the first config.json leaves does not count: such a folder is still empty.
    entries = list(path.iterdir()) if path.is_dir() else []
    content = {entry.name for entry in entries if entry.name != LOCK and not is_leftover(entry, CONFIG)}
    content -= set(beside)
    if resume and CONFIG not in content:
        raise BadInput(f"run {path}: there is nothing to resume in it (no {CONFIG})", hint="Start it without --resume")
    if content and not resume:
        holder = " and in use" if is_locked(path / LOCK) else ""
        got, hint = f"a folder that is not empty{holder}", "--resume goes on with it, another --out starts afresh"
        raise BadInput(f"run {path}", got=got, expected="a new one", hint=hint)


def check_same(stored: dict[str, Any], wanted: dict[str, Any], what: str, may_differ: tuple[str, ...] = ()) -> None:
    """Raise `BadInput` for the first setting of `what` that is not as it is `stored`. `may_differ`: dotted names that
    are not compared, with all below them."""
    for key, value in wanted.items():
        if key in stored and isinstance(value, dict) != isinstance(stored[key], dict):
            raise BadInput(what, got="one of another version of robolearn", hint="Start another --out")
    had, has = stored.get("command"), wanted.get("command")
    if isinstance(had, str) and isinstance(has, str) and had != has:
        raise BadInput(f"{what}: it is one of robolearn {had}, not of robolearn {has}", hint="Start another --out")
    old, new = flatten(stored), flatten(wanted)
    for key in sorted(old.keys() | new.keys()):
        if any(key == name or key.startswith(name + ".") for name in may_differ):
            continue
        if key not in old or key not in new or old[key] != new[key]:
            got, was = (json.dumps(flat[key]) if key in flat else "nothing" for flat in (new, old))
            if key.split(".")[-1] == CONTENT:  # a hash of the numbers of a data set
                got, was = f"other data ({got[1:9]})", f"the data ({was[1:9]})"
            expected, hint = f"{was}, as when the run began", "Resume with the same settings, or start another --out"
            raise BadInput(f"{what}: configuration {key!r}", got=got, expected=expected, hint=hint)


def _is_longer(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any], name: str) -> bool:
    """True where the run in `path` is finished, and more is asked for now than it had."""
    if not (path / RESULT).exists():
        return False
    had, asked = flatten(stored).get(name), flatten(wanted).get(name)
    return isinstance(had, int) and isinstance(asked, int) and asked > had
