"""Identification of hidden arms: `python tests/programs/identify_arms.py 20 --out folder`.

Each arm is drawn from HIDDEN below (masses ±30%, friction and damping from half to twice the usual, gains ±25%, 35 to
45 ms of delay, 2 to 4 mm of backlash at half a metre), moved and identified by `robolearn identify`, and then compared.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from robolearn.eval.intervals import clopper_pearson
from robots import PANDA
from robots.dynamics import DynamicsConfig, Spread
from robots.dynamics_file import load_dynamics, write_dynamics

HIDDEN = """robot: panda
parameters:
  link_mass: {uniform: [0.7, 1.3], when: run}
  joint_friction: {uniform: [0.005, 0.02], when: run}
  damping: {uniform: [0.5, 2.0], when: run}
  gain: {uniform: [0.75, 1.25], when: run}
  command_delay: {uniform: [0.035, 0.045], when: run}
  backlash: {uniform: [0.004, 0.008], when: run}
  joint_noise: 0.0002
"""
NOMINAL = {"payload": 0.0, "armature": 1.0}  # of what is fitted and not hidden


def main() -> int:
    """Identify the arms, print a line for each and the totals; 0 where the targets of all are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    hidden = asked.out / "hidden.yaml"
    hidden.write_text(HIDDEN)
    rows = []
    for seed in range(asked.first, asked.first + asked.arms):
        began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        given = ["--dynamics", hidden, "--seconds", asked.seconds, "--seed", seed]
        result = identify(*given, "--out", asked.out / str(seed))
        truth = load_dynamics(str(hidden)).draw(PANDA, (seed, 0, 0))
        spreads = {name: Spread("normal", tuple(values.tolist()), (0.0,)) for name, values in truth.items()}
        write_dynamics(asked.out / str(seed) / "truth.json", DynamicsConfig("truth", spreads, "panda"))
        rows.append(judge(result, str(hidden), seed))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows[-1]["cpu_s"] = round(after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, 1)
        print(json.dumps(rows[-1] | {"wall_s": round(time.perf_counter() - began)}), flush=True)
        (asked.out / f"row-{seed}.json").write_text(json.dumps(rows[-1]))
    return verdict(rows)


def identify(*words: object) -> dict:
    """The JSON of `robolearn identify` with these arguments."""
    program = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
    words = (*program, "identify", *words, "--json")
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def verdict(rows: list[dict]) -> int:
    """Print the totals; 0 where the targets of all are met."""
    print(json.dumps(totals(rows)))
    good = all(row["ratio"] <= 0.3 and abs(row["delay_error_ms"]) <= 3.0 for row in rows)
    return 0 if good and totals(rows)["inside"]["rate"] >= 0.9 else 1


def judge(result: dict, hidden: str, seed: int) -> dict:
    """The result beside the truth."""
    truth = load_dynamics(hidden).draw(PANDA, (seed, 0, 0))
    out = []
    for name, found in result["parameters"].items():
        parameter, i = name.split(".")
        true = float(truth[parameter][int(i)]) if parameter in truth else NOMINAL[parameter]
        if not found["low"] <= true <= found["high"]:
            out.append(name)
    delay = result["parameters"]["command_delay.0"]["value"] - float(truth["command_delay"][0])
    return {
        "seed": seed,
        "ratio": round(result["held_out"]["ratio"], 4),
        "nominal_mrad": round(result["held_out"]["nominal_mrad"], 3),
        "identified_mrad": round(result["held_out"]["identified_mrad"], 4),
        "delay_error_ms": round(1e3 * delay, 3),
        "inside": len(result["parameters"]) - len(out),
        "parameters": len(result["parameters"]),
        "out": out,
        "not_identified": result["not_identified"],
        "motion_s": round(sum(result["motion_s"].values()), 1),
        "fit_s": round(result["wall_s"]["fit"], 1),
    }


def totals(rows: list[dict]) -> dict:
    """Of all arms."""
    inside, count = sum(row["inside"] for row in rows), sum(row["parameters"] for row in rows)
    low, high = clopper_pearson(inside, count)
    return {
        "arms": len(rows),
        "ratio": {"mean": float(np.mean([r["ratio"] for r in rows])), "max": max(r["ratio"] for r in rows)},
        "delay_error_ms": max(abs(r["delay_error_ms"]) for r in rows),
        "inside": {"rate": inside / count, "low": low, "high": high, "episodes": count},
        "motion_s": max(r["motion_s"] for r in rows),
        "fit_s": max(r["fit_s"] for r in rows),
        "cpu_s": max(r["cpu_s"] for r in rows),
    }


if __name__ == "__main__":
    sys.exit(main())
