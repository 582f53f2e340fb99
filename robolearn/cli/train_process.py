"""A process of ``robolearn train --processes`` beside the one that leads, which starts this with ``python -m``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robolearn.cli.train import Train


def command_of(task: dict[str, Any]) -> Train:
    """The command whose `Train.task` it is."""
    from policies.registry import config_from_json
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
