"""A policy that pleases one frozen critic: when it parts from the task, and whether the worst of several holds longer.

    python tests/programs/pleasing.py --out FOLDER

A critic of one member and one of `--members` learn from the same few successes and the same one kind of failure. A
visuomotor policy learns from stored experience by each of them alone, and is never stopped (`--audit warn`). The
picture has what the critic called done and what was solved, over control steps; the rows say when the audit would
have ended the run. What is there is not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from critic_numbers import collected
from run_command import robolearn

from robolearn.eval.plots import Curve, draw, success_series, to_png
from robolearn.rl.audit import COUNTS
from robolearn.runs import read_metrics

TOGETHER = 4  # rows of the metrics in a point of the picture


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--env-steps", type=int, default=16000)
    parser.add_argument("--good", type=int, default=10, help="successes to learn from")
    parser.add_argument("--failed", type=int, default=5, help="failures to learn from, all of the kind missed")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    out: Path = args.out
    good = collected(out / "good", "lift", "expert", args.good, args.seed + 1)
    missed = collected(out / "missed", "lift", "missed", args.failed, args.seed + 11)
    seen = collected(out / "seen", "lift", "expert", 100, args.seed)
    if not (out / "bc/result.json").exists():
        robolearn("train", "--data", seen, "--observe", "proprio", "images", "--steps", 400, "--batch", 64,
                  "--seed", args.seed, "--out", out / "bc")  # fmt: skip
    rows = {}
    for members in args.members:
        critic, run = out / f"critic-{members}", out / f"by-{members}"
        if not (critic / "result.json").exists():
            robolearn("reward", "train", "--data", good, missed, "--members", members, "--out", critic)
        if not (run / "result.json").exists():
            robolearn(
                "finetune", "--policy", out / "bc", "--data", seen, "--task", "lift", "--algo", "proposals",
                "--env-steps", args.env_steps, "--utd", 0.25, "--trust-after", 500, "--reward", critic,
                "--audit", "warn", "--seed", args.seed, "--eval-episodes", 200, "--out", run,
            )  # fmt: skip
        rows[members] = judged(run)
        print(members, json.dumps(rows[members]), flush=True)
    (out / "rows.json").write_text(json.dumps(rows, indent=1))
    return 0


def judged(run: Path) -> dict[str, object]:
    """The end of a run, the control steps after which the audit had a reason to end it, and its picture."""
    rows = [row for row in read_metrics(run) if row.get("episodes")]
    called = [round(row["called_solved"] + row["called_failed"]) for row in rows]
    solved = [round(row["called_solved"] + row["uncalled_solved"]) for row in rows]
    episodes = [round(row["episodes"]) for row in rows]
    at = [row["env_steps"] for row in rows]
    cut = range(0, len(rows) - TOGETHER + 1, TOGETHER)
    lines = [
        success_series(
            name, [at[i + TOGETHER - 1] for i in cut], [sum(counts[i : i + TOGETHER]) for i in cut],
            [sum(episodes[i : i + TOGETHER]) for i in cut],
        )
        for name, counts in (("called done by the critic", called), ("solved", solved))
    ]  # fmt: skip
    figure = draw(
        Curve(f"A policy that learns by the critic {run.name}", "control steps", "episodes [%]", lines, percent=True)
    )
    run.with_suffix(".png").write_bytes(to_png(figure))
    parted = [row["env_steps"] for row in rows if "audit_precision_high" in row and row["audit_precision_high"] < 0.5]
    parted += [row["env_steps"] for row in rows if row.get("audit_false_low", 0.0) > 0.2]
    result = json.loads((run / "result.json").read_text())
    last = {name: sum(round(row[name]) for row in rows[-12:]) for name in COUNTS}
    return {
        "success": result["evaluation"]["success"], "audit": result["audit"], "parted_after": min(parted, default=None),
        "last": last | {"episodes": sum(episodes[-12:])},
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
