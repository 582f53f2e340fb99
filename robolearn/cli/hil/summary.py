"""Summaries that the commands of the loop print at their end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from robolearn.cli.hil.arguments import ActorArguments, LearnerArguments, WorldArguments
from robolearn.runs import read_metrics
from robolearn.runs.command import rate_text

TASK = "TASK"  # of the actors
RUN = "RUN"  # of the learner


def lines(learner: LearnerArguments, world: WorldArguments, result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(word, text) lines of the `result` of a run."""
    r = result if result["finished"] else {**so_far(learner.out, learner.success_window), **result}
    yield from _trained(learner, r, r["wall_s"]["run"])
    if arm := r.get("arm"):
        yield "arm", _arm(arm)
    learned = r["finished"] or r["updates"]
    yield "next", _next(world, learner.policy, r["run"]) if learned else "the same command with --resume goes on"


def learner_lines(learner: LearnerArguments, result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(word, text) lines of the `result` of a learner."""
    yield from _trained(learner, {"finished": True, **result}, result["wall_s"]["total"])
    yield "next", f"{_evaluate(learner.policy, result['run'], TASK)}, with the task of the actors"


def actor_lines(actor: ActorArguments, result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(word, text) lines of the `result` of an actor."""
    r, where = result, f"on {result['robot']}" if "robot" in result else f"in {actor.task}"
    yield "played", f"{r['env_steps']:,} control steps in {_episodes(r['episodes'])} {where}, as {r['actor']}"
    if r["env_steps"]:
        yield "operator", f"commanded {100 * r['interventions'] / r['env_steps']:.1f}% of the control steps"
    left = r["records"] - r["acknowledged"]
    if left:
        yield "sent", f"{r['acknowledged']:,} of {r['records']:,} records; the others are in {actor.out}"
    else:
        yield "sent", f"all {r['records']:,} records, to the learner at {actor.learner}"
    if pace := _pace(r):
        yield "pace", pace
    if "robot" in r:
        yield "arm", _arm(r)
    if left or not r["finished"]:
        yield "next", "the same command goes on" + (", and first sends what is left" if left else "")
    else:
        yield "next", f"{_next(actor, actor.policy, RUN)}; {RUN} is --out of the learner"


def _trained(learner: LearnerArguments, r: Mapping[str, Any], seconds: float) -> Iterator[tuple[str, str]]:
    window = min(r["episodes"], learner.success_window)
    yield "policy", r["policy"]
    yield "taught", (f"{r['env_steps']:,} control steps in {_episodes(r['episodes'])}, {r['updates']:,} updates of "
                     f"{learner.algo}, in {seconds:.0f} s")  # fmt: skip
    if not r["finished"]:
        yield "ended", f"by you, before the {learner.env_steps:,} control steps of the budget; --resume goes on"
    if r["success"] is None:
        yield "success", "not known: no episode went without the operator"
    else:
        yield "success", f"{rate_text(r['success'])} of the last intervention-free episodes"
    if r.get("withheld"):
        reason = "the reward model gave no score; the learner's log has the reason"
        yield "withheld", f"{_episodes(r['withheld'])} not learned from: {reason}"
    if r["intervention_rate"] is not None:
        last = f"the last {window} episodes" if window > 1 else "the last episode"
        yield "operator", f"commanded {100 * r['intervention_rate']:.1f}% of the control steps of {last}"
    if pace := _pace(r):
        yield "pace", pace


def so_far(run: Path, window: int) -> dict[str, Any]:
    """``episodes``, ``withheld``, ``success`` and ``intervention_rate`` of a run that was ended early, from its
    metrics; as in a finished one's result."""
    from robolearn.eval.intervals import Success

    rows = list(read_metrics(run))
    free = [row for row in rows if not row["interventions"] and not row["cut"] and not row.get("withheld")][-window:]
    steps = sum(row["episode_steps"] for row in rows[-window:])
    return {
        "episodes": len(rows),
        "withheld": sum(row.get("withheld", False) for row in rows),
        "success": Success.of(sum(row["success"] for row in free), len(free)).to_json() if free else None,
        "intervention_rate": sum(row["interventions"] for row in rows[-window:]) / steps if steps else None,
    }


def _episodes(count: int) -> str:
    return f"{count} episode{'' if count == 1 else 's'}"


def _pace(r: Mapping[str, Any]) -> str:
    period = r.get("period_ms")
    return f"a control step each {period['p50']:.1f} ms (p99 {period['p99']:.1f})" if period else ""


def _arm(arm: Mapping[str, Any]) -> str:
    parts = [f"{arm['robot']}: {arm['stops']} stop{'' if arm['stops'] == 1 else 's'}"]
    if arm["violations"] is not None:
        parts.append(f"{arm['violations']} violations of the arm's limits")
    if arm["latency_ms"]["p50"] is not None:
        p50, p99 = arm["latency_ms"]["p50"], arm["latency_ms"]["p99"]
        parts.append(f"{p50:.1f} ms (p99 {p99:.1f}) from observation to command")
    return ", ".join(parts)


def _next(world: WorldArguments, policy: Path, run: str) -> str:
    from robots.stations import load_contract

    if world.robot and not load_contract(world.robot).simulated:  # no world shows how good it is on that arm
        rehearse = f" --rehearse --task {world.task}" if world.rehearse else ""
        return f"robolearn deploy --policy {run} --robot {world.robot}{rehearse} : how often it succeeds on its own"
    return _evaluate(policy, run, world.task)


def _evaluate(policy: Path, run: str, task: str) -> str:
    return f"robolearn evaluate --policy {policy} --against {run} --task {task} : a verdict on what it gained"


def print_lines(said: Iterable[tuple[str, str]], console: Any) -> None:
    """Print each (word, text) on a line."""
    for word, text in said:
        console.print(f"{word:<12}{text}")
