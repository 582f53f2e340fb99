"""The table of learners from stored demonstrations: means over seeds, dips at the switch, and who is the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from robolearn.eval.best import Best, best_over_seeds
from robolearn.eval.intervals import over_seeds

HEADS = ("task", "learner", "seed", "offline, %", "first online, %", "dip, points", "at the end, %", "control steps",
         "CPU, s", "wall, s")  # fmt: skip
NONE = "-"


def row_of(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A learner's cells of a task, one a seed, and what they are over the seeds.

    Args:
      cells: each with ``offline`` and ``online``, successes, ``switch`` as `finetune` returns it, ``env_steps``,
        ``offline_s``, ``online_s`` and ``cpu_s``; what a seed lacks is None, and then no figure over the seeds.
    """
    each = {
        "offline": [cell["offline"]["rate"] for cell in cells],
        "online": [cell["online"] and cell["online"]["rate"] for cell in cells],
        "dip": [cell["switch"] and cell["switch"]["dip"] for cell in cells],
        **{key: [cell[key] for cell in cells] for key in ("env_steps", "offline_s", "online_s", "cpu_s")},
    }
    over = {key: _over(key, values) for key, values in each.items()}
    dips = [dip for dip in each["dip"] if dip is not None]
    return {"cells": list(cells), **over, "largest_dip": max(dips, default=None)}


def _over(key: str, values: Sequence[float | None]) -> dict[str, Any] | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return over_seeds(known, rates=key in ("offline", "online"), times=key.endswith("_s")).to_json()


def best_of(rows: Sequence[Mapping[str, Any]], task: str, phase: str) -> Best:
    """The best in a task after the phase ``offline`` or ``online``; imitation stands where it was."""
    values = {}
    for row in rows:
        if row["task"] == task:
            values[row["learner"]] = [(cell[phase] or cell["offline"])["rate"] for cell in row["cells"]]
    return best_over_seeds(values)


def shown(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row over its seeds, for people."""
    dip = row["dip"] and f"{_points(row['dip'])}, largest {100 * row['largest_dip']:.1f}"
    seconds = [row["cpu_s"] and f"{row['cpu_s']['mean']:,.0f}", _wall(row["offline_s"], row["online_s"])]
    offline = f"{_points(row['offline'])}; {100 * row['offline']['median']:.1f}"
    online = row["online"] and f"{_points(row['online'])}; {100 * row['online']['median']:.1f}"
    steps = f"{row['env_steps']['mean']:,.0f}"
    counted = f"{len(row['cells'])} seeds" if len(row["cells"]) > 1 else "one seed"
    return tuple(text or NONE for text in (row["task"], row["learner"], counted, offline, "", dip, online, steps,
                                           *seconds))  # fmt: skip


def shown_seeds(row: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """A line for each seed of a row."""
    for cell in row["cells"]:
        switch = cell["switch"]
        first = switch and " ".join(f"{100 * rate:.1f}" for rate in switch["online"])
        wall = cell["offline_s"] is not None and cell["offline_s"] + (cell["online_s"] or 0.0)
        yield (
            row["task"], row["learner"], str(cell["seed"]), _rate(cell["offline"]), first or NONE,
            f"{100 * switch['dip']:.1f}" if switch else NONE, _rate(cell["online"]) if cell["online"] else NONE,
            f"{cell['env_steps']:,}", f"{cell['cpu_s']:,.0f}" if cell["cpu_s"] is not None else NONE,
            f"{wall:,.0f}" if wall else NONE,
        )  # fmt: skip


def _points(value: Mapping[str, Any]) -> str:
    """A share over seeds in percent: ``45.0 (38.1–51.9)``; below 0 ``-1.0 (-2.0 to 0.0)``."""
    mean = f"{100 * value['mean']:.1f}"
    if value["low"] is None:
        return mean
    low, high = (f"{100 * value[end]:.1f}" for end in ("low", "high"))
    return f"{mean} ({low} to {high})" if value["low"] < 0 else f"{mean} ({low}–{high})"


def _rate(success: Mapping[str, Any]) -> str:
    return f"{100 * success['rate']:.1f}"


def _wall(offline: Mapping[str, Any] | None, online: Mapping[str, Any] | None) -> str | None:
    return None if offline is None else f"{offline['mean'] + (online['mean'] if online else 0.0):,.0f}"
