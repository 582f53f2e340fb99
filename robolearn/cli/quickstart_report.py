"""The report of a quickstart: three bars, learning curves, where the time went, videos and commands."""

from __future__ import annotations

import json
import logging
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from robolearn import __version__
from robolearn.core import RobolearnError
from robolearn.runs.command import PROGRAM, rate_text
from robolearn.runs.run import read_metrics

if TYPE_CHECKING:
    from robolearn.eval import Evaluation
    from robolearn.eval.report_data import Outcome

log = logging.getLogger(__name__)
COMPILE = """
import os, sys
os.nice(19)
from hardware.safety import SafetyFilter
from robots.stations import load_contract
station = load_contract(sys.argv[1])
SafetyFilter(station.robot, station.joints, station.limits, 1.0 / station.stream_hz)
"""


def compile_ahead(robot: str) -> None:
    """Begin to compile the safety filter's loops for `deploy`, in a process that ends by itself within a minute.

    The first deployment on a machine otherwise waits for it, half a minute. What is compiled is kept on disk.
    """
    if station := simulated_station(robot):
        nothing = subprocess.DEVNULL
        subprocess.Popen([sys.executable, "-c", COMPILE, station], stdin=nothing, stdout=nothing, stderr=nothing)


def deploy(policy: Path, robot: str, task: str, episodes: int, seed: int) -> dict[str, Any]:
    """`robolearn deploy` as a process of its own.

    Returns:
      Its result, that of a deployment which ended before its time too; ``{"error": …}`` on a machine that cannot;
      ``{"skipped": …}`` where no station simulates the arm.
    """
    station = simulated_station(robot)
    if station is None:
        return {"skipped": f"no station has a simulated {robot}"}
    command = ["deploy", "--policy", str(policy), "--robot", station, "--task", task, "--json"]
    command += ["--episodes", str(episodes), "--seed", str(seed)]
    done = subprocess.run([*PROGRAM, *command], capture_output=True, text=True, check=False)
    result = json.loads(done.stdout.splitlines()[-1]) if done.stdout else None
    if done.returncode == 0 and result is not None:
        return result
    last = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("robolearn: error: ")
    log.warning("the deployment failed: %s", last)
    return result or {"error": last}


def simulated_station(robot: str) -> str | None:
    """The station whose arm is a simulated `robot`."""
    from robots.stations import load_contract

    return "sim" if load_contract("sim").robot.name == robot else None


def deployed(result: Mapping[str, Any]) -> str:
    """A deployment in words."""
    if "error" in result:
        return f"failed: {result['error']}"
    if "skipped" in result:
        return f"not done: {result['skipped']}"
    latency = result["latency_ms"]
    text = f"{rate_text(result['success'])}, {result['violations']} limit violations"
    if latency["p50"] is not None:
        text += f", {latency['p50']:.0f} ms from observation to command (p99 {latency['p99']:.0f})"
    return f"{text}; ended before all {result['asked']} episodes: {result['ended']}" if result["ended"] else text


def deployment(result: Mapping[str, Any]) -> Outcome:
    """A deployment beside the evaluations: its own few episodes, timed from arming to the end."""
    from robolearn.eval.intervals import Success
    from robolearn.eval.report_data import Outcome

    succeeded, latency = result["succeeded"], result["latency_ms"]
    note = f"over ROS 2 behind the safety filter, in real time; {result['violations']} limit violations"
    if latency["p50"] is not None:
        note += f", {latency['p50']:.0f} ms from observation to command"
    solved_s = [seconds for seconds, good in zip(result["episode_s"], succeeded, strict=True) if good]
    return Outcome("deployed", Success.of(sum(succeeded), len(succeeded)), solved_s=solved_s, note=note)


class Bars(NamedTuple):
    """Evaluations from the same starts: imitation, the same weights at the chosen initial noise, after RL."""

    bc: Evaluation
    chosen: Evaluation
    initial: float  # the standard deviation of that noise
    rl: Evaluation
    seeing: Evaluation | None = None  # of the visuomotor policy, distilled from the one after RL


def write(quickstart: Any, bars: Bars, results: dict[str, Any], seconds: dict[str, float], films: list[Any]) -> Path:
    """Write ``report.html``; returns its path.

    Args:
      quickstart: the `robolearn.cli.quickstart.Quickstart`.
      results: of the steps, by their commands' names.
      seconds: what each part of the quickstart took.
      films: its `videos`.
    """
    from robolearn.eval.comparison import compare, split_gain
    from robolearn.eval.report import write_report
    from robolearn.eval.report_data import Outcome, ReportData

    tuned, algorithm = results["finetune"], quickstart.settings.title
    calibration = tuned["calibration"]
    notes = (
        []
        if tuned["sigma_max"] is None
        else [f"Exploration noise up to {tuned['sigma_max']:.2f} of the normalised action."]
    )
    if calibration:
        notes = [f"{notes[0][:-1]}, chosen by measurement: {calibration['reason']}."]
    if results["deploy"]:
        notes.append(f"On the simulated arm behind the safety filter, in real time: {deployed(results['deploy'])}.")
    gain = None if bars.chosen is bars.bc else split_gain(bars.bc, bars.chosen, bars.rl)
    outcomes = [Outcome.of("imitation", bars.bc, note=f"{results['collect']['episodes']} demonstrations")]
    if bars.chosen is not bars.bc:
        note = f"the same weights, initial noise {bars.initial:g}, no RL"
        outcomes.append(Outcome.of("chosen initial noise", bars.chosen, note=note))
    outcomes.append(Outcome.of("after RL", bars.rl, note=f"{tuned['env_steps']:,} control steps"))
    if bars.seeing is not None:
        sees = " and ".join(name.removeprefix("images.") for name in results["distill"]["observes"])
        note = f"observes {sees}; distilled from the policy after RL"
        outcomes.append(Outcome.of("by cameras", bars.seeing, note=note))
    if "success" in (results["deploy"] or {}):
        outcomes.append(deployment(results["deploy"]))
    q = quickstart
    shown = {"task": q.world.task, "robot": q.world.arm, "episodes": q.episodes, "quality": q.demos}
    return write_report(
        q.out / "report.html",
        ReportData(
            title=f"{q.world.task}: from demonstrations to a reliable policy",
            subtitle=f"{q.episodes} scripted demonstrations ({results['collect']['expert_success']:.0%} of them "
            f"succeed), a {q.policy} policy by imitation, then {tuned['env_steps']:,} control steps of {algorithm}.",
            outcomes=outcomes,
            gain=gain,
            verdicts=[compare(bars.bc, bars.rl, names=("imitation", "after RL"))] if gain is None else gain.verdicts,
            curves=learning_curves(q.out),
            wall_s={**seconds, "total": sum(seconds.values())},
            wall_detail={"Fine-tuning": tuned["wall_s"]},
            videos=films,
            commands=_commands(q),
            settings={
                "demonstrations": shown,
                "imitation": _config(q.out / "bc")["imitation"],
                algorithm: _config(q.out / "rl")["settings"],
            },
            notes=notes,
            footer=f"robolearn {__version__}, Python {platform.python_version()}, {platform.machine()}, seed {q.seed}",
        ),
    )


def _commands(q: Any) -> list[str]:
    """The single steps, for people who want to run them themselves."""
    seed = f"--seed {q.seed}"
    kind = f"--policy {q.policy} --denoise-steps {q.policy_settings.steps}"
    station = simulated_station(q.world.arm)
    task, where = q.world.task, shlex.join(q.world.words())
    shown = f"--data data/{task} " if q.settings.takes_demonstrations else ""
    judged = f"{where} --episodes {q.eval_episodes} --seed {1000 + q.seed}"
    lines = [
        f"robolearn collect {where} --episodes {q.episodes} --quality {q.demos} {seed} --out data/{task}",
        f"robolearn train --data data/{task} {kind} --steps {q.train_steps} {seed} --out runs/bc",
        f"robolearn finetune --policy runs/bc {where} --algo {q.algo} {shown}--env-steps {q.env_steps} {seed} "
        "--out runs/rl",
        f"robolearn evaluate --policy runs/bc --against runs/rl {judged}",
    ]
    acts = "runs/rl"
    if q.observe == "images":
        acts = f"runs/{task}-visuomotor"
        lines.append(f"robolearn distill --teacher runs/rl {where} --steps {q.distill_steps} {seed} --out {acts}")
        lines.append(f"robolearn evaluate --policy {acts} --against runs/rl {judged}")
    if q.deploy_episodes and station is not None:
        lines.append(
            f"robolearn deploy --policy {acts} --robot {station} --task {task} --episodes {q.deploy_episodes} "
            f"--seed {1000 + q.seed}"
        )
    return lines


def videos(q: Any, bars: Bars) -> list[Any]:
    """Films of the worst and the best episode of each policy of the quickstart `q`; none where nothing can be drawn."""
    from policies.storage.loading import open_policy
    from robolearn.eval.video import record_episodes

    made = [("bc", "imitation", bars.bc), ("rl", "after RL", bars.rl)]
    if bars.seeing is not None:
        made.append(("seeing", "by cameras, with what it looked at", bars.seeing))
    films: list[Any] = []
    for name, title, evaluation in made:
        policy = open_policy(q.out / name)
        with closing(q.world.matching(policy.interface).build(q.eval_worlds)) as env:
            try:
                films += record_episodes(env, policy, evaluation, q.out / "videos" / name, title=title)
            except (RobolearnError, OSError) as error:
                # A machine that cannot draw, or whose disk is full, still gets its report.
                log.warning("no videos: %s", error)
                return []
    return films


def learning_curves(out: Path) -> list[Any]:
    """Pictures of a quickstart folder's two trainings."""
    from robolearn.eval.plots import Curve, Series, success_series

    bc, rl = list(read_metrics(out / "bc")), list(read_metrics(out / "rl"))
    episodes = [int(row["episodes"]) for row in rl]
    successes = [round((row["success"] or 0.0) * n) for row, n in zip(rl, episodes, strict=True)]
    caption = (
        "Rollouts with exploration noise, counted as they end: early in a curve quick successes come before slow "
        "failures. The evaluation without noise over a fixed number of episodes is the result."
    )
    steps, wall = [row["env_steps"] for row in rl], [row["wall_s"] for row in rl]
    updates, losses = [row["gradient_steps"] for row in bc], [row["loss"] for row in bc]
    rollouts, timed = (success_series("rollouts", x, successes, episodes) for x in (steps, wall))
    success, control = "success [%]", "control steps"
    curves = [
        Curve("Success of training rollouts", control, success, [rollouts], percent=True, caption=caption),
        Curve("Success against time", "wall time of fine-tuning [s]", success, [timed], percent=True),
        Curve("Imitation loss", "gradient steps", "loss [-]", [Series("training", updates, losses)]),
    ]
    if moved := [row for row in rl if row.get("kl") is not None]:
        policy = Series("policy", [row["env_steps"] for row in moved], [row["kl"] for row in moved])
        curves.append(Curve("How far an iteration moves the policy", control, "KL divergence [nats]", [policy]))
    if all("explained_variance" in row for row in rl):
        critic = Series("critic", steps, [row["explained_variance"] for row in rl])
        curves.append(Curve("Critic", control, "explained variance [-]", [critic]))
    return curves


def _config(run: Path) -> dict[str, Any]:
    return json.loads((run / "config.json").read_text())
