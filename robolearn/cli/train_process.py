"""A process of ``robolearn train --processes`` beside the one that leads, which starts this with ``python -m``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robolearn.cli.main import parse
from robolearn.cli.registry import find


def command_of(task: dict[str, Any]) -> Any:
    """The command whose `Train.task` it is."""
    return parse(*find([*task["words"], "--json"]))


def main() -> None:
    """Follow the process that leads to its end."""
    from robolearn.train.processes import followed

    task = followed()
    command_of(task).follow(task["rank"], Path(task["meeting"]), Path(task["state"]))


if __name__ == "__main__":
    main()
