"""LeRobot in an interpreter of its own, as the rival of a benchmark: `lerobot_data` and `lerobot_sac` are run there."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from robolearn.core import BadInput, RobolearnError

SCRIPTS = Path(__file__).parent


def lerobot_python(given: Path | None) -> str | None:
    """The interpreter that has LeRobot: `given`, else this one where LeRobot is installed, else None.

    Raises:
      BadInput: the given one is not there.
    """
    if given is None:
        return sys.executable if find_spec("lerobot") is not None else None
    if (found := shutil.which(str(given))) is None:
        raise BadInput("--lerobot-python", got=given, expected="a Python interpreter")
    return os.path.abspath(found)  # it is started elsewhere; a link stays one: it says which environment


def lerobot_program(python: str, script: str, task: Mapping[str, Any]) -> list[str]:
    """The command line that runs `script` with `task` in LeRobot's interpreter.

    The script goes there as text, so that the modules beside it are not in the way of LeRobot's own imports.
    """
    return [python, "-c", (SCRIPTS / script).read_text(), json.dumps(task)]


def lerobot_environment(work: Path) -> dict[str, str]:
    """Environment of that process: one thread, no network, caches below `work`."""
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(work / "huggingface"),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def lerobot_failed(python: str, output: str) -> RobolearnError:
    """The error for a process that ended too early, with the end of its output."""
    return RobolearnError(f"LeRobot in {python} failed: {' | '.join(output.strip().splitlines()[-3:])}")
