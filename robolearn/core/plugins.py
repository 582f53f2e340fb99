"""Variants of other packages: what an installed package names by an entry point joins the table of its room.

    [project.entry-points."robolearn.tasks"]
    stack = "my_lab.stack:Stack"

The groups are `ROOMS`. What cannot be loaded, does not fit, has a name that is taken or another one than its entry
point is left out, and a warning says so; ``robolearn doctor`` lists all of them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
import re
import sys
import traceback
from collections import UserDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

ROOMS: dict[str, str] = {
    "tasks": "a class or a function that makes a task, as sim.tasks has them",
    "worlds": "a Family of worlds",
    "robots": "the folder of an arm, as robolearn robots new makes it",
    "teleoperators": "a TeleopConfig with a build of its own",
    "formats": "a FormatConfig",
    "policies": "a PolicyConfig with a page, or a build, of its own",
    "rewards": "a RewardConfig",
    "algorithms": "an AlgorithmConfig with a page, or a build, of its own",
}
"""Room → what an entry point of the group ``robolearn.<room>`` loads."""

GROUP = "robolearn."  # begins the name of a group
NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)  # a word of a command line, in which a colon has a meaning
LONGEST = 300  # characters of a fault

Variant = TypeVar("Variant")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plugin:
    """An entry point.

    Attributes:
      room, name: which table it joins, by which name.
      package: who brings it, with its version.
      fault: why it is left out; empty where it is not.
      module: where its object is; empty where there is no such room.
    """

    room: str
    name: str
    package: str
    fault: str = ""
    module: str = ""

    def __str__(self) -> str:
        return f"the plug-in {self.name} ({GROUP}{self.room}) of {self.package}"


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


def with_plugins(
    room: str,
    shipped: Mapping[str, Variant],
    fits: type | Callable[[Any], bool],
    called: Callable[[Any], str] | None = lambda found: found.name,
    own: tuple[str, ...] = (),
) -> Table[Variant]:
    """`shipped`, and what plug-ins of the `room` add.

    Args:
      fits: their base class, or a function that is true of them.
      called: the name that an object has itself, which is its entry point's; None where objects have none.
      own: attributes that the base class leaves to them, one of which they have; empty: there are none.
    """
    check = functools.partial(_is_subclass, fits, own) if isinstance(fits, type) else fits
    return Table(shipped, lambda ours: load(room, ours, check, called))


def _is_subclass(base: type, own: tuple[str, ...], found: Any) -> bool:
    if not (isinstance(found, type) and issubclass(found, base)):
        return False
    return not own or any(getattr(found, one, None) is not getattr(base, one, None) for one in own)


def load(
    room: str, taken: Collection[str], fits: Callable[[Any], bool], called: Callable[[Any], str] | None
) -> dict[str, Any]:
    """The variants of other packages for `room`; see `with_plugins`. `taken`: names that they cannot have."""
    loaded: dict[str, Any] = {}
    makers: dict[str, str] = {}
    for entry in _entries(room):
        package = _package(entry)
        fault, found = "", None
        if not NAME.fullmatch(entry.name):
            fault = f"got the name {entry.name!r}, expected letters, digits, _, - and ."
        elif entry.name in taken or entry.name in loaded:
            fault = f"the name {entry.name} is taken by {makers.get(entry.name, 'robolearn')}"
        else:
            try:
                with contextlib.redirect_stdout(sys.stderr):  # stdout is the command's
                    found = entry.load()
                    fault = "" if fits(found) else f"got {found!r}, expected {ROOMS[room]}"
                    if not fault and called is not None and (own := called(found)) != entry.name:
                        fault = f"its object has the name {own!r}, expected that of the entry point, {entry.name}"
            except (Exception, SystemExit) as error:  # whatever a stranger's import does, our commands go on
                fault = f"{type(error).__name__}: {error}"
        plugin = Plugin(room, entry.name, package, " ".join(fault.split())[:LONGEST], entry.module)
        if fault:
            log.warning("%s is left out: %s", plugin, plugin.fault)
        else:
            loaded[entry.name], makers[entry.name] = found, package
        _SEEN[room, entry.name, package] = plugin
    return loaded


def plugins() -> list[Plugin]:
    """Those of the tables that somebody has looked at, and those of groups that there are not."""
    groups = sorted(group for group in _installed().groups if group.startswith(GROUP))
    unknown = [group.removeprefix(GROUP) for group in groups if group.removeprefix(GROUP) not in ROOMS]
    fault = f"no such group; available: {', '.join(GROUP + room for room in ROOMS)}"
    lost = [Plugin(room, entry.name, _package(entry), fault) for room in unknown for entry in _entries(room)]
    return [*_SEEN.values(), *lost]


def package_of(room: str, name: str) -> str:
    """The package, with its version, whose plug-in is called `name`; empty for what is ours or nobody's."""
    found = (one.package for one in _SEEN.values() if (one.room, one.name, one.fault) == (room, name, ""))
    return next(found, "")


def blamed(error: BaseException) -> str:
    """The plug-in whose code raised `error` or called what did, with the line, in words; empty where there is none."""
    makers = {one.module.partition(".")[0]: one for one in _SEEN.values() if not one.fault}
    ours = __name__.partition(".")[0]
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        maker = makers.get(frame.f_globals.get("__name__", "").partition(".")[0])
        if maker is not None and maker.module.partition(".")[0] != ours:
            return f"{maker}, {frame.f_code.co_filename}:{line}"
    return ""


_SEEN: dict[tuple[str, str, str], Plugin] = {}


_installed = functools.cache(importlib.metadata.entry_points)  # reads the list of every installed package


def _entries(room: str) -> list[importlib.metadata.EntryPoint]:
    """Of one room, in an order that does not depend on the file system."""
    found = _installed().select(group=f"{GROUP}{room}")
    return sorted(found, key=lambda entry: (entry.name, entry.value, _package(entry)))


def _package(entry: importlib.metadata.EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "?"
