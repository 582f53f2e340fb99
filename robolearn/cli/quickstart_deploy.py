"""The last step of a quickstart: the tuned policy on the simulated arm, over ROS 2, in real time."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robolearn.runs.command import rate_text

log = logging.getLogger(__name__)


def deploy(policy: Path, robot: str, task: str, episodes: int, seed: int) -> dict[str, Any]:
    """`robolearn deploy` as a process of its own.

    Returns:
      Its result, that of a deployment which ended before its time too; ``{"error": …}`` on a machine that cannot;
      ``{"skipped": …}`` where no station simulates the arm.
    """
    station = simulated_station(robot)
    if station is None:
        return {"skipped": f"no station has a simulated {robot}"}
    command = ["deploy", "--policy", str(policy), "--robot", station, "--task", task, "--json"]
    command += ["--episodes", str(episodes), "--seed", str(seed)]
    code = "import sys; from robolearn.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-P", "-c", code, *command], capture_output=True, text=True, check=False)
    result = json.loads(done.stdout.splitlines()[-1]) if done.stdout else None
    if done.returncode == 0 and result is not None:
        return result
    last = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("robolearn: error: ")
    log.warning("the deployment failed: %s", last)
    return result or {"error": last}


def simulated_station(robot: str) -> str | None:
    """The station whose arm is a simulated `robot`."""
    from robots.stations import load_contract

    return "sim" if load_contract("sim").robot.name == robot else None


def deployed(result: Mapping[str, Any]) -> str:
    """A deployment in words."""
    if "error" in result:
        return f"failed: {result['error']}"
    if "skipped" in result:
        return f"not done: {result['skipped']}"
    latency = result["latency_ms"]
    text = f"{rate_text(result['success'])}, {result['violations']} limit violations"
    if latency["p50"] is not None:
        text += f", {latency['p50']:.0f} ms from observation to command (p99 {latency['p99']:.0f})"
    return f"{text}; ended before all {result['asked']} episodes: {result['ended']}" if result["ended"] else text
