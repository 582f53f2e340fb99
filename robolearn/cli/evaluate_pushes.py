"""``evaluate --push``: success under each of several pushes, on the starts of the evaluation without one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from robolearn.cli.evaluator import evaluate_policy
from robolearn.runs.command import rate_text


def pushed_outcomes(env: Any, policy: Any, force: float, on: str, episodes: int, seed: int, quiet: bool) -> dict:
    """``{"force_n", "on", "each", "worst"}``: success of `policy` under pushes of `force` [N] to four sides, each
    early and late.

    Args:
      env: `sim.embedded.pushes.PushedWorlds`; without pushes again afterwards.
      episodes, seed: of each push.
    """
    from sim.embedded.pushes import MOMENTS, PUSHES

    each = []
    for k, push in enumerate(PUSHES):
        degrees = round(math.degrees(push.direction))
        if degrees % 90 or push.moment not in MOMENTS[1::2]:
            continue
        env.push(np.eye(len(PUSHES))[k], force)
        step = round(push.moment * env.max_episode_steps)
        done = evaluate_policy(env, policy, episodes, seed, quiet, f"pushed to {degrees} degrees at step {step}")
        each.append({"direction_deg": degrees, "step": step, "success": done.success.to_json()})
    env.push(np.zeros(len(PUSHES)), 0.0)
    worst = min(each, key=lambda one: one["success"]["rate"])
    return {"force_n": force, "on": on, "each": each, "worst": worst}


def show_pushes(row: Mapping[str, Any], console: Any) -> None:
    """A line of the worst of the pushes of `row`, if there were any."""
    if found := row.get("pushes"):
        worst, on = found["worst"], f"{found['force_n']:g} N on the {found['on']}"
        console.print(
            f"{row['policy']}: pushed by {on}, the worst of {len(found['each'])}: {rate_text(worst['success'])} to "
            f"{worst['direction_deg']} degrees at step {worst['step']}; without a push {rate_text(row['success'])}"
        )
