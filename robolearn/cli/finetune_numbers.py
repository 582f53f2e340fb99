"""Numbers of a fine-tuning, from the metrics of its run, and its result in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from robolearn.cli.evaluator import show_outcomes
from robolearn.rl.algorithms import ALGORITHMS, OnPolicyConfig
from robolearn.runs.command import rate_text
from robolearn.runs.run import read_metrics
from sim.registry import WorldConfig


class FineTuning(Protocol):
    """The settings of a fine-tuning of which its result tells."""

    @property
    def policy(self) -> Path: ...
    @property
    def data(self) -> Sequence[Any]: ...
    @property
    def world(self) -> WorldConfig: ...
    @property
    def settings(self) -> Any: ...


KINDS = ("episodes", "along_episodes", "pushed_episodes")
OF_TASK = "success/"  # of a metric's name, before the task's
LAST = 5  # iterations whose rollouts are counted together at the end
SHOWN = 3  # tasks of a suite
AFTER = 3  # evaluations after the switch from offline to online


def standing(iteration: int, row: Mapping[str, Any]) -> str:
    """The iteration and the success of its rollouts, which explore, in a line."""
    success = float(row.get("success", math.nan))
    said = f": {100 * success:.0f}% success with exploration noise" if math.isfinite(success) else ""
    return f"iteration {iteration}{said}"


def last_success(run: Path) -> dict[str, Any] | None:
    """Success of the rollouts of a run's last `LAST` iterations; None where the world reports none."""
    from robolearn.eval import Success

    rows = [row for row in list(read_metrics(run))[-LAST:] if row.get("success") is not None]
    episodes = round(sum(row["episodes"] for row in rows))
    if not episodes:
        return None
    return Success.of(round(sum(row["success"] * row["episodes"] for row in rows)), episodes).to_json()


def last_success_of_tasks(run: Path) -> dict[str, float]:
    """Task → success of the rollouts of a run's last `LAST` iterations in which an episode of it ended, the least
    first; nothing where a single task is learned."""
    found: dict[str, list[float]] = {}
    for row in read_metrics(run):
        for key, rate in row.items():
            if key.startswith(OF_TASK) and rate is not None and math.isfinite(rate):
                found.setdefault(key.removeprefix(OF_TASK), []).append(rate)
    means = {task: sum(rates[-LAST:]) / len(rates[-LAST:]) for task, rates in found.items()}
    return dict(sorted(means.items(), key=lambda one: one[1]))


def switched(run: Path) -> dict[str, Any] | None:
    """Success before and after a run's first control step, by the evaluations on its way: the last one offline, the
    first `AFTER` online, and the dip to the least of those; None where either is missing."""
    rows = [row for row in read_metrics(run) if row.get("eval_success") is not None]
    offline = [row["eval_success"] for row in rows if not row["env_steps"]]
    online = [row["eval_success"] for row in rows if row["env_steps"]][:AFTER]
    if not (offline and online):
        return None
    return {"offline": offline[-1], "online": online, "dip": offline[-1] - min(online)}


def rewarded_episodes(run: Path) -> int | None:
    """Episodes of a run whose return was not 0; None where none ended, or where an older version began the run."""
    rows = [row for row in read_metrics(run) if any(row.get(key) for key in KINDS)]
    known = bool(rows) and all("rewarded" in row for row in rows)
    return round(sum(row["rewarded"] for row in rows)) if known else None


def withheld_episodes(run: Path) -> int:
    """Episodes of a run that a reward model did not score."""
    return round(sum(row.get("withheld", 0.0) for row in read_metrics(run)))


def wall_profile(run: Path, calibration: Any) -> dict[str, float]:
    """The parts of the wall time of fine-tuning [s], from the run's metrics.

    Args:
      run: the run folder.
      calibration: of the noise, or None; what the worlds took of it counts as simulation, the rest as calibration.
    """
    rows = list(read_metrics(run))
    parts = ("simulation", "inference", "update")
    wall_s = {part: sum(row.get(f"wall_{part}_s", 0.0) for row in rows) for part in parts} | {"calibration": 0.0}
    if calibration is not None:
        wall_s["simulation"] += calibration.simulation_s
        wall_s["calibration"] = calibration.wall_s - calibration.simulation_s
    return wall_s


def show_finetuned(command: FineTuning, r: Mapping[str, Any], console: Any) -> None:
    """The result of a fine-tuning in words."""
    console.print(f"policy       {r['policy']}")
    if r.get("updates_offline"):
        console.print(f"offline      {r['updates_offline']:,} updates from {', '.join(map(str, command.data))} alone")
    iterations = f"{r['iterations']} iteration{'' if r['iterations'] == 1 else 's'}"
    steps = f"{r['env_steps']:,} of {r['budget']:,} control steps, {iterations}"
    title = ALGORITHMS[r["algorithm"]].title
    console.print(f"fine-tuned   {steps} of {title}, in {r['wall_s']['total']:.0f} s")
    if r.get("out_of_time"):
        console.print("             ended by --minutes; --resume with more goes on")
    if r["calibration"]:
        noise, reason = r["calibration"]["noise"], r["calibration"]["reason"]
        console.print(f"noise        begins at {noise['initial']:g}, explores up to {noise['sigma_max']:.2f}: {reason}")
    if r["training_success"]:
        console.print(f"success      {rate_text(r['training_success'])} of the last rollouts, with exploration noise")
    if tasks := r.get("training_success_of_tasks"):
        least = ", ".join(f"{task} {100 * rate:.0f}%" for task, rate in list(tasks.items())[:SHOWN])
        console.print(f"             least in {least}")
    if switch := r.get("switch"):
        after = ", ".join(f"{100 * value:.1f}" for value in switch["online"])
        said = f"{100 * switch['offline']:.1f}% offline, then {after}: a dip of {100 * switch['dip']:.1f} points"
        console.print(f"switch       {said}")
    if back := r.get("back"):
        console.print(f"way back     {back['policy']}; a person put things in their place {back['helped']} times")
        if back.get("audit", {}).get("parted"):
            console.print(f"its audit    {back['audit']['parted']}")
    if r.get("withheld"):
        console.print(f"withheld     {r['withheld']} episodes have no reward, and were not learned from")
    if (found := r.get("audit")) and found["rule"] != "off":
        shown = {"solved, of those called done": "precision", "called done, of those failed": "false_positives"}
        for words, key in shown.items():
            console.print(f"audit        {words}: {rate_text(found[key]) if found[key] else 'none'}")
        console.print(f"audit        {found['parted'] or 'the reward model and the world have not parted'}")
    show_outcomes(r, console, " " * 13)
    _show_rewarded(command, r, console)
    if not r["unchanged"]:
        again = f"robolearn evaluate --policy {command.policy} --against {r['run']} --task {command.world.task}"
        console.print(f"next         {again} : a verdict on what it gained")


def _show_rewarded(command: FineTuning, r: Mapping[str, Any], console: Any) -> None:
    """A line where no reward was found, or nothing was learned from those that were."""
    weights = "every weight of the policy is as it was"
    if r["rewarded_episodes"] == 0:
        by_success = isinstance(command.settings, OnPolicyConfig) and command.settings.by_success
        dense = command.world.family.has_progress and command.world.reward == "sparse" and not by_success
        ways = "a better policy, more demonstrations or --reward dense" if dense else "a better policy"
        same = f": {weights}" if r["unchanged"] else ""
        console.print(f"rewarded     no episode of the run{same}; begin with {ways}")
    elif r["unchanged"]:
        console.print(f"unchanged    {weights}")
