"""How good a progress critic of twenty successes and a few failures is, on each task that is rendered.

    python tests/programs/critic_numbers.py --out FOLDER --tasks lift pick_place peg_insert

A critic learns from `--good` successes and from failures of some kinds. It is judged on other seeds, on all kinds of
failure of the task, those that no training has shown among them, and once more in other looks and by cameras that
stand elsewhere. What is there is not done again. `rows.json` in the folder has the figures with their intervals.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from run_command import robolearn

# Failures that training shows: (kind, episodes). The others of the task are held out.
SHOWN = {
    "lift": (("missed", 5), ("dropped", 5), ("nearly", 10), ("pushed_away", 5)),
    "pick_place": (("missed", 5), ("dropped", 5), ("nearly", 10), ("pushed_away", 5)),
    "peg_insert": (("dropped", 10), ("nearly", 10)),
}
WRONG = {"lift": "put the cube on the green disc", "pick_place": "lift the cube", "peg_insert": "lift the cube"}
FIGURES = (
    "voc", "voc_reversed", "tau", "success_failure_gap", "false_positive_rate", "done", "wrong_task_ratio",
    "calibration", "latency_ms",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=list(SHOWN), default=list(SHOWN))
    parser.add_argument("--good", type=int, default=20, help="successes to learn from")
    parser.add_argument("--judged", type=int, default=100, help="successes, and as many failures, to judge it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", nargs=argparse.REMAINDER, default=[], help="flags of `reward train`; the last one")
    args = parser.parse_args()
    rows = {}
    for task in args.tasks:
        folder = args.out / task
        good = collected(folder / "good", task, "expert", args.good, args.seed + 1)
        shown = [
            collected(folder / kind, task, kind, count, args.seed + 11 + number)
            for number, (kind, count) in enumerate(SHOWN[task])
        ]
        critic = folder / "critic"
        if not (critic / "done.json").exists():
            going = ("--resume",) if critic.exists() else ()
            made = robolearn("reward", "train", "--data", good, *shown, "--out", critic, *going, *args.train)
            (critic / "done.json").write_text(json.dumps(made))
        for looks in ("none", "mild", "wild"):
            sets = [
                collected(folder / f"{looks}-{name}", task, quality, args.judged, args.seed + seed, looks)
                for name, quality, seed in (("good", "expert", 101), ("failed", "failures", 102))
            ]
            report = folder / f"report-{looks}"
            found = robolearn(
                "reward", "evaluate", "--reward", critic, "--data", *sets, "--wrong", WRONG[task], "--out", report,
                passes=(0, 1),
            )  # fmt: skip
            rows[f"{task} {looks}"] = found
            print(task, looks, json.dumps({name: found.get(name) for name in FIGURES}), flush=True)
        (args.out / "rows.json").write_text(json.dumps(rows, indent=1))
    return 0


def collected(folder: Path, task: str, quality: str, episodes: int, seed: int, looks: str = "none") -> Path:
    """The set in `folder`, made where it is not."""
    if not (folder / "meta/info.json").exists():
        robolearn(
            "collect", "--task", task, "--quality", quality, "--episodes", episodes, "--seed", seed, "--worlds", 5,
            "--cameras", "front", "wrist", "--looks", looks, "--out", folder,
        )  # fmt: skip
    return folder


if __name__ == "__main__":
    sys.exit(main())
