"""Following the advice of `robolearn dataset quality` never loses, and wins on one task. Run by ``make test-quality``.

For each task as many episodes each of an expert, a fair and a poor demonstrator are mixed, and `--prove` trains on all
of them alike, by the weights of the report, and without the episodes that it says to drop. Exit code 0 where neither
way of following is worse than drawing all alike on any task, as far as paired tests can tell, and one is better on
one; 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from mixed_demonstrators import mix
from run_command import robolearn


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["lift", "pick_place", "peg_insert"])
    parser.add_argument("--each", type=int, default=30, help="episodes of each demonstrator")
    parser.add_argument("--steps", type=int, default=1500, help="gradient steps of each policy")
    parser.add_argument("--episodes", type=int, default=400, help="of each evaluation")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    wins, losses = [], []
    for task in args.tasks:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "mixed"
            mix(data, task, args.each, args.seed)
            proof = robolearn(
                "dataset", "quality", data, "--prove", task, "--prove-steps", args.steps,
                "--prove-episodes", args.episodes, "--seed", args.seed,
            )["proof"]  # fmt: skip
        for found in proof["policies"]:
            success = found["success"]
            print(f"{task}, {found['name']}: {success['rate']:.1%} ({success['low']:.1%} to {success['high']:.1%})")
        for verdict in proof["verdicts"]:
            print(f"{task}: {verdict['sentence']}", flush=True)
            wins += [task] if verdict["better"] == verdict["b"] else []
            losses += [task] if verdict["better"] == verdict["a"] else []
    print(f"better on {sorted(set(wins)) or 'none'}, worse on {sorted(set(losses)) or 'none'}")
    return 0 if wins and not losses else 1


if __name__ == "__main__":
    sys.exit(main())
