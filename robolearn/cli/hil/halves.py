"""A half of ``hil run`` that has ended: what it said, and what is left of a run that it refused."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from robolearn.cli.hil.learner import SPOOL
from robolearn.core import BadInput, RobolearnError

SAID = "robolearn: error: "  # how a command's one sentence begins


def ended(name: str, code: int, logs: Path) -> RobolearnError:
    """The error of the half `name`, which ended with `code`: its own sentence where its log has one."""
    from robolearn.deploy.processes import NodeDied

    try:
        lines = [line for line in (logs / f"{name}.log").read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    said = [line.removeprefix(SAID) for line in lines if line.startswith(SAID)]
    error = RobolearnError(said[-1]) if said and code > 0 else NodeDied(name, code, lines[-1] if lines else "")
    if code == BadInput.exit_code:
        error.exit_code = code
    else:
        error.add_note(f"logs: {logs}")
    return error


@contextlib.contextmanager
def tidied(out: Path) -> Iterator[None]:
    """Within, input that is refused before anything was played leaves in the run folder `out` what was there before."""
    there = set(os.listdir(out)) if out.is_dir() else None
    try:
        yield
    except RobolearnError as error:
        if error.exit_code == BadInput.exit_code and out.is_dir() and not _played(out):
            for name in set(os.listdir(out)) - (there or set()):
                path = out / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if there is None:
                out.rmdir()
        raise


def _played(out: Path) -> bool:
    """Whether there are an episode in the metrics or a step in an outbox."""
    from robolearn.data.replay.records import SUFFIX
    from robolearn.io.append_only import records
    from robolearn.runs import read_metrics

    spools = (out / SPOOL).glob(f"*{SUFFIX}")
    return any(True for _ in read_metrics(out)) or any(True for path in spools for _ in records(path))
