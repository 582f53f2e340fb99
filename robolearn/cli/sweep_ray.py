"""The runs of ``robolearn sweep --runner ray``: one task of Ray for each, as many at a time as it has CPUs.

Without RAY_ADDRESS Ray is started here, on the loopback interface, and ended; with it the cluster that it names runs
them, whose machines have to have this folder and the data under the same paths.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from robolearn.core import BadInput, RobolearnError
from robolearn.core.installation import install_command

ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # by its name only of those: 0 makes Ray listen on loopback alone


def need_ray() -> None:
    """Raise `BadInput` where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise BadInput("--runner ray", got="no package ray", expected="it installed", hint=install_command("ray"))


def run_all(lines: Sequence[Sequence[str]], folder: str, done: Callable[[int], None]) -> None:
    """Run each of the command lines, in any order.

    Args:
      folder: the working directory that their paths begin at.
      done: called with how many have ended.

    Raises:
      RobolearnError: one failed; those that had begun are stopped, and go on from their last state when resumed.
    """
    need_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # tasks that ask for no GPU may still see them
    if "RAY_ADDRESS" not in os.environ:  # read when Ray is imported
        os.environ[ONE_MACHINE] = "0"
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    ray: Any = importlib.import_module("ray")
    own: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"include_dashboard": False}
    ray.init(**own, log_to_driver=False, logging_level="ERROR")
    try:
        task = ray.remote(run_one)
        left = {task.remote(list(line), folder): line for line in lines}
        while left:
            (ended, *_), _ = ray.wait(list(left), num_returns=1)
            line = left.pop(ended)
            if error := ray.get(ended):
                raise RobolearnError(f"robolearn {' '.join(line)}: {error}")
            done(len(lines) - len(left))
    finally:
        ray.shutdown()


def run_one(line: list[str], folder: str) -> str:
    """Run one command line, in a worker of Ray; its error, or nothing."""
    os.chdir(folder)
    from robolearn.cli.main import parse
    from robolearn.cli.registry import find

    try:
        entry, flags = find(line)
        parse(entry, flags).run()
    except RobolearnError as error:
        return str(error)
    return ""
