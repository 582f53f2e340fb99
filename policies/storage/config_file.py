"""The ``config.json`` of a checkpoint, and where checkpoints lie.

Imports no torch, so that reading a policy's interface takes no seconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robolearn.core import BadInput, Interface
from robolearn.core.specs import ACTION_SCALE
from robolearn.io.json_files import parse_json
from robolearn.io.paths import no_such_folder

FORMAT = "robolearn.policy"
VERSION = 1
LEROBOT, EPISODE = "lerobot:", "episode:"
FOREIGN = (LEROBOT, EPISODE)  # policies that are named, not a folder of ours
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def policy_folder(path: str | os.PathLike[str]) -> Path:
    """The checkpoint folder that `path` means: itself, or its ``policy/``. Raises `BadInput`: there is none."""
    if os.fspath(path).startswith(FOREIGN):
        got = "one of LeRobot's" if os.fspath(path).startswith(LEROBOT) else "a recorded episode"
        raise BadInput(f"policy {path}", got=got, expected="one that robolearn trained")
    path = Path(path)
    if not path.is_dir():
        there = "that is a file" if path.exists() else no_such_folder(path)
        raise BadInput(
            f"policy {path}: {there}", hint="A policy is a run folder (robolearn runs lists them) or its policy/"
        )
    for folder in (path / "policy", path):  # a run has a config.json of its own
        if (folder / CONFIG).is_file() and ((folder / WEIGHTS).is_file() or folder != path):
            return folder
    inside = sorted(place for place in path.iterdir() if place.is_dir())
    if (path / "meta" / "info.json").is_file():
        raise BadInput(f"policy {path}: that is a data set", hint=f"robolearn train --data {path} makes a policy of it")
    if runs := [place.name for place in inside if (place / "policy" / CONFIG).is_file()]:
        raise BadInput(f"policy {path}: that is a folder of runs, name one of them", available=runs)
    found = sorted(entry.name for entry in path.iterdir())[:8]
    raise BadInput(
        f"policy {path}", got=", ".join(found) or "an empty folder", expected=f"{CONFIG} and {WEIGHTS}, or policy/"
    )


def read_config(file: Path) -> dict[str, Any]:
    """The content of a ``config.json``, with its kind, settings and interface; raises `BadInput` if it has none."""
    try:
        config = parse_json(file)
    except (ValueError, OSError) as error:
        raise BadInput(f"policy {file}", got=f"unreadable ({error})", expected="JSON") from error
    check_config(config, file)
    return config


def check_config(config: Any, file: Path) -> None:
    """Raise `BadInput` unless the JSON in `file` has a policy's kind, settings and interface."""
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format", "no format") if isinstance(config, dict) else type(config).__name__
        of_lerobot = isinstance(config, dict) and "input_features" in config
        hint = f"A policy of LeRobot's is named lerobot:{file.parent}" if of_lerobot else ""
        raise BadInput(f"policy {file}", got=found, expected=f'"format": "{FORMAT}"', hint=hint)
    if config.get("version") != VERSION:
        raise BadInput(f"policy {file}: version", got=config.get("version"), expected=VERSION)
    for key, kind in (("kind", str), ("settings", dict), ("interface", dict)):
        if not isinstance(config.get(key), kind):
            raise BadInput(f"policy {file}: {key}", got=config.get(key, "nothing"), expected=f"a {kind.__name__}")


def interface_of(config: Mapping[str, Any], file: Path) -> Interface:
    """The interface in what `read_config` gave of `file`; raises `BadInput` if it is not whole."""
    try:
        interface = Interface.from_json(config["interface"])
    except BadInput as error:
        raise BadInput(f"policy {file}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadInput(
            f"policy {file}: interface", got=f"{type(error).__name__}: {error}", expected="a full one"
        ) from error
    if ACTION_SCALE in interface.extra:
        from robots.stated_scale import check_stated_scale  # late: arms take half a second to import

        check_stated_scale(interface, what=f"policy {file}")
    return interface
