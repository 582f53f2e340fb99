"""A plain child process that answers over its standard streams: nothing is pickled, the user's script not imported."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO


def own_python(module: str) -> list[str]:
    """The command that runs ``main`` of `module` in this interpreter; `own_paths` belong to it."""
    return [sys.executable, "-u", "-P", "-c", f"from {module} import main; main()"]


def own_paths() -> dict[str, str]:
    """The part of the environment by which this interpreter finds there what it finds here."""
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


class Child:
    """The parent's end of a process that runs `command`; more `options` are those of `subprocess.Popen`, with which its
    output may go elsewhere."""

    # requests, replies: its standard input, and its output where that is read here
    requests: BinaryIO
    replies: BinaryIO

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], **options: Any) -> None:
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **options}
        self.process = subprocess.Popen(command, env=environment, **streams)
        self.requests, self.replies = self.process.stdin, self.process.stdout  # type: ignore[assignment]

    def ending(self) -> str:
        """The end of a process whose output has ended, in words."""
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its output but still runs"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def close(self) -> None:
        """End the process: first by closing its streams, after 5 s by killing it."""
        for stream in filter(None, (self.requests, self.replies)):
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
