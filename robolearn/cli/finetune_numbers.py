"""Numbers of a fine-tuning, from the metrics of its run: success, rewarded and withheld episodes, wall times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KINDS = ("episodes", "along_episodes", "pushed_episodes")
LAST = 5  # iterations whose rollouts are counted together at the end
AFTER = 3  # evaluations after the switch from offline to online


def standing(iteration: int, row: Mapping[str, Any]) -> str:
    """The iteration and the success of its rollouts, which explore, in a line."""
    success = float(row.get("success", math.nan))
    said = f": {100 * success:.0f}% success with exploration noise" if math.isfinite(success) else ""
    return f"iteration {iteration}{said}"


def last_success(run: Path) -> dict[str, Any] | None:
    """Success of the rollouts of a run's last `LAST` iterations; None where the world reports none."""
    from robolearn.eval import Success
    from robolearn.runs.run import read_metrics

    rows = [row for row in list(read_metrics(run))[-LAST:] if row.get("success") is not None]
    episodes = round(sum(row["episodes"] for row in rows))
    if not episodes:
        return None
    return Success.of(round(sum(row["success"] * row["episodes"] for row in rows)), episodes).to_json()


def switched(run: Path) -> dict[str, Any] | None:
    """Success before and after a run's first control step, by the evaluations on its way: the last one offline, the
    first `AFTER` online, and the dip to the least of those; None where either is missing."""
    from robolearn.runs.run import read_metrics

    rows = [row for row in read_metrics(run) if row.get("eval_success") is not None]
    offline = [row["eval_success"] for row in rows if not row["env_steps"]]
    online = [row["eval_success"] for row in rows if row["env_steps"]][:AFTER]
    if not (offline and online):
        return None
    return {"offline": offline[-1], "online": online, "dip": offline[-1] - min(online)}


def rewarded_episodes(run: Path) -> int | None:
    """Episodes of a run whose return was not 0; None where none ended, or where an older version began the run."""
    from robolearn.runs.run import read_metrics

    rows = [row for row in read_metrics(run) if any(row.get(key) for key in KINDS)]
    known = bool(rows) and all("rewarded" in row for row in rows)
    return round(sum(row["rewarded"] for row in rows)) if known else None


def withheld_episodes(run: Path) -> int:
    """Episodes of a run that a reward model did not score."""
    from robolearn.runs.run import read_metrics

    return round(sum(row.get("withheld", 0.0) for row in read_metrics(run)))


def wall_profile(run: Path, calibration: Any) -> dict[str, float]:
    """The parts of the wall time of fine-tuning [s], from the run's metrics.

    Args:
      run: the run folder.
      calibration: of the noise, or None; what the worlds took of it counts as simulation, the rest as calibration.
    """
    from robolearn.runs.run import read_metrics

    rows = list(read_metrics(run))
    parts = ("simulation", "inference", "update")
    wall_s = {part: sum(row.get(f"wall_{part}_s", 0.0) for row in rows) for part in parts} | {"calibration": 0.0}
    if calibration is not None:
        wall_s["simulation"] += calibration.simulation_s
        wall_s["calibration"] = calibration.wall_s - calibration.simulation_s
    return wall_s
