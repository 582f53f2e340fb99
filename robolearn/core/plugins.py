"""Variants of other packages: what an installed package names by an entry point joins the table of its room.

    [project.entry-points."robolearn.tasks"]
    stack = "my_lab.stack:Stack"

The groups are `ROOMS`. What cannot be loaded, does not fit or has a name that is taken is left out, and a warning says
so; ``robolearn doctor`` lists all of them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
from collections import UserDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

ROOMS: dict[str, str] = {
    "tasks": "a class or a function that makes a task, as sim.tasks has them",
    "worlds": "a Family of worlds",
    "robots": "the folder of an arm, as robolearn robots new makes it",
    "teleoperators": "a TeleopConfig",
    "formats": "a FormatConfig",
    "policies": "a PolicyConfig",
    "rewards": "a RewardConfig",
    "algorithms": "an AlgorithmConfig",
}
"""Room → what an entry point of the group ``robolearn.<room>`` loads."""

Variant = TypeVar("Variant")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plugin:
    """An entry point.

    Attributes:
      room, name: which table it joins, by which name.
      package: who brings it, with its version.
      fault: why it is left out; empty where it is not.
    """

    room: str
    name: str
    package: str
    fault: str = ""


class Table(UserDict[str, Variant]):
    """Variants by name. What others add is loaded when it is first looked at, not when the table is made: their modules
    import ours.

    Args:
      shipped: ours.
      more: finds those of others, given the names of ours.
    """

    def __init__(
        self, shipped: Mapping[str, Variant], more: Callable[[Collection[str]], Mapping[str, Variant]] | None = None
    ) -> None:
        self._found, self._more = dict(shipped), more

    @property
    def data(self) -> dict[str, Variant]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """All of them."""
        if (more := self._more) is not None:
            self._more = None  # who asks while they are loaded sees ours
            self._found |= {name: found for name, found in more(list(self._found)).items() if name not in self._found}
        return self._found


def with_plugins(room: str, shipped: Mapping[str, Variant], fits: type | Callable[[Any], bool]) -> Table[Variant]:
    """`shipped`, and what plug-ins of the `room` add: subclasses of the class `fits`, or objects of which the function
    `fits` is true."""
    check = functools.partial(_is_subclass, fits) if isinstance(fits, type) else fits
    return Table(shipped, lambda ours: load(room, ours, check))


def _is_subclass(base: type, found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, base)


def load(room: str, taken: Collection[str], fits: Callable[[Any], bool]) -> dict[str, Any]:
    """The variants of other packages for `room`; see `with_plugins`. `taken`: names that they cannot have."""
    loaded: dict[str, Any] = {}
    for entry in _entries(room):
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "?"
        fault, found = "", None
        if entry.name in taken or entry.name in loaded:
            fault = f"the name {entry.name} is taken"
        else:
            try:
                found = entry.load()
            except (Exception, SystemExit) as error:  # whatever a stranger's import does, our commands go on
                fault = f"{type(error).__name__}: {error}"
            else:
                fault = "" if fits(found) else f"got {found!r}, expected {ROOMS[room]}"
        if fault:
            log.warning("the plug-in %s (robolearn.%s) of %s is left out: %s", entry.name, room, package, fault)
        else:
            loaded[entry.name] = found
        _SEEN[room, entry.name, package] = Plugin(room, entry.name, package, fault)
    return loaded


def plugins() -> list[Plugin]:
    """Those of the tables that somebody has looked at."""
    return list(_SEEN.values())


_SEEN: dict[tuple[str, str, str], Plugin] = {}


_installed = functools.cache(importlib.metadata.entry_points)  # reads the list of every installed package


def _entries(room: str) -> list[importlib.metadata.EntryPoint]:
    """Of one room, in an order that does not depend on the file system."""
    found = _installed().select(group=f"robolearn.{room}")
    return sorted(found, key=lambda entry: (entry.name, entry.value))
