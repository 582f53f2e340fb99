"""A `robolearn` command that starts nodes, as a process; used by the tests of `deploy` and `record`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
WAIT_S = 150.0  # whole deployments and recordings, on machines that are busy with something else


class Running:
    """The command, its nodes, and what they say.

    Args:
      logs: folder for the nodes' logs.
      command: its words.
      domain: the ROS domain of its own.
    """

    def __init__(self, logs: Path, *command: object, domain: int) -> None:
        self.logs = logs
        flags = ["--json", "--logs", str(logs), "--domain", str(domain)]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*PROGRAM, *map(str, command), *flags],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True,
        )  # fmt: skip

    @property
    def left(self) -> dict[int, str]:
        """Process id → command line of every node that it started and that lives."""
        mark, found = f"ROBOLEARN_PARENT={self.process.pid}", {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_text().split("\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        return found

    def pid(self, node: str) -> int:
        """Of one node."""
        words = "robolearn.bench.emulators.node" if node == "sim_arm" else f"robolearn.deploy.nodes {node} "
        (found,) = [pid for pid, line in self.left.items() if words in line]
        return found

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: exit code, stdout, stderr."""
        try:
            out, err = self.process.communicate(timeout=WAIT_S)
        finally:
            self.close()
        return self.process.returncode, out, err

    def close(self) -> None:
        """Kill what is left."""
        if self.process.poll() is None:
            for pid in (*self.left, self.process.pid):
                os.kill(pid, signal.SIGKILL)
            self.process.communicate()

    def log(self) -> str:
        """All logs."""
        return "\n".join(f"== {path.stem}\n{path.read_text()}" for path in sorted(self.logs.glob("*.log")))
