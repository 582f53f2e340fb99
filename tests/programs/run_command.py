"""A command of the program, run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys


def robolearn(*arguments: object) -> dict:
    """The result of the command with these words."""
    code = "import sys; from robolearn.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
