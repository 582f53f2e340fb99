"""Values: finite, and actions in [-1, 1]."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from robolearn.data.lerobot.features import INTERFACE_KEY
from robolearn.data.validate.finding import Finding, Limits, frames_text, runs
from robolearn.data.validate.opened import Opened
from robolearn.data.writing.checks import ACTION_TOLERANCE


def finite(data: Opened, limits: Limits) -> Iterator[Finding]:
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
                yield Finding("not finite", what, rows.file, rows.index, first)


def bounded(data: Opened, limits: Limits) -> Iterator[Finding]:
    """Actions of sets that robolearn wrote lie in [-1, 1]; what others' mean is theirs."""
    if INTERFACE_KEY not in data.info:
        return
    for rows in data.episodes.values():
        values = rows.columns.get("action")
        if values is None or not len(values):
            continue
        size = np.abs(np.nan_to_num(values.reshape(len(values), -1), nan=0.0, posinf=0.0, neginf=0.0))
        for first, last in runs(size.max(axis=1, initial=0.0) > 1.0 + ACTION_TOLERANCE):
            component = int(size[first].argmax())
            value = values.reshape(len(values), -1)[first, component]
            what = f"component {component} is {value:.6g}, expected [-1, 1]{frames_text(first, last)}"
            yield Finding("action range", what, rows.file, rows.index, first)
