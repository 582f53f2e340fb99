"""A command of the program, run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys


def robolearn(*arguments: object, passes: tuple[int, ...] = (0,)) -> dict:
    """The result of the command with these words, whose exit code is one of those that pass."""
    code = "import sys; from robolearn.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in passes:
        raise subprocess.CalledProcessError(done.returncode, command)
    return json.loads(done.stdout.splitlines()[-1])
