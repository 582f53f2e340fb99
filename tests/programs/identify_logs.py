"""Identification of hidden arms from recordings: `python tests/programs/identify_logs.py 6 --out folder`.

Each arm is drawn as those of `identify_arms.py` are. A hand moves its tool to and fro, and what the recording keeps is
a data set: 12 episodes of 8 s, a row every 50 ms. `robolearn identify --log` is given that alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware"))
from identify_arms import HIDDEN, identify, judge, verdict
from logged_rig import record_episodes

from sim.realtime import RealtimeWorld

EPISODES, STEPS = 12, 160


def main() -> int:
    """Identify the arms, print a line for each and the totals; 0 where the targets of all are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    hidden = asked.out / "hidden.yaml"
    hidden.write_text(HIDDEN)
    rows = []
    for seed in range(asked.first, asked.first + asked.arms):
        began = time.perf_counter()
        data, out = asked.out / f"data-{seed}", asked.out / str(seed)
        if not data.exists():
            record_episodes(RealtimeWorld("lift", seed, dynamics=str(hidden)), data, EPISODES, STEPS, seed)
        row = judge(identify("--log", data, "--out", out), str(hidden), seed) | {"cpu_s": 0.0}
        print(json.dumps(row | {"wall_s": round(time.perf_counter() - began)}), flush=True)
        (asked.out / f"row-{seed}.json").write_text(json.dumps(row))
        rows.append(row)
    return verdict(rows)


if __name__ == "__main__":
    sys.exit(main())
