"""Baselines without RL: the same effort spent on more demonstrations, and a constant tempo.

more-demos   further demonstrations from all starts, imitation again on all of them, as many epochs
tempo        the imitated policy with its displacements times the best of `TEMPOS`, chosen on other starts
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from robolearn.core import Policy, RobolearnError, bind_policy
from robolearn.runs.command import PROGRAM
from robolearn.runs.run import RESULT
from sim.registry import WorldConfig

TEMPOS = (0.75, 1.0, 1.25, 1.5, 2.0)
CHOOSING = 4_000  # seed of the starts on which the tempo is chosen, beside the run's
FURTHER = 10_000  # seed of further demonstrations, beside the run's


def judged(world: WorldConfig, policy: Policy, episodes: int, seed: int, worlds: int) -> dict[str, Any]:
    """Success and cycle time of `policy` over `episodes` in `worlds` side by side, from the starts of `seed`."""
    from robolearn.eval import evaluate

    with closing(world.matching(policy.interface).build(min(worlds, episodes))) as env:
        bind_policy(policy, env.interface, what=f"policy in {world.task}")
        found = evaluate(env, policy, episodes, seed).to_json()
    cycle = found["cycle_time_s"]
    return {"success": found["success"], "cycle_s": cycle and cycle["mean"]}


def best_tempo(world: WorldConfig, policy: Policy, episodes: int, seed: int, worlds: int) -> dict[str, Any]:
    """``tempo``, the constant of `TEMPOS` with the most successes of `policy` on starts of its own (of equals the
    quicker), and ``tried``: each one's success there. `seed`: of the run; the rest as for `judged`."""
    from policies.wrappers.wrapper import at_tempo

    tried = {
        f: judged(world, at_tempo(policy, f), episodes, CHOOSING + seed, worlds)["success"]["rate"] for f in TEMPOS
    }
    return {"tempo": max(tried, key=lambda f: (tried[f], f)), "tried": {f"{f:g}": rate for f, rate in tried.items()}}


def more_demonstrations(
    collecting: Sequence[Any], training: Sequence[Any], first: Path, count: int, steps: int, seed: int, out: Path
) -> dict[str, Any]:
    """Imitation of the demonstrations in `first` and of `count` further ones.

    Args:
      collecting, training: flags of `robolearn collect` and `robolearn train` that the first had, too.
      steps: gradient steps of the first imitation; this one has as many epochs.
      out: of the further demonstrations, ``demos``, and the policy, ``bc``; what is finished there is not done again.

    Returns:
      ``demonstrations`` and ``control_steps`` of the further ones, ``policy`` the run folder.
    """
    from robolearn.data import Dataset

    demos, bc = out / "demos", out / "bc"
    if not (bc / RESULT).exists():
        resume = ("--resume",) if demos.exists() else ()
        run_program("collect", *collecting, "--quality", "narrow", "--start-range", 1, "--episodes", count,
                  "--seed", FURTHER + seed, "--out", demos, *resume)  # fmt: skip
        share = 1 + Dataset.open(demos).frames / Dataset.open(first).frames
        resume = ("--resume",) if bc.exists() else ()
        run_program("train", *training, "--data", first, demos, "--steps", round(share * steps), "--seed", seed,
                  "--out", bc, *resume)  # fmt: skip
    further = Dataset.open(demos)
    return {"demonstrations": further.episodes, "control_steps": further.frames, "policy": bc}


def run_program(*words: Any) -> None:
    """Run a command of ours in a process of its own. Raises `RobolearnError` with its last words where it failed."""
    done = subprocess.run(
        [*PROGRAM, *map(str, words), "--json"], capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RobolearnError(f"robolearn {' '.join(map(str, words[:2]))} failed: {said[-1] if said else 'no message'}")
