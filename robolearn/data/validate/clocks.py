"""Time: the grid of the frame rate, and the raw timestamps of the sources."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from robolearn.data.lerobot.features import FRAME, STAMP, key_of, stamp_name
from robolearn.data.validate.finding import Finding, Limits, frames_text, runs
from robolearn.data.validate.opened import Opened, Rows

PERIODS = 3  # a stamp may stand still or jump by this many control periods, if that is more than `gap_s`


def grid(data: Opened, limits: Limits) -> Iterator[Finding]:
    """timestamp = frame_index / fps, always forwards."""
    for rows in data.episodes.values():
        stamps = rows.columns.get("timestamp")
        if stamps is None or not len(stamps):
            continue
        stamps = stamps.astype(np.float64)
        back = np.diff(stamps, prepend=-np.inf) <= 0
        for first, last in runs(back):
            what = f"timestamp {stamps[first]:.4f} s after {stamps[first - 1]:.4f} s{frames_text(first, last)}"
            yield Finding("time goes back", what, rows.file, rows.index, first)
        expected = np.arange(len(stamps)) / data.fps
        # float32 itself is coarser than the tolerance after some minutes.
        allowed = limits.grid_s + np.spacing(expected.astype(np.float32))
        for first, last in runs((np.abs(stamps - expected) > allowed) & ~back):
            what = f"timestamp {stamps[first]:.4f} s, expected {expected[first]:.4f} s{frames_text(first, last)}"
            yield Finding("off the grid", what, rows.file, rows.index, first)


def sources(data: Opened, limits: Limits) -> Iterator[Finding]:
    """Raw timestamps go forwards, but for what two clocks may differ by that were read one after the other; those of
    what is observed neither stand still nor jump.

    A device or a gripper need not have a new message in every frame.
    """
    allowed = max(limits.gap_s, PERIODS / data.fps)
    steady = {FRAME, *(key_of(name) for name in data.info["features"] if name.startswith("observation."))}
    for rows in data.episodes.values():
        for key, values in rows.columns.items():
            if key.startswith(STAMP) and values.ndim == 1 and np.isfinite(values).all():
                for first, last in runs(np.diff(values) < -limits.back_s):
                    then, now = values[first], values[first + 1]
                    what = f"{key} {now:.4f} s after {then:.4f} s, {then - now:.3g} s less"
                    what += frames_text(first + 1, last + 1)
                    yield Finding("time goes back", what, rows.file, rows.index, first + 1)
                if stamp_name(key) in steady:
                    # 0 stands for no message yet; but a clock may begin at 0, too.
                    since = int((values != 0).argmax()) if len(values) else 0
                    begin = since if since and values[since] > allowed else 0
                    yield from _source(rows, key, values, begin, allowed)


def _source(rows: Rows, key: str, values: np.ndarray, begin: int, allowed: float) -> Iterator[Finding]:
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
            yield Finding("frozen clock", what, rows.file, rows.index, begin + first + 1)
            still[first : last + 2] = True
    for first, _ in runs((step > allowed) & ~still[:-1]):
        what = f"{key} jumps by {step[first]:.3f} s, expected at most {allowed:.3f} s"
        yield Finding("gap", what, rows.file, rows.index, begin + first + 1)
