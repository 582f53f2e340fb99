"""A policy of LeRobot's on the simulated arm, behind the safety filter, as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from robots.stations import CONTRACTS

ROOT = Path(__file__).resolve().parents[2]


def deployed(folder: Path, tmp_path: Path) -> None:
    """One episode of the policy in `folder`, to its end."""
    # The simulated arm, with patience for a machine that is busy: its joint states may be late, and are half as many.
    contract = yaml.safe_load((CONTRACTS / "sim.yaml").read_text())
    contract["joint_states"]["max_age_s"] = contract["objects"]["max_age_s"] = 1.0
    contract["stream_hz"] = 100
    (tmp_path / "sim.yaml").write_text(yaml.safe_dump(contract))
    program = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())", "deploy"]
    flags = ["--robot", str(tmp_path / "sim.yaml"), "--task", "lift", "--episodes", "1", "--json",
             "--domain", str(int(os.environ["ROS_DOMAIN_ID"]) + 1)]  # fmt: skip
    places = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    for attempt in range(3):
        done = subprocess.run(
            [*program, "--policy", f"lerobot:{folder}", *flags, "--logs", str(tmp_path / f"logs-{attempt}")],
            env=environment, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        if "the safety filter stopped the arm" not in done.stderr:  # as it must where a process is held up
            break
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["success"]["episodes"] == 1 and result["violations"] == 0, result
    assert result["filter"]["commands"] > 20, result
