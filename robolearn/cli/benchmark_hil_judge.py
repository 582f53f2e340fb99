"""What a policy of `robolearn benchmark hil` is worth: alone, watched by an operator, delayed; what its doubts say."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

STARTS, WATCHED, DOUBTED = 1_000, 2_000, 3_000  # seeds of the episodes that judge
WITHIN = 40  # control steps, in which a doubt is to foretell a failure


def judge(task: str, folder: Path, episodes: int, delay: int) -> dict[str, Any]:
    """Success without help, its cycle time, and that of each start (None: not solved); the share of steps that an
    operator steers who watches; success with `delay` control steps of inference delay, from the same starts; AUROC of
    each doubt for failure within 40 steps."""
    import numpy as np
    import torch

    from policies.storage.loading import open_policy
    from policies.wrappers.best_of_n import ChosenPolicy
    from policies.wrappers.delayed import DelayedPolicy
    from robolearn.core import bind_policy
    from robolearn.eval import evaluate
    from robolearn.hil.doubt import doubts_of
    from robolearn.hil.watched import watch
    from sim.experts import make_operator
    from sim.options import world_options
    from sim.registry import make_env

    torch.set_num_threads(1)
    policy = open_policy(folder)
    env = make_env(task, episodes, threads=1, **world_options(task, [policy]))
    try:
        bind_policy(policy, env.interface, what=f"policy {folder} in {task}")
        alone = evaluate(env, policy, episodes, STARTS)
        helped = watch(env, policy, make_operator(task, env.interface, episodes, 0), WATCHED)
        late = evaluate(env, DelayedPolicy(policy, delay), episodes, STARTS).to_json() if delay else None
        doubts = None
        if isinstance(policy, ChosenPolicy):
            signs, failures = doubts_of(env, policy, DOUBTED, within=WITHIN)
            doubts = {"failures": failures, "within_steps": WITHIN} | {key: asdict(one) for key, one in signs.items()}
    finally:
        env.close()
    found, order = alone.to_json(), np.argsort(alone.world)
    starts = zip(alone.succeeded[order], alone.cycle_time_s[order].tolist(), strict=True)
    return {
        "success": found["success"],
        "cycle_s": found["cycle_time_s"]["mean"] if found["cycle_time_s"] else None,
        "starts_s": [seconds if solved else None for solved, seconds in starts],
        "intervention_rate_end": helped["intervention_rate"],
        "delayed": {"success": late["success"], "delay_steps": delay} if late else None,
        "doubts": doubts,
    }
