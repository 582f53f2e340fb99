"""What ``hil run`` prints at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robolearn.cli.command import rate_text
from robolearn.cli.hil.learner import Teaching
from robolearn.cli.hil.playing import Playing


def lines(teaching: Teaching, playing: Playing, result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(word, what there is to say) of the `result` of a run that was told so."""
    r = result if result["finished"] else {**so_far(teaching.out, teaching.success_window), **result}
    window = min(r["episodes"], teaching.success_window)
    episodes = f"{r['episodes']} episode{'' if r['episodes'] == 1 else 's'}"
    yield "policy", r["policy"]
    yield "taught", (f"{r['env_steps']:,} control steps in {episodes}, {r['updates']:,} updates of {teaching.algo}, "
                     f"in {r['wall_s']['run']:.0f} s")  # fmt: skip
    if not result["finished"]:
        yield "ended", f"by you, before the {teaching.env_steps:,} control steps of the budget; --resume goes on"
    if r["success"] is None:
        yield "success", "not known: no episode went without the operator"
    else:
        yield "success", f"{rate_text(r['success'])} of the last intervention-free episodes"
    if r["intervention_rate"] is not None:
        last = f"the last {window} episodes" if window > 1 else "the last episode"
        yield "operator", f"commanded {100 * r['intervention_rate']:.1f}% of the control steps of {last}"
    if r.get("period_ms"):
        yield "pace", f"a control step each {r['period_ms']['p50']:.1f} ms (p99 {r['period_ms']['p99']:.1f})"
    if arm := r.get("arm"):
        yield "arm", _arm(arm)
    yield "next", _next(teaching, playing, r)


def so_far(run: Path, window: int) -> dict[str, Any]:
    """``episodes``, ``success`` and ``intervention_rate`` of a run that was ended early, from its metrics; as in a
    finished one's result."""
    from robolearn.eval.intervals import Success
    from robolearn.runs import read_metrics

    rows = list(read_metrics(run))
    free = [row for row in rows if not row["interventions"] and not row["cut"]][-window:]
    steps = sum(row["episode_steps"] for row in rows[-window:])
    return {
        "episodes": len(rows),
        "success": Success.of(sum(row["success"] for row in free), len(free)).to_json() if free else None,
        "intervention_rate": sum(row["interventions"] for row in rows[-window:]) / steps if steps else None,
    }


def _arm(arm: Mapping[str, Any]) -> str:
    parts = [f"{arm['robot']}: {arm['stops']} stop{'' if arm['stops'] == 1 else 's'}"]
    if arm["violations"] is not None:
        parts.append(f"{arm['violations']} violations of the arm's limits")
    if arm["latency_ms"]["p50"] is not None:
        p50, p99 = arm["latency_ms"]["p50"], arm["latency_ms"]["p99"]
        parts.append(f"{p50:.1f} ms (p99 {p99:.1f}) from observation to command")
    return ", ".join(parts)


def _next(teaching: Teaching, playing: Playing, result: Mapping[str, Any]) -> str:
    from robots.stations import load_contract

    run = result["run"]
    if playing.robot and not load_contract(playing.robot).simulated:  # no world shows how good it is on that arm
        rehearse = f" --rehearse --task {playing.task}" if playing.rehearse else ""
        return f"robolearn deploy --policy {run} --robot {playing.robot}{rehearse} : how often it succeeds on its own"
    again = f"robolearn evaluate --policy {teaching.policy} --against {run} --task {playing.task}"
    return f"{again} : a verdict on what it gained"
