"""Report of a sweep: means over seeds with their intervals, curves with bands, one HTML report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.eval.intervals import Success, over_seeds
from robolearn.eval.plots import Curve, mean_series
from robolearn.eval.report import write_report
from robolearn.eval.report_data import Outcome, ReportData
from robolearn.runs import read_metrics
from robolearn.runs.run import axis

RATES = ("success", "best_success")  # metrics that are shares in [0, 1]
CURVES = {  # metric → (heading, label of the axis, whether it is a share)
    "eval_success": ("Success on the way, without noise", "success [%]", True),
    "success": ("Success of training rollouts", "success [%]", True),
    "eval_return": ("Return on the way, without noise", "return", False),
    "episode_return": ("Return of training rollouts", "return", False),
    "loss": ("Training loss", "loss [-]", False),
    "validation_loss": ("Validation loss", "loss [-]", False),
}


@dataclass(frozen=True)
class SweepRun:
    """One training of a sweep.

    Attributes:
      setting: flag → value, of what varies.
      seed: of this one.
      path: its run folder.
      command: ready to run.
      line: its words.
    """

    setting: dict[str, str]
    seed: int
    path: Path
    command: Any
    line: tuple[str, ...] = ()


def summary(ones: Sequence[SweepRun], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each setting: its name, its runs, and its metrics as `over_seeds` gives them."""
    rows: dict[str, dict[str, Any]] = {}
    for one, result in zip(ones, results, strict=True):
        name = name_of(one)
        row = rows.setdefault(name, {"name": name, "setting": one.setting, "runs": [], "metrics": {}})
        row["runs"].append({"seed": one.seed, "run": str(one.path), **outcomes(result)})
    for row in rows.values():
        names = dict.fromkeys(key for run in row["runs"] for key in run if key not in ("seed", "run"))
        row["metrics"] = {
            key: over_seeds(
                [run[key] for run in row["runs"] if key in run], rates=key in RATES, times=key == "wall_s"
            ).to_json()
            for key in names
        }
    return list(rows.values())


def name_of(one: SweepRun) -> str:
    """A setting in words: ``lr 0.001, batch 64``."""
    return ", ".join(f"{name} {value}" for name, value in one.setting.items()) or "as given"


def outcomes(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a training's result that are compared."""
    evaluation = result.get("evaluation") or {}
    success, mean = evaluation.get("success"), evaluation.get("return")
    found = {
        "success": success["rate"] if success else None,
        "return": mean["mean"] if mean and not success else None,
        "best_success": ((result.get("best") or {}).get("success") or {}).get("rate"),
        "validation_loss": result.get("validation_loss"),
        "loss": result.get("loss"),
        "wall_s": (result.get("wall_s") or {}).get("total"),
    }
    return {key: float(value) for key, value in found.items() if value is not None}


def curves(ones: Sequence[SweepRun]) -> list[Any]:
    """A picture for each metric that is logged, a line with its band for each setting."""
    groups: dict[str, list[list[dict[str, Any]]]] = {}
    for one in ones:
        groups.setdefault(name_of(one), []).append(list(read_metrics(one.path)))
    drawn = []
    for metric, (title, label, percent) in CURVES.items():
        lines, unit = [], ""
        for name, runs in groups.items():
            seen = [[row for row in rows if row.get(metric) is not None] for rows in runs]
            length = min(map(len, seen))
            if not length:
                continue
            unit = axis(seen[0][0])[1]
            x = np.mean([[axis(row)[0] for row in rows[:length]] for rows in seen], axis=0)
            y = np.array([[row[metric] for row in rows[:length]] for rows in seen], float)
            spread = np.std(y, axis=0, ddof=1) if len(y) > 1 else np.full(length, np.nan)
            lines.append(mean_series(name, x, y.mean(axis=0), spread, np.full(length, len(y))))
        if lines:
            caption = "Mean over the seeds; the band is its 95% interval (Student's t)."
            drawn.append(Curve(title, unit, label, lines, percent=percent, caption=caption))
    return drawn


def write(
    out: Path,
    ones: Sequence[SweepRun],
    results: Sequence[Mapping[str, Any]],
    settings: Sequence[dict[str, Any]],
    line: str,
) -> Path:
    """Write ``report.html`` into `out`; returns its path."""
    by_setting: dict[str, list[Mapping[str, Any]]] = {}
    for one, result in zip(ones, results, strict=True):
        if success := (result.get("evaluation") or {}).get("success"):
            by_setting.setdefault(name_of(one), []).append(success)
    seeds = len({one.seed for one in ones})
    return write_report(
        out / "report.html",
        ReportData(
            title=f"sweep of robolearn {results[0].get('command') or line.split(' -- ')[-1].split()[0]}",
            subtitle=f"{len(settings)} settings, {seeds} seeds each.",
            outcomes=[_outcome(name, each) for name, each in by_setting.items()],
            curves=curves(ones),
            commands=[line],
            settings={
                row["name"]: {name: text_of(name, value) for name, value in row["metrics"].items()} for row in settings
            },
            notes=["Intervals in the table of settings are over the seeds: mean ± t s/√n."],
        ),
    )


def _outcome(name: str, each: Sequence[Mapping[str, Any]]) -> Outcome:
    """The successes of a setting's seeds: of several the mean with its interval over the seeds."""
    if len(each) == 1:
        return Outcome(name, Success(**each[0]), note="one seed: an interval over its episodes")
    found = over_seeds([success["rate"] for success in each], rates=True)
    rates = ", ".join(f"{success['rate']:.1%}" for success in each)
    episodes = sum(success["episodes"] for success in each)
    note = f"mean and interval over {found.count} seeds: {rates}"
    return Outcome(name, Success(found.mean, found.low, found.high, episodes), note=note)


def text_of(metric: str, value: Mapping[str, Any]) -> str:
    """A metric over the seeds for people: ``96.5% (94.8–98.1, 8 seeds)``."""

    def number(x: float) -> str:
        return f"{100 * x:.1f}" if metric in RATES else f"{x:.4g}"

    unit = "%" if metric in RATES else ""
    text = f"{number(value['mean'])}{unit}"
    if value["low"] is None:
        return text
    return f"{text} ({number(value['low'])}–{number(value['high'])}, {value['count']} seeds)"
