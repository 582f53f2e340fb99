"""A process of ``robolearn train --processes`` beside the one that leads, which starts this with ``python -m``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.io.json_files import plain

if TYPE_CHECKING:
    from robolearn.cli.train import Train

SAME = (
    "data",
    "start",
    "observe",
    "goal",
    "images",
    "mix",
    "weights",
    "device",
    "processes",
)  # flags that say what is learned from


def task_of(command: Train, state: Path) -> dict[str, Any]:
    """What such a process is told, as JSON values: flags, settings, and where states are."""
    flags = {name: plain(getattr(command, name)) for name in SAME}
    return {"flags": flags, "policy": command.policy, "settings": plain(command.settings), "state": str(state)}


def command_of(task: dict[str, Any]) -> Train:
    """The command that `task_of` was made of."""
    from policies.kinds import config_from_json
    from policies.settings import POLICIES
    from robolearn.cli.train import Train
    from robolearn.train.settings import ImitationConfig

    settings = dict(task["settings"])
    policy = config_from_json(POLICIES[task["policy"]], settings.pop("policy"), "policy")
    imitation = dataclasses.replace(config_from_json(ImitationConfig, settings, "imitation"), policy=policy)
    flags: dict[str, Any] = task["flags"]
    flags = {name: tuple(value) if isinstance(value, list) else value for name, value in flags.items()}
    return Train(out=Path(task["state"]), policy=task["policy"], settings=imitation, json=True, **flags)


def main() -> None:
    """Follow the process that leads to its end."""
    from robolearn.train.processes import followed

    task = followed()
    command_of(task).follow(task["rank"], Path(task["meeting"]), Path(task["state"]))


if __name__ == "__main__":
    main()
