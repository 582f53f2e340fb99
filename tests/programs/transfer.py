"""Policies for arms that are not as modelled: `python tests/programs/transfer.py ARMS --out folder`.

ARMS is the folder of `identify_arms.py`: each of its arms has `truth.json`, which nothing here trains with, and
`dynamics.json`, what was identified of it. Under each dynamics (`none`, `mild`, `wild`, and each arm's identified ones)
demonstrations are recorded, imitated and fine-tuned by RL, and each policy is judged on the hidden arms: an identified
one on its own arm. What is there is not done again.

With `--predict N` the six policies of the levels are checkpoints, whose success on each of the first N arms is
predicted by simulations of `none`, `mild`, `wild` and of the arm as identified: Pearson's r and MMRV of each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from robolearn.eval.intervals import Success, clopper_pearson
from robolearn.eval.paired import mmrv, pearson
from robolearn.eval.transfer_page import write_transfer_page

LEVELS = ("none", "mild", "wild")


def robolearn(*words: object) -> dict:
    """The result of a command."""
    program = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
    done = subprocess.run([*program, *map(str, words), "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def trained(asked: argparse.Namespace, dynamics: str, out: Path) -> dict[str, Path]:
    """Policies for the `dynamics`, by name: imitated, and fine-tuned."""
    world = ("--task", asked.task, "--dynamics", dynamics, "--seed", asked.seed)
    policies = {"imitation": out / "bc", "RL": out / "rl"}
    if not (out / "data/meta/info.json").exists():
        robolearn("collect", *world, "--episodes", asked.demos, "--quality", "narrow", "--out", out / "data")
    if not policies["imitation"].exists():
        robolearn(
            "train", "--data", out / "data", "--steps", 1500, "--seed", asked.seed, "--out", policies["imitation"]
        )
    if not (policies["RL"] / "done.json").exists():
        resume = ("--resume",) if policies["RL"].exists() else ()
        result = robolearn(
            "finetune", "--policy", policies["imitation"], *world, "--algo", "proposals", "--data", out / "data",
            "--env-steps", asked.env_steps, "--worlds", 64, "--out", policies["RL"], *resume,
        )  # fmt: skip
        (policies["RL"] / "done.json").write_text(json.dumps(result))
    return policies


def judged(asked: argparse.Namespace, policy: Path, dynamics: str, at: Path) -> int:
    """How many of the episodes succeed."""
    if not at.exists():
        at.parent.mkdir(parents=True, exist_ok=True)
        starts = ("--episodes", asked.episodes, "--seed", 1000 + asked.seed)
        words = ("--task", asked.task, "--dynamics", dynamics, *starts)
        at.write_text(json.dumps(robolearn("evaluate", "--policy", policy, *words)))
    return round(json.loads(at.read_text())["success"]["rate"] * asked.episodes)


def predict(asked: argparse.Namespace, arms: list[Path]) -> list[tuple[str, ...]]:
    """Print how well each simulation predicts the success of the six checkpoints on each of `arms`; its rows."""
    checkpoints = [(asked.out / level, kind) for level in LEVELS for kind in ("imitation", "RL")]

    def rates(dynamics: str, name: str) -> list[float]:
        policies = {"imitation": "bc", "RL": "rl"}
        return [
            judged(asked, out / policies[kind], dynamics, out / f"{name}-{kind}.json") / asked.episodes
            for out, kind in checkpoints
        ]

    found: dict[str, list[tuple[float, float, float]]] = {}
    for arm in arms:
        real = rates(str(arm / "truth.json"), f"on-{arm.name}")
        for model in (*LEVELS, "identified"):
            identified = model == "identified"
            simulated = rates(
                str(arm / "dynamics.json") if identified else model, f"as-{arm.name if identified else model}"
            )
            error = float(np.mean(np.abs(np.subtract(simulated, real))))
            found.setdefault(model, []).append((pearson(simulated, real), mmrv(simulated, real), error))
    rows = []
    for model, each in found.items():
        r, violation, error = np.array(each).T
        spread = f"{violation.mean():.3f}, worst {violation.max():.3f}"
        off = f"{100 * error.mean():.1f}, worst {100 * error.max():.1f}"
        rows.append((model, f"{r.min():.3f} to {r.max():.3f}", spread, off))
        print(f"{model:10s} over {len(arms)} arms, six checkpoints: r {r.min():.3f} to {r.max():.3f}, MMRV "
              f"{violation.min():.3f} to {violation.max():.3f} (mean {violation.mean():.3f}), success off by "
              f"{100 * error.mean():.1f} points on average, {100 * error.max():.1f} on the worst arm")  # fmt: skip
    return rows


def page(asked: argparse.Namespace, rows: dict[str, dict[str, dict[str, int]]], predictions: list) -> Path:
    """The page of the table: arms beside each other, with intervals."""
    n = asked.episodes
    kinds: dict[str, dict[str, dict[str, Success]]] = {}
    promised: dict[str, dict[str, float]] = {}
    for kind, table in rows.items():
        for name in (*LEVELS, "identified"):
            some = [row for key, row in table.items() if key.split()[0] == name]
            on = {arm: Success.of(k, n) for row in some for arm, k in row.items() if arm != "promised"}
            kinds.setdefault(kind, {})[name] = on
            promised.setdefault(kind, {})[name] = float(np.mean([row["promised"] / n for row in some]))
    command = f"python tests/programs/transfer.py {asked.arms} --out {asked.out}"
    return write_transfer_page(asked.out / "report.html", asked.task, kinds, promised, predictions, command)


def main() -> int:
    """Train, judge, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arms", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", default="lift")
    parser.add_argument("--demos", type=int, default=25)
    parser.add_argument("--env-steps", type=int, default=40_000)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--predict", type=int, default=0)
    asked = parser.parse_args()
    arms = sorted(path.parent for path in asked.arms.glob("*/dynamics.json"))
    ways = {name: (name, arms) for name in LEVELS} | {
        f"identified {arm.name}": (str(arm / "dynamics.json"), [arm]) for arm in arms
    }
    rows: dict[str, dict[str, dict[str, int]]] = {}
    for name, (dynamics, own) in ways.items():
        out = asked.out / name.replace(" ", "-")
        out.mkdir(parents=True, exist_ok=True)
        for kind, policy in trained(asked, dynamics, out).items():
            row = {"promised": judged(asked, policy, dynamics, out / f"promised-{kind}.json")}
            for arm in own:
                row[arm.name] = judged(asked, policy, str(arm / "truth.json"), out / f"on-{arm.name}-{kind}.json")
            rows.setdefault(kind, {})[name] = row
            print(kind, name, row, flush=True)
    for kind, table in rows.items():
        for name in (*LEVELS, "identified"):
            some = [row for key, row in table.items() if key.split()[0] == name]
            rates = np.array([n / asked.episodes for row in some for arm, n in row.items() if arm != "promised"])
            promised = np.mean([row["promised"] / asked.episodes for row in some])
            low, high = clopper_pearson(round(rates.mean() * asked.episodes), asked.episodes)
            each = " ".join(f"{100 * rate:.1f}" for rate in rates)
            print(f"{kind:10s} {name:10s} promised {100 * promised:.1f}, on {len(rates)} hidden arms {each}: mean "
                  f"{100 * rates.mean():.1f} (one arm of that rate: {100 * low:.1f}–{100 * high:.1f})")  # fmt: skip
    predictions = predict(asked, arms[: asked.predict]) if asked.predict else []
    print(f"report      {page(asked, rows, predictions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
