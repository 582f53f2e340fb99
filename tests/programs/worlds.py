"""Worlds of other makers from demonstration to a judged policy. Run by ``make test-worlds``; needs the network.

For each task its environment is installed where it is not, its own expert demonstrates, imitation learns from that, and
the policy is judged on starts of its own. Worlds without an expert take steps at random. Exit code 0 where every
success rate has the lower end of its 95% interval above the least that is asked for; 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from run_command import robolearn

# task → (demonstrations, gradient steps, least lower end of the success rate)
TASKS = {
    "metaworld:reach-v3": (50, 3000, 0.8),
    "metaworld:drawer-open-v3": (25, 2000, 0.9),
    "metaworld:peg-insert-side-v3": (100, 4000, 0.1),
    "envpool:peg-insert-side-v3": (100, 4000, 0.1),
    "ogbench:cube-single": (100, 4000, 0.3),
}
STEPPED = ("pusht:state", "aloha:transfer_cube", "aloha:insertion", "libero:libero_goal/0")  # nobody demonstrates them
EXPERTS = 0.75  # least success of the demonstrators; that of peg-insert-side solves 84%


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = (*TASKS, *STEPPED)
    parser.add_argument("--tasks", nargs="+", choices=every, default=every, metavar="TASK", help=", ".join(every))
    parser.add_argument("--episodes", type=int, default=100, help="of each evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worlds", type=int, default=8, help="side by side")
    args = parser.parse_args()
    bad = []
    for task in args.tasks:
        family = task.partition(":")[0]
        rows = {row["name"]: row for row in robolearn("worlds")["worlds"]}
        if rows[family]["state"] != "installed":
            done = robolearn("worlds", "install", family)
            print(f"{family}: installed, {done['bytes'] / 1e6:.0f} MB in {done['wall_s']['total']:.0f} s", flush=True)
        if task in STEPPED:
            shown = robolearn("worlds", "show", task)
            found = robolearn("benchmark", "worlds", "--task", task, "--worlds", 2, "--repeats", 1)
            print(f"{task}: {shown['prompt']}: {found['steps_per_s']:.1f} control steps/s in two worlds", flush=True)
            continue
        demonstrations, steps, least = TASKS[task]
        with tempfile.TemporaryDirectory() as folder:
            data, run = Path(folder) / "data", Path(folder) / "run"
            world = ("--task", task, "--worlds", args.worlds, "--seed", args.seed)
            made = robolearn("collect", *world, "--episodes", demonstrations, "--out", data)
            trained = robolearn("train", "--data", data, "--steps", steps, "--seed", args.seed, "--out", run)
            world = ("--task", task, "--worlds", args.worlds, "--seed", 1000 + args.seed)
            success = robolearn("evaluate", "--policy", run, *world, "--episodes", args.episodes)["success"]
        rate = f"{success['rate']:.1%} ({success['low']:.1%} to {success['high']:.1%}) of {success['episodes']}"
        print(
            f"{task}: expert {made['expert_success']:.1%} of {demonstrations}, {made['frames']} frames in "
            f"{made['wall_s']['total']:.0f} s; {steps} steps in {trained['wall_s']['total']:.0f} s; policy {rate}",
            flush=True,
        )
        if made["expert_success"] < EXPERTS or success["low"] < least:
            bad.append(task)
    print(f"below what is asked for: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
