"""Other formats of demonstrations: one table of what is read into an `EpisodeSource` and what a data set is written as.

To add a format, write a module with a `FormatConfig`, its reader or writer or both, and put it into `FORMATS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robolearn.core import BadInput
from robolearn.core.plugins import Table, with_plugins
from robolearn.data.convert.for_arm import for_arm
from robolearn.data.convert.formats import (
    aloha,
    bag,
    hil_log,
    lerobot_v21,
    lerobot_v30,
    npz,
    rlds,
    robomimic,
    zarr_store,
)
from robolearn.data.convert.formats.config import FormatConfig, FormatReader, FormatWriter
from robolearn.data.convert.options import ReadOptions
from robolearn.data.convert.source import EpisodeSource
from robots.stations import load_contract

__all__ = ["FORMATS", "FormatConfig", "ReadOptions", "guess", "lerobot_v30", "reader", "writer"]

_MODULES = (lerobot_v21, lerobot_v30, robomimic, npz, bag, aloha, zarr_store, rlds, hil_log)
FORMATS: Table[FormatConfig] = with_plugins(
    "formats", {module.FORMAT.name: module.FORMAT for module in _MODULES}, lambda found: isinstance(found, FormatConfig)
)


def guess(path: Path) -> str | None:
    """The format that `path` looks like."""
    return next((name for name, form in FORMATS.items() if form.here(path)), None)


def reader(name: str) -> FormatReader:
    """The reader of format `name`, which refuses options that it has no use for; raises `BadInput` where there is
    none."""
    read = _one(name, "read")

    def checked(path: Path, options: ReadOptions) -> EpisodeSource:
        FORMATS[name].check(options)
        if not (options.robot and "named" in FORMATS[name].options):
            return read(path, options)
        for said in ("embodiment", "action_kind", "unit", "gripper_unit"):
            if getattr(options, said):
                hint = "The contract says it, and actions are made of the joints' positions"
                raise BadInput(
                    f"--{said.replace('_', '-')} with --robot", got=getattr(options, said), expected="none", hint=hint
                )
        return for_arm(read(path, options), load_contract(options.robot), options)

    return checked


def writer(name: str) -> FormatWriter:
    """The writer of format `name`; raises `BadInput` where there is none."""
    return _one(name, "write")


def _one(name: str, does: str) -> Any:
    if (found := getattr(FORMATS.get(name), does, None)) is None:
        raise BadInput("--format", got=name, available=[key for key, form in FORMATS.items() if getattr(form, does)])
    return found
